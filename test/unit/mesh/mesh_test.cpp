#include "runtime/schema/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace qwen35 {
namespace {

Mesh mesh(const char *text, int64_t kv = 0) {
  std::string error;
  std::optional<MeshShape> shape = parseMeshShape(text, error);
  EXPECT_TRUE(shape) << error;
  shape->kv = kv;
  std::optional<Mesh> made = Mesh::make(*shape, error);
  EXPECT_TRUE(made) << error;
  return made.value_or(Mesh());
}

std::string parseError(const char *text) {
  std::string error;
  EXPECT_FALSE(parseMeshShape(text, error)) << text;
  return error;
}

std::string makeError(const char *text, int64_t kv = 0) {
  std::string error;
  std::optional<MeshShape> shape = parseMeshShape(text, error);
  EXPECT_TRUE(shape) << error;
  shape->kv = kv;
  EXPECT_FALSE(Mesh::make(*shape, error)) << text;
  return error;
}

using Group = std::vector<int64_t>;
using Names = std::vector<std::string>;

// Sizes of the published 35b-a3b.
const MeshLimits kMoe = {16, 2, 16, 32, 512, 256, 248320, 8192};
// The debug model.
const MeshLimits kDense = {4, 2, 2, 4, 192, 0, 256, 256};

TEST(MeshTest, ReadsWhatItPrints) {
  std::string error;
  auto shape = parseMeshShape("tp=2,ep=4,cp=2,dps=2", error);
  ASSERT_TRUE(shape) << error;
  EXPECT_EQ(printMeshShape(*shape), "pp=1,dpr=1,dps=2,cp=2,tp=2,ep=4");
  EXPECT_EQ(parseMeshShape(printMeshShape(*shape), error), shape);
  EXPECT_EQ(shape->ranks(), 8);
  EXPECT_EQ(parseMeshShape("", error), MeshShape());
}

TEST(MeshTest, RefusesWhatIsNotAMesh) {
  EXPECT_EQ(parseError("tq=2"), "mesh has \"tq=2\", expected AXIS=SIZE with an "
                                "axis of pp, dpr, dps, cp, tp, ep");
  EXPECT_EQ(parseError("tp"), "mesh has \"tp\", expected AXIS=SIZE with an "
                              "axis of pp, dpr, dps, cp, tp, ep");
  EXPECT_EQ(parseError("tp=2,tp=2"), "mesh names \"tp\" twice");
  for (const char *text : {"tp=0", "tp=-1", "tp=2x", "tp=", "tp=99999999999999"})
    EXPECT_NE(parseError(text).find("expected a number of ranks"),
              std::string::npos)
        << text;
  EXPECT_EQ(parseError("tp=65536,dps=65536"),
            "mesh has more than 16777216 ranks");
}

TEST(MeshTest, NumbersRanksWithTpInnermost) {
  Mesh m = mesh("dpr=2,cp=3,tp=2");
  MeshAxes tp = *m.axes("tp"), cp = *m.axes("cp"), dpr = *m.axes("dpr");
  EXPECT_EQ(m.size(tp | cp | dpr), 12);
  EXPECT_EQ(m.group(7, tp), (Group{6, 7}));
  EXPECT_EQ(m.group(7, cp), (Group{7, 9, 11}));
  EXPECT_EQ(m.group(7, dpr), (Group{1, 7}));
  EXPECT_EQ(m.group(8, tp | cp), (Group{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(m.coordinate(11, cp), 2);
  EXPECT_EQ(m.coordinate(11, cp | tp), 5);
  EXPECT_EQ(m.coordinate(11, 0), 0);
  EXPECT_EQ(m.group(5, 0), (Group{5}));
  EXPECT_EQ(*m.axes("dps"), 0u); // one rank: no atom
  EXPECT_FALSE(m.axes("xp"));
  EXPECT_EQ(m.groups(cp | dpr),
            (std::vector<Group>{{0, 2, 4, 6, 8, 10}, {1, 3, 5, 7, 9, 11}}));
}

TEST(MeshTest, ExpertsFoldOverTheInnermostRanks) {
  Mesh m = mesh("dps=2,cp=2,tp=2,ep=4");
  EXPECT_EQ(*m.axes("ep"), *m.axes("cp") | *m.axes("tp"));
  EXPECT_EQ(*m.axes("edp"), *m.axes("dps"));
  EXPECT_EQ(m.names(*m.axes("ep")), (Names{"cp", "tp"}));
  EXPECT_EQ(m.group(5, *m.axes("ep")), (Group{4, 5, 6, 7}));

  Mesh all = mesh("dps=2,cp=2,tp=2,ep=8");
  EXPECT_EQ(all.size(*all.axes("ep")), 8);
  EXPECT_EQ(*all.axes("edp"), 0u);

  // Two atoms: ep takes the inner half of cp.
  Mesh cut = mesh("cp=4,tp=2,ep=4");
  EXPECT_EQ(cut.names(*cut.axes("ep")), (Names{"cp.1", "tp"}));
  EXPECT_EQ(cut.names(*cut.axes("edp")), (Names{"cp.0"}));
  EXPECT_EQ(cut.names(*cut.axes("cp")), (Names{"cp"}));
  EXPECT_EQ(cut.group(0, *cut.axes("cp.0")), (Group{0, 4}));
  EXPECT_EQ(cut.group(3, *cut.axes("ep")), (Group{0, 1, 2, 3}));
  EXPECT_EQ(cut.describe(*cut.axes("ep") | *cut.axes("cp")), "{cp, tp}");

  Mesh within = mesh("dps=2,tp=4,ep=2");
  EXPECT_EQ(within.names(*within.axes("ep")), (Names{"tp.1"}));
  EXPECT_EQ(within.names(*within.axes("edp")), (Names{"dps", "tp.0"}));
}

TEST(MeshTest, KeyValueHeadsCutTp) {
  Mesh m = mesh("tp=8,ep=2", /*kv=*/2);
  EXPECT_EQ(m.names(*m.axes("kv")), (Names{"tp.0"}));
  EXPECT_EQ(m.names(*m.axes("ep")), (Names{"tp.2"}));
  EXPECT_EQ(m.size(*m.axes("tp")), 8);
  EXPECT_EQ(m.group(5, *m.axes("kv")), (Group{1, 5}));
  EXPECT_EQ(*mesh("tp=4").axes("kv"), *mesh("tp=4").axes("tp"));
  EXPECT_EQ(*mesh("tp=4", 1).axes("kv"), 0u);
  EXPECT_NE(makeError("tp=12,ep=4", 2).find("neither divides the other"),
            std::string::npos);
  EXPECT_EQ(makeError("tp=4", 3), "kv=3 does not divide tp=4");
}

TEST(MeshTest, RefusesEpThatIsNotAnInnermostRun) {
  EXPECT_EQ(makeError("dps=2,cp=3,tp=2,ep=4"),
            "ep=4 is not an innermost run of dps=2, cp=3, tp=2: expected a "
            "divisor of tp, or tp times a divisor of cp, or tp times cp times "
            "a divisor of dps");
  makeError("dpr=2,ep=2"); // dpr holds copies of experts
  makeError("tp=3,ep=2");
  makeError("tp=2,ep=4");
}

// Whatever the mesh: groups of a set cover every rank once, in the order of
// their coordinates, and a set and its complement cross in one rank.
TEST(MeshTest, GroupsPartitionTheRanks) {
  int64_t checked = 0;
  for (int64_t ranks = 1; ranks <= 16; ++ranks)
    for (const MeshShape &shape : legalMeshes(ranks, kMoe)) {
      std::string error;
      std::optional<Mesh> m = Mesh::make(withKvCut(shape, kMoe), error);
      ASSERT_TRUE(m) << printMeshShape(shape) << ": " << error;
      MeshAxes every = (MeshAxes(1) << m->atoms().size()) - 1;
      ASSERT_EQ(m->size(every), ranks) << printMeshShape(shape);
      ASSERT_EQ(m->size(*m->axes("ep")), shape.ep) << printMeshShape(shape);
      for (MeshAxes axes = 0; axes <= every; ++axes) {
        std::set<int64_t> seen;
        for (const Group &group : m->groups(axes))
          for (size_t i = 0; i < group.size(); ++i) {
            ASSERT_TRUE(seen.insert(group[i]).second);
            ASSERT_EQ(m->coordinate(group[i], axes), int64_t(i));
            ASSERT_EQ(m->group(group[i], axes), group);
            Group other = m->group(group[i], every & ~axes);
            ASSERT_EQ(std::count_if(other.begin(), other.end(),
                                    [&](int64_t rank) {
                                      return std::count(group.begin(),
                                                        group.end(), rank);
                                    }),
                      1);
          }
        ASSERT_EQ(seen.size(), size_t(ranks));
        ++checked;
      }
    }
  EXPECT_GT(checked, 300);
}

TEST(MeshTest, InnerMeansContiguous) {
  Mesh m = mesh("dps=2,cp=2,tp=2");
  MeshAxes dps = *m.axes("dps"), cp = *m.axes("cp"), tp = *m.axes("tp");
  EXPECT_TRUE(Mesh::isInner(tp, dps | cp));
  EXPECT_TRUE(Mesh::isInner(cp | tp, dps));
  EXPECT_FALSE(Mesh::isInner(cp, dps | tp));
  EXPECT_TRUE(Mesh::isInner(0, dps | tp));
  EXPECT_TRUE(Mesh::isInner(dps, 0));
}

TEST(MeshTest, SaysWhatTheModelCannotDo) {
  auto why = [](const char *text, const MeshLimits &limits) {
    std::string error;
    return checkMesh(*parseMeshShape(text, error), limits);
  };
  EXPECT_EQ(why("dps=2,cp=2,tp=2,ep=8", kMoe), "");
  EXPECT_EQ(why("tp=16", kMoe), "");
  EXPECT_EQ(why("tp=32", kMoe), "tp=32 does not divide the 16 query heads");
  EXPECT_EQ(why("tp=4", kDense),
            "tp=4 does not divide the 2 key heads of the delta rule");
  EXPECT_EQ(why("dps=2,ep=2", kDense),
            "ep=2 for a dense model, which has no experts; expected ep=1");
  EXPECT_EQ(why("dps=512,ep=512", kMoe),
            "ep=512 does not divide the 256 experts");
  MeshLimits odd = kDense;
  odd.kvHeads = 4;
  odd.queryHeads = odd.keyHeads = odd.valueHeads = odd.ffn = odd.vocab = 12;
  EXPECT_EQ(why("tp=6", odd), "tp=6 neither divides the 4 key/value heads nor "
                              "is a multiple of them");
  EXPECT_EQ(why("cp=3", kDense), "a row of 256 tokens does not split into 6 "
                                 "pieces for cp=3 and tp=1 (two chunks per cp "
                                 "rank)");
}

TEST(MeshTest, NamesTheNearestLegalMeshes) {
  std::string error;
  EXPECT_EQ(explainMesh(*parseMeshShape("dps=2,tp=4", error), kDense),
            "tp=4 does not divide the 2 key heads of the delta rule; nearest "
            "meshes of as many ranks: pp=1,dpr=2,dps=2,cp=1,tp=2,ep=1; "
            "pp=1,dpr=1,dps=4,cp=1,tp=2,ep=1; pp=1,dpr=1,dps=2,cp=2,tp=2,ep=1");
  EXPECT_EQ(explainMesh(*parseMeshShape("dps=8", error), kDense), "");
  for (const MeshShape &shape : legalMeshes(8, kDense))
    EXPECT_EQ(checkMesh(shape, kDense), "") << printMeshShape(shape);
  EXPECT_EQ(legalMeshes(2, kDense).size(), 4u); // dpr, dps, cp, tp
}

} // namespace
} // namespace qwen35
