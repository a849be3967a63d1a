#ifndef QWEN35_TEST_GPU_DOOR_H
#define QWEN35_TEST_GPU_DOOR_H

// The black-box door of qwen35-run on bundles of the kit, and models whose
// weights a test has changed.

#include "test/gpu/Kit.h"
#include "test/support/Numeric.h"
#include "test/unit/e2e/E2e.h"

#include <functional>

namespace qwen35::test {

inline bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// One row of documents with a label for every token.
struct DocumentRow {
  std::vector<int64_t> ids, labels, cuSeqlens = {0};

  /// Random ids below `vocabulary`.
  explicit DocumentRow(const std::vector<int64_t> &lengths, uint64_t seed = 3,
                       int64_t vocabulary = 256) {
    Random random(seed);
    for (int64_t length : lengths) {
      for (int64_t t = 0; t < length; ++t)
        ids.push_back(random.below(vocabulary));
      cuSeqlens.push_back(static_cast<int64_t>(ids.size()));
    }
    labels = ids;
  }

  /// A document that nothing is trained on.
  void mask(int document) {
    std::fill(labels.begin() + cuSeqlens[document],
              labels.begin() + cuSeqlens[document + 1], -100);
  }
  /// Other tokens in a document.
  void change(int document, int64_t vocabulary = 256) {
    for (int64_t t = cuSeqlens[document]; t < cuSeqlens[document + 1]; ++t)
      ids[t] = (ids[t] + 1 + t % 7) % vocabulary;
  }
};

/// What the door left: the dump, and what it printed.
struct DoorResult {
  Safetensors dump;
  std::string output;

  double loss() const { return dump.reals("loss")[0]; }
};

/// One step on a row. `weights`: a model folder, or "" for --init 3. `more`:
/// flags after `--target cuda`, which they may replace.
inline DoorResult door(const KitBundle &bundle, const std::string &weights,
                       const DocumentRow &row, const std::string &more = "") {
  TempFolder folder;
  writeRow(folder / "batch", row.ids, row.labels, row.cuSeqlens);
  bool cpu = more.find("--target") != std::string::npos;
  std::string output =
      quiet(kit::tool("qwen35-run") + " " + bundle.path() +
            (weights.empty() ? " --init 3" : " --weights " + weights) +
            " --batch " + (folder / "batch") + " --dump " + (folder / "dump") +
            " --steps 1 " + (cpu ? "" : "--target cuda ") + more);
  return {Safetensors(folder / "dump"), output};
}

/// The same bits in every tensor for which `compared`; short when not.
inline void expectSameBits(
    const DoorResult &a, const DoorResult &b,
    const std::function<bool(const std::string &)> &compared =
        [](const std::string &) { return true; }) {
  int differ = 0, tensors = 0;
  std::string first;
  for (const std::string &name : a.dump.names()) {
    if (!compared(name))
      continue;
    ++tensors;
    ASSERT_TRUE(b.dump.has(name)) << name;
    auto x = a.dump.reals<float>(name), y = b.dump.reals<float>(name);
    ASSERT_EQ(x.size(), y.size()) << name;
    size_t elements = 0, at = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (std::memcmp(&x[i], &y[i], 4) != 0 && elements++ == 0)
        at = i;
    if (elements == 0)
      continue;
    if (differ++ == 0) {
      std::ostringstream text;
      text << name << ": " << elements << " of " << x.size()
           << " elements, the first at " << at << ", " << x[at] << " and "
           << y[at];
      first = text.str();
    }
  }
  EXPECT_GT(tensors, 10);
  EXPECT_EQ(differ, 0) << "tensors of " << tensors << " differ; " << first;
}

/// Loss within `lossBound`, every gradient within `bound` of its norm or, where
/// that is small, of 1/2048 of the norm of all gradients: a gradient whose
/// terms cancel (queries of documents of one token, gates behind a decay of 0)
/// is the rounding of its terms. At a bound of 5e-4 that is 2.4e-7 of all, two
/// to four roundings of float32. `neighbours`: results like `expected` of models
/// whose weights are a rounding apart. Where their gradients are further apart
/// than `bound`, that is what float32 can tell, and twice that is allowed.
inline void expectClose(const std::string &what, const DoorResult &actual,
                        const DoorResult &expected, double lossBound,
                        double bound,
                        const std::vector<DoorResult> &neighbours = {}) {
  double lossError = std::fabs(actual.loss() / expected.loss() - 1);
  EXPECT_LT(lossError, lossBound) << what;
  double worst = 0, all = 0;
  std::string name;
  int gradients = 0;
  for (const std::string &each : expected.dump.names())
    if (each.rfind("grad.", 0) == 0) {
      double size = norm(expected.dump.reals(each));
      all += size * size;
    }
  for (const std::string &each : expected.dump.names()) {
    if (each.rfind("grad.", 0) != 0)
      continue;
    ++gradients;
    double floor = std::sqrt(all) / 2048, apart = bound;
    for (const DoorResult &neighbour : neighbours)
      apart = std::max(apart, 2 * relativeError(neighbour.dump.reals(each),
                                                expected.dump.reals(each),
                                                floor));
    double error = relativeError(actual.dump.reals(each),
                                 expected.dump.reals(each), floor) *
                   bound / apart;
    if (!(error <= worst)) { // NaN too
      worst = error;
      name = each;
    }
  }
  EXPECT_GT(gradients, 10) << what;
  EXPECT_LT(worst, bound) << what << ": " << name;
  std::printf("parity: %s: loss %.1e off, worst gradient %.1e %s\n",
              what.c_str(), lossError, worst, name.c_str());
}

/// Every gradient is finite.
inline void expectFinite(const DoorResult &result) {
  for (const std::string &name : result.dump.names())
    EXPECT_TRUE(allFinite(result.dump.reals(name))) << name;
}

/// A golden model with other weights: `change` is given the name and the float
/// values of every tensor.
inline std::string changedModel(
    const TempFolder &folder, const std::string &golden,
    const std::function<void(const std::string &, std::vector<float> &)>
        &change) {
  std::string model = folder / golden;
  std::filesystem::create_directories(model);
  std::filesystem::copy_file(kit::golden(golden) + "/config.json",
                             model + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::vector<RawTensor> tensors =
      readTensors(kit::golden(golden) + "/model.safetensors");
  for (RawTensor &tensor : tensors) {
    std::vector<float> values(tensor.bytes.size() / 4);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    change(tensor.name, values);
    tensor.bytes = bytesOf(values);
  }
  writeTensors(model + "/model.safetensors", tensors);
  return model;
}

/// The model of a bundle with weights like those of the golden models: decays
/// from 0.02 to 16 over the heads, so that gradients of gates are no rounding
/// of zero, as they are where a fresh model forgets all at once.
inline std::string wideModel(const TempFolder &folder, const KitBundle &bundle,
                             uint64_t seed) {
  writeFile(folder / "text", sampleText());
  quiet(kit::tool("qwen35-run") + " " + bundle.path() +
        " --target cpu --init 1 --data " + (folder / "text") +
        " --steps 0 --no-save --out " + (folder / "export") + " --export-hf " +
        (folder / "wide"));
  std::vector<RawTensor> tensors =
      readTensors(folder / "wide/model.safetensors");
  Random random(seed);
  for (RawTensor &tensor : tensors) {
    int64_t elements = 1, rank = static_cast<int64_t>(tensor.shape.size());
    for (int64_t size : tensor.shape)
      elements *= size;
    double deviation = 1 / std::sqrt(double(tensor.shape.back())), mean = 0;
    if (contains(tensor.name, "embed_tokens"))
      deviation = 1;
    else if (contains(tensor.name, "conv1d"))
      deviation = 0.4;
    else if (contains(tensor.name, "dt_bias"))
      mean = -1, deviation = 0.5;
    else if (rank == 1)
      mean = contains(tensor.name, "linear_attn.norm") ? 1 : 0, deviation = 0.2;
    auto values = random.normals<float>(elements, deviation);
    for (int64_t i = 0; i < elements; ++i)
      values[i] = contains(tensor.name, "A_log")
                      ? std::log(0.02 * std::pow(800, i / (elements - 1.0)))
                      : values[i] + mean;
    tensor.dtype = "F32";
    tensor.bytes = bytesOf(values);
  }
  writeTensors(folder / "wide/model.safetensors", tensors);
  return folder / "wide";
}

} // namespace qwen35::test

#endif // QWEN35_TEST_GPU_DOOR_H
