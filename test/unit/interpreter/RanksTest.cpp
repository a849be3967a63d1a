#include "dialect/Interpreter/Ranks.h"
#include "test/unit/interpreter/ModuleTest.h"

using namespace mlir;
using qwen35::interpreter::Options;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

/// Ranks are numbered by dps, then cp, then tp.
struct RanksTest : ModuleTest {
  RanksTest() { context.loadDialect<qdist::QDistDialect>(); }

  void parseS3(const std::string &mesh, const std::string &body) {
    parse("module attributes {qdist.mesh = #qdist.mesh<" + mesh + ">} {\n" +
          body + "\n}");
  }

  /// Runs @f with one argument per rank; the first result of every rank.
  std::vector<std::vector<double>> each(std::vector<Tensor> inputs,
                                        const Options &options = {}) {
    SmallVector<SmallVector<Tensor>> lists;
    for (Tensor &input : inputs)
      lists.push_back({input});
    auto results = interpreter::interpretRanks(function(), lists, options);
    std::vector<std::vector<double>> all;
    if (failed(results)) {
      ADD_FAILURE() << error;
      return all;
    }
    for (auto &list : *results)
      std::visit(
          [&](const auto &elements) {
            all.emplace_back(elements.begin(), elements.end());
          },
          list[0].elements);
    return all;
  }
};

Tensor matrix(int64_t rows, int64_t columns, std::vector<double> elements) {
  return {{rows, columns}, std::move(elements)};
}
Tensor ints(std::vector<int32_t> elements) {
  return {{static_cast<int64_t>(elements.size())}, std::move(elements)};
}

using Rows = std::vector<std::vector<double>>;

TEST_F(RanksTest, AllGatherJoinsInOrderOfCoordinates) {
  parseS3("tp = 3", R"(func.func @f(%x: tensor<1x2xf32>) -> tensor<3x2xf32> {
    %y = qdist.all_gather %x over ["tp"] <{dim = 0}> : (tensor<1x2xf32>) -> tensor<3x2xf32>
    return %y : tensor<3x2xf32>
  })");
  std::vector<double> all = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(each({matrix(1, 2, {1, 2}), matrix(1, 2, {3, 4}),
                  matrix(1, 2, {5, 6})}),
            (Rows{all, all, all}));
}

// Along an inner dimension pieces interleave, and only within the group.
TEST_F(RanksTest, AllGatherAlongAnInnerDimensionOfOneAxis) {
  parseS3("dps = 2, tp = 2",
          R"(func.func @f(%x: tensor<2x1xf32>) -> tensor<2x2xf32> {
    %y = qdist.all_gather %x over ["dps"] <{dim = 1}> : (tensor<2x1xf32>) -> tensor<2x2xf32>
    return %y : tensor<2x2xf32>
  })");
  EXPECT_EQ(each({matrix(2, 1, {1, 2}), matrix(2, 1, {3, 4}),
                  matrix(2, 1, {5, 6}), matrix(2, 1, {7, 8})}),
            (Rows{{1, 5, 2, 6}, {3, 7, 4, 8}, {1, 5, 2, 6}, {3, 7, 4, 8}}));
}

TEST_F(RanksTest, AllReduceAddsOrTakesTheLargest) {
  for (bool isMax : {false, true}) {
    parseS3("dps = 2, tp = 2",
            std::string("func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
                        "%y = qdist.all_reduce %x over [\"tp\"] <{kind = \"") +
                (isMax ? "max" : "sum") +
                "\"}> : (tensor<2xf32>) -> tensor<2xf32>\n"
                "return %y : tensor<2xf32>}");
    EXPECT_EQ(each({{{2}, std::vector<double>{1, -1}},
                    {{2}, std::vector<double>{3, -4}},
                    {{2}, std::vector<double>{5, 6}},
                    {{2}, std::vector<double>{0, 7}}}),
              (isMax ? Rows{{3, -1}, {3, -1}, {5, 7}, {5, 7}}
                     : Rows{{4, -5}, {4, -5}, {5, 13}, {5, 13}}));
  }
}

// In f32, 1 + 2^-9 does not survive a wire of bf16; in f64 nothing is rounded.
TEST_F(RanksTest, AWireOfBf16RoundsWhatIsSent) {
  parseS3("tp = 2", R"(func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> {
    %y = qdist.all_reduce %x over ["tp"] <{wire = #qdist.wire<type = bf16, acc = f32>}> : (tensor<1xf32>) -> tensor<1xf32>
    return %y : tensor<1xf32>
  })");
  std::vector<Tensor> x(2, Tensor{{1}, std::vector<double>{1 + 0x1p-9}});
  EXPECT_EQ(each(x, {.fp64 = false}), (Rows{{2}, {2}}));
  EXPECT_EQ(each(x), (Rows{{2 + 0x1p-8}, {2 + 0x1p-8}}));
}

// Partial sums of bf16 values are rounded once, after they were added.
TEST_F(RanksTest, SumsOfBf16AreRoundedOnce) {
  parseS3("tp = 3", R"(func.func @f(%x: tensor<1xbf16>) -> tensor<1xbf16> {
    %y = qdist.all_reduce %x over ["tp"] : (tensor<1xbf16>) -> tensor<1xbf16>
    return %y : tensor<1xbf16>
  })");
  // 1 + 2^-8 + 2^-8: rounding after each addition would stay at 1.
  EXPECT_EQ(each({{{1}, std::vector<double>{1}},
                  {{1}, std::vector<double>{0x1p-8}},
                  {{1}, std::vector<double>{0x1p-8}}},
                 {.fp64 = false})[0],
            (std::vector<double>{1 + 0x1p-7}));
}

TEST_F(RanksTest, ReduceScatterKeepsThePieceOfTheSum) {
  parseS3("tp = 2", R"(func.func @f(%x: tensor<2x2xf32>) -> tensor<2x1xf32> {
    %y = qdist.reduce_scatter %x over ["tp"] <{dim = 1}> : (tensor<2x2xf32>) -> tensor<2x1xf32>
    return %y : tensor<2x1xf32>
  })");
  EXPECT_EQ(each({matrix(2, 2, {1, 2, 3, 4}), matrix(2, 2, {10, 20, 30, 40})}),
            (Rows{{11, 33}, {22, 44}}));
}

TEST_F(RanksTest, AllToAllMovesTheSplit) {
  parseS3("cp = 2", R"(func.func @f(%x: tensor<1x4xf32>) -> tensor<2x2xf32> {
    %y = qdist.all_to_all %x over ["cp"] <{split_dim = 1, concat_dim = 0}> : (tensor<1x4xf32>) -> tensor<2x2xf32>
    return %y : tensor<2x2xf32>
  })");
  EXPECT_EQ(each({matrix(1, 4, {1, 2, 3, 4}), matrix(1, 4, {5, 6, 7, 8})}),
            (Rows{{1, 2, 5, 6}, {3, 4, 7, 8}}));
}

TEST_F(RanksTest, AllSliceSendsNothing) {
  parseS3("cp = 2, tp = 2",
          R"(func.func @f(%x: tensor<4xi32>) -> tensor<1xi32> {
    %y = qdist.all_slice %x over ["cp", "tp"] <{dim = 0}> : (tensor<4xi32>) -> tensor<1xi32>
    return %y : tensor<1xi32>
  })");
  EXPECT_EQ(each(std::vector<Tensor>(4, ints({5, 6, 7, 8}))),
            (Rows{{5}, {6}, {7}, {8}}));
}

TEST_F(RanksTest, ShiftDoesNotWrapAround) {
  for (int offset : {1, -1, 2}) {
    parseS3("cp = 3", "func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> {\n"
                      "%y = qdist.shift %x over [\"cp\"] <{offset = " +
                          std::to_string(offset) +
                          "}> : (tensor<1xf32>) -> tensor<1xf32>\n"
                          "return %y : tensor<1xf32>}");
    Rows expected = offset == 1    ? Rows{{0}, {1}, {2}}
                    : offset == -1 ? Rows{{2}, {3}, {0}}
                                   : Rows{{0}, {0}, {1}};
    EXPECT_EQ(each({{{1}, std::vector<double>{1}},
                    {{1}, std::vector<double>{2}},
                    {{1}, std::vector<double>{3}}}),
              expected);
  }
}

TEST_F(RanksTest, SeveralInputsAreSeveralCollectives) {
  parseS3("tp = 2", R"(func.func @f(%x: tensor<1xf32>) -> tensor<2xf32> {
    %d = qwen35.add %x, %x : tensor<1xf32>, tensor<1xf32>
    %y:2 = qdist.all_gather %x, %d over ["tp"] <{dim = 0}> : (tensor<1xf32>, tensor<1xf32>) -> (tensor<2xf32>, tensor<2xf32>)
    return %y#1 : tensor<2xf32>
  })");
  EXPECT_EQ(each({{{1}, std::vector<double>{1}}, {{1}, std::vector<double>{2}}}),
            (Rows{{2, 4}, {2, 4}}));
}

TEST_F(RanksTest, RanksKnowTheirCoordinate) {
  parseS3("dps = 2, tp = 2",
          R"(func.func @f(%x: tensor<1xf32>) -> (tensor<i32>) {
    %c = qdist.rank_var over ["dps"] : tensor<i32>
    return %c : tensor<i32>
  })");
  EXPECT_EQ(each(std::vector<Tensor>(4, {{1}, std::vector<double>{0}})),
            (Rows{{0}, {0}, {1}, {1}}));
}

// -100 is a label that means nothing; it stays what it is.
TEST_F(RanksTest, LocalIdsCountFromTheFirstRowOfTheRank) {
  parseS3("tp = 2", R"(func.func @f(%x: tensor<5xi32>) -> tensor<5xi32> {
    %y = qdist.local_ids %x over ["tp"] <{size = 4}> : tensor<5xi32>
    return %y : tensor<5xi32>
  })");
  EXPECT_EQ(each(std::vector<Tensor>(2, ints({0, 3, 4, 7, -100}))),
            (Rows{{0, 3, -1, -1, -100}, {-1, -1, 0, 3, -100}}));
  SmallVector<SmallVector<Tensor>> bad(2, {ints({0, 8, 0, 0, 0})});
  EXPECT_TRUE(failed(interpreter::interpretRanks(function(), bad)));
  EXPECT_EQ(error, "interpreting 'qdist.local_ids': id 8 at 1 on rank 0, "
                   "expected less than 8");
}

TEST_F(RanksTest, RefusesWhatDoesNotFitTheMesh) {
  parseS3("tp = 2", R"(func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> {
    %y = qdist.all_reduce %x over ["tp"] : (tensor<1xf32>) -> tensor<1xf32>
    return %y : tensor<1xf32>
  })");
  Tensor one{{1}, std::vector<double>{1}}, two{{2}, std::vector<double>{1, 2}};
  EXPECT_TRUE(failed(run({one})));
  EXPECT_EQ(error, "interpreting 'qdist.all_reduce': no evaluator; it takes "
                   "all ranks of the mesh, interpret the function of stage S3 "
                   "on them");
  EXPECT_TRUE(failed(interpreter::interpretRanks(function(), {{one}})));
  EXPECT_EQ(error,
            "interpreting @f: got arguments for 1 ranks, expected 2");
  EXPECT_TRUE(failed(interpreter::interpretRanks(function(), {{one}, {two}})));
  EXPECT_EQ(error, "interpreting @f on rank 1: argument 0: got [2] of double, "
                   "expected 'tensor<1xf32>'");
  parse("func.func @f() { return }");
  EXPECT_TRUE(failed(interpreter::interpretRanks(function(), {{}})));
  EXPECT_EQ(error, "interpreting @f: its module has no 'qdist.mesh'");
}

// Three sections over two ranks, and partial over the axis that is left.
TEST_F(RanksTest, AssembleUndoesLocalPart) {
  std::string why;
  MeshShape shape{.dps = 2, .tp = 2};
  Mesh mesh = *Mesh::make(shape, why);
  qdist::Sharding sharding(2);
  sharding.dims[0] = *mesh.axes("tp");
  sharding.setSections(0, {2, 4});
  Tensor whole = matrix(6, 1, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(doubles(interpreter::localPart(whole, sharding, mesh, 2)),
            (std::vector<double>{1, 3, 4}));
  EXPECT_EQ(doubles(interpreter::localPart(whole, sharding, mesh, 3)),
            (std::vector<double>{2, 5, 6}));
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < 4; ++rank)
    parts.push_back(interpreter::localPart(whole, sharding, mesh, rank));
  auto same = interpreter::assemble(parts, sharding, mesh);
  EXPECT_EQ(doubles(same.value), doubles(whole));
  EXPECT_EQ(same.spread, 0);
  std::get<std::vector<double>>(parts[3].elements)[0] += 0.5;
  EXPECT_EQ(interpreter::assemble(parts, sharding, mesh).spread, 0.5);
  sharding.partial = *mesh.axes("dps");
  EXPECT_EQ(doubles(interpreter::assemble(parts, sharding, mesh).value),
            (std::vector<double>{2, 4.5, 6, 8, 10, 12}));
}

} // namespace
} // namespace qwen35::test
