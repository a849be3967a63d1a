// Training with rows in stripes over the ranks of cp, from outside, against
// runs of one rank; cases of CASES.md.

#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

#include <cmath>

namespace qwen35 {
namespace {

using namespace test;

std::string shortly(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

class StripedRanksTest : public testing::Test {
protected:
  StripedRanksTest() { writeFile(folder / "text", sampleText()); }

  static std::string bundle(const std::string &model, const std::string &mesh) {
    return bundleOf(model + (mesh.empty() ? "" : " --mesh " + mesh));
  }

  std::string train(const std::string &bundle, const std::string &name,
                    int steps, const std::string &more = "") {
    return tool("qwen35-run") + " " + bundle + " --data " + (folder / "text") +
           " --steps " + std::to_string(steps) +
           " --set train.steps=20 --threads 1 --out " + (folder / name) + " " +
           more;
  }

  std::vector<double> losses(const std::string &name) {
    std::istringstream lines(readFile(folder / (name + "/metrics.jsonl")));
    std::vector<double> result;
    for (std::string line; std::getline(lines, line);)
      result.push_back(nlohmann::json::parse(line)["loss"].get<double>());
    return result;
  }

  void expectSameLosses(const std::string &name, const std::string &other) {
    std::vector<double> a = losses(name), b = losses(other);
    ASSERT_EQ(a.size(), 20u) << name;
    ASSERT_EQ(b.size(), 20u) << other;
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
      worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
    EXPECT_LE(worst, 1e-5) << name << " against " << other;
    RecordProperty("loss_" + name, shortly(worst));
  }

  /// A row whose documents begin around the borders of stripes, or two rows of
  /// one each.
  std::string batch(int64_t rows) {
    std::vector<int64_t> ids, labels;
    for (int64_t i = 0; i < rows * 64; ++i) {
      ids.push_back(i * 37 % 251);
      labels.push_back(i % 7 == 3 ? -100 : ids.back());
    }
    std::string path = folder / (std::to_string(rows) + ".safetensors");
    if (rows == 1)
      writeRow(path, ids, labels, {0, 16, 31, 49, 64});
    else
      writeTensors(path, {{"input_ids", "I64", {rows, 64}, bytesOf(ids)},
                          {"labels", "I64", {rows, 64}, bytesOf(labels)}});
    return path;
  }

  /// Gradients, new weights and loss of a step.
  std::string dump(const std::string &bundle, const std::string &name,
                   int64_t rows, const std::string &more = "") {
    std::string path = folder / (name + ".safetensors");
    quiet(tool("qwen35-run") + " " + bundle + " --init 7 --threads 1 --batch " +
          batch(rows) + " --dump " + path + " " + more);
    return path;
  }

  /// The worst relative distance of the gradients of two dumps over the norm of
  /// each, or 1/250 of the norm of all where that is larger: sums of
  /// decays that cancel have no more digits in float32.
  static double worstGradient(const std::string &path,
                              const std::string &other) {
    Safetensors a(path), b(other);
    EXPECT_EQ(a.names(), b.names());
    std::vector<std::pair<double, double>> distances; // and norms
    double all = 0;
    for (const std::string &tensor : b.names()) {
      if (tensor.rfind("grad.", 0) != 0)
        continue;
      auto x = a.reals<float>(tensor), y = b.reals<float>(tensor);
      EXPECT_EQ(x.size(), y.size()) << tensor;
      double distance = 0, norm = 0;
      for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        distance += (double(x[i]) - y[i]) * (double(x[i]) - y[i]);
        norm += double(y[i]) * y[i];
      }
      all += norm;
      distances.push_back({std::sqrt(distance), std::sqrt(norm)});
    }
    EXPECT_FALSE(distances.empty());
    double worst = 0;
    for (auto [distance, norm] : distances) {
      double off = distance / std::max(norm, 4e-3 * std::sqrt(all));
      if (!(off <= worst))
        worst = off;
    }
    return worst;
  }

  std::string exported(const std::string &name) {
    return readFile(folder / (name + "/model.safetensors"));
  }

  TempFolder folder;
};

const std::string kDense = "debug --tokens 64 --max-docs 4 "
                           "--set train.rows=2 --set optim.lr=1e-3";
const std::string kExperts = "debug-moe --tokens 64 --max-docs 4 --set "
                             "train.rows=2 --set optim.lr=1e-3";

TEST_F(StripedRanksTest, VirtualRanksEqualOneRank) {
  struct Case {
    std::string model, mesh, ranks;
    int64_t rows = 1; // of the dumped batch
  };
  for (const Case &c :
       {Case{kDense, "cp=2", "2"}, Case{kDense, "cp=2,tp=2", "4"},
        Case{kExperts, "dps=2,cp=4,ep=4", "8", 2}}) {
    SCOPED_TRACE(c.mesh);
    std::string one = c.model == kDense ? "dense" : "experts";
    if (!std::filesystem::exists(folder / one)) {
      quiet(train(bundle(c.model, ""), one, 20, "--init 7"));
      dump(bundle(c.model, ""), one, c.rows);
    }
    std::string several = bundle(c.model, c.mesh);
    std::string more = "--virtual-ranks " + c.ranks;
    quiet(tool("qwen35-verify") + " " + several);
    quiet(train(several, c.mesh, 20, "--init 7 " + more));
    expectSameLosses(c.mesh, one);
    double worst = worstGradient(dump(several, c.mesh, c.rows, more),
                                 folder / (one + ".safetensors"));
    EXPECT_LE(worst, 1e-5);
    RecordProperty("dump_" + c.mesh, shortly(worst));
  }
}

TEST_F(StripedRanksTest, A06JoinedProjectionsComeBackAsTheyWere) {
  quiet(train(bundle(kDense, ""), "one", 3,
              "--init 7 --export-hf " + (folder / "hf")));
  quiet(tool("qwen35-run") + " " + bundle(kDense, "cp=2,tp=2") +
        " --virtual-ranks 4 --threads 1 --weights " + (folder / "hf") +
        " --steps 0 --out " + (folder / "load") + " --export-hf " +
        (folder / "again"));
  ASSERT_FALSE(exported("hf").empty());
  EXPECT_EQ(exported("hf"), exported("again"));
}

TEST_F(StripedRanksTest, A30ThreeRanksResumeToTheSameBits) {
  // 256 ids over three ranks, which also share the moments.
  std::string three =
      bundle("debug --tokens 96 --max-docs 4 --set train.rows=2", "cp=3");
  std::string common =
      "--init 7 --virtual-ranks 3 --set schedule.kind=constant "
      "--resume auto ";
  auto exporting = [&](const std::string &name) {
    return common + "--export-hf " + (folder / (name + "-hf"));
  };
  quiet(train(three, "straight", 20, exporting("straight")));
  quiet(train(three, "twice", 10, common));
  std::string output = quiet(train(three, "twice", 20, exporting("twice")));
  EXPECT_NE(output.find("resume  step 10 of 20"), std::string::npos) << output;
  EXPECT_EQ(losses("straight"), losses("twice"));
  EXPECT_EQ(exported("straight-hf"), exported("twice-hf"));
}

} // namespace
} // namespace qwen35
