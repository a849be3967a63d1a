// Cases of the field (CASES.md) on the compiled step on a GPU, from outside.
// Where numbers are compared it is with the CPU plan of the same bundle in
// float32, which test/unit/e2e holds to the reference in float64; bf16 has
// bounds of its own. A10 has no trial from outside, since a bundle's views are
// what the compiler made them: its trial is the kernel's, recorded by
// test/unit/cuda (CausalConvBwd) and run by qwen35_gpu_kernels. A12 is among
// the bad inputs of RunTest.cpp.

#include "runtime/data/permutation.h"
#include "test/gpu/Door.h"

#include <nlohmann/json.hpp>

namespace qwen35 {
namespace {

using namespace test;

constexpr const char *kBase =
    " --set optim.lr=1e-3 --set schedule.kind=constant --max-docs 4";

std::string fp32(const std::string &more) {
  return "--target cpu,TARGET --set compute.dtype=fp32" + more + kBase;
}
std::string bf16(const std::string &more) {
  return "--set compute.dtype=bf16" + more + kBase;
}

// Rows of 303: no multiple of a chunk, a tile or a vector.
const KitBundle kDense32("dense", fp32(" --tokens 303"));
const KitBundle kDense16("dense", bf16(" --tokens 303"));
const KitBundle kMoe32("moe", fp32(" --tokens 303 --set loss.aux=pooled --set "
                                   "loss.aux_coef=0.01"));
const KitBundle kMoe16("moe", bf16(" --tokens 303"));
const KitBundle kHeads64("heads64", fp32(" --tokens 1024"));
const KitBundle kHeads64Bf16("heads64", bf16(" --tokens 1024"));
const KitBundle kHeads128("heads128", fp32(" --tokens 1024"));
const KitBundle kHeads128Bf16("heads128", bf16(" --tokens 1024"));
const KitBundle kExperts("experts256", bf16(" --tokens 8"));
const KitBundle kVocabulary("vocabulary", fp32(" --tokens 1024"));
// 12,288 channels of the convolution: 3.2e9 elements, 6.4 GB of bf16.
const KitBundle kLong("wide", "--set compute.dtype=bf16 --tokens 262144 "
                              "--max-docs 128");
const KitBundle kShort("wide", "--set compute.dtype=bf16 --tokens 2048 "
                               "--max-docs 1");
const KitBundle kText32("real_heads", fp32(" --tokens 300"));
const KitBundle kText16("real_heads", bf16(" --tokens 300"));

const std::string kCpu = "--target cpu";

bool notExperts(const std::string &name) {
  return !contains(name, ".experts.") && !contains(name, "grad_norm") &&
         !contains(name, "param.");
}

// The first document carries no labels, so whatever its tokens are, loss,
// gradients and update keep their bits. The decay of golden models goes down to
// 0.02 a token, slow enough to show a leak.
TEST(GpuCases, A02OtherDocumentsDoNotMoveByABit) {
  for (const KitBundle *bundle : {&kDense32, &kDense16}) {
    SCOPED_TRACE(bundle->arguments);
    DocumentRow row({5, 64, 130, 104});
    row.mask(0);
    DoorResult before = door(*bundle, kit::golden("dense"), row);
    row.change(0);
    expectSameBits(before, door(*bundle, kit::golden("dense"), row));
  }
}

TEST(GpuCases, A02NeitherBeforeNorAfterTheDocument) {
  DocumentRow row({70, 64, 1, 100}, 8);
  row.mask(1);
  DoorResult before = door(kDense16, kit::golden("dense"), row);
  row.change(1);
  expectSameBits(before, door(kDense16, kit::golden("dense"), row));
  // The test can fail: with labels of its own the document is felt.
  row.labels = row.ids;
  EXPECT_NE(before.loss(), door(kDense16, kit::golden("dense"), row).loss());
}

// Experts see their tokens in another order when another document is routed
// elsewhere, so the sums of their weight gradients are rounded elsewhere;
// nothing else moves by a bit.
TEST(GpuCases, A02RoutedDocumentsDoNotMove) {
  DocumentRow row({5, 64, 130, 104});
  row.mask(0);
  DoorResult before = door(kMoe16, kit::golden("moe"), row);
  row.change(0);
  DoorResult after = door(kMoe16, kit::golden("moe"), row);
  expectSameBits(before, after, notExperts);
  for (const std::string &name : before.dump.names())
    if (contains(name, "grad.") && contains(name, ".experts."))
      EXPECT_LT(relativeError(after.dump.reals(name), before.dump.reals(name)),
                1e-5)
          << name;
}

// Documents in one row against one row each, document of one token included.
TEST(GpuCases, A01PackedEqualsAlone) {
  DocumentRow row({37, 51, 1, 140}, 4);
  DoorResult whole = door(kDense32, kit::golden("dense"), row);
  std::map<std::string, std::vector<double>> sums;
  double loss = 0;
  for (int d : {0, 1, 3}) {
    DocumentRow one({1});
    one.ids.assign(row.ids.begin() + row.cuSeqlens[d],
                   row.ids.begin() + row.cuSeqlens[d + 1]);
    one.labels = one.ids;
    one.cuSeqlens = {0, static_cast<int64_t>(one.ids.size())};
    DoorResult alone = door(kDense32, kit::golden("dense"), one);
    double share = (one.ids.size() - 1) / 225.0; // of the targets
    loss += alone.loss() * share;
    for (const std::string &name : alone.dump.names())
      if (name.rfind("grad.", 0) == 0) {
        auto values = alone.dump.reals(name);
        auto &sum = sums[name];
        sum.resize(values.size());
        for (size_t i = 0; i < values.size(); ++i)
          sum[i] += values[i] * share;
      }
  }
  EXPECT_NEAR(whole.loss(), loss, 1e-6 * loss);
  ASSERT_GT(sums.size(), 40u);
  for (auto &[name, values] : sums)
    EXPECT_LT(relativeError(whole.dump.reals(name), values, 1e-9), 1e-4)
        << name;
}

// In the same place of the row, packed and alone are the same bits.
TEST(GpuCases, A01PackedEqualsAloneExactlyInTheSamePlace) {
  for (auto [bundle, model] :
       {std::pair(&kDense16, "dense"), std::pair(&kMoe16, "moe")}) {
    SCOPED_TRACE(model);
    DocumentRow packed({51, 37, 1, 140}, 9);
    for (int d : {1, 2, 3})
      packed.mask(d);
    DocumentRow alone({51}, 9);
    expectSameBits(door(*bundle, kit::golden(model), packed),
                   door(*bundle, kit::golden(model), alone), notExperts);
  }
}

// Gradients of decay and strength for the head sizes that have kernels; others
// are refused by qwen35c (100: "expected a multiple of 16 up to 128"). With
// such weights float32 is 9e-6 off float64 (CPU, these kernels and the
// reference alike), the reference in bf16 2.4e-2.
TEST(GpuCases, A07GradientsForEveryHeadSize) {
  for (auto [size, full, half] :
       {std::tuple(64, &kHeads64, &kHeads64Bf16),
        std::tuple(128, &kHeads128, &kHeads128Bf16)}) {
    TempFolder folder;
    std::string model = wideModel(folder, *full, 7);
    DocumentRow row({700, 324}, 7);
    DoorResult cpu = door(*full, model, row, kCpu);
    std::string heads = "heads of " + std::to_string(size);
    expectClose(heads + " fp32", door(*full, model, row), cpu, 1e-5, 1e-4);
    expectClose(heads + " bf16", door(*half, model, row), cpu, 2e-3, 5e-2);
  }
}

// Lengths around chunks and tiles, on memory that is NaN wherever nobody wrote.
TEST(GpuCases, A08TailsNeverReadThePadding) {
  for (const std::vector<int64_t> &lengths : std::vector<std::vector<int64_t>>{
           {1, 2, 191}, {15, 16, 17, 127}, {65, 63, 64}, {129}, {1, 1, 1, 2}}) {
    std::string what = "documents of";
    for (int64_t length : lengths)
      what += " " + std::to_string(length);
    DocumentRow row(lengths, 8);
    expectClose(what, door(kDense32, kit::golden("dense"), row, "--poison"),
                door(kDense32, kit::golden("dense"), row, kCpu), 1e-5, 5e-4);
    for (auto [bundle, model] :
         {std::pair(&kDense16, "dense"), std::pair(&kMoe16, "moe")}) {
      DoorResult poisoned = door(*bundle, kit::golden(model), row, "--poison");
      expectFinite(poisoned);
      expectSameBits(poisoned, door(*bundle, kit::golden(model), row));
    }
  }
}

/// A step of the dense golden model after `change` of its decay: equal to the
/// CPU in float32, finite in bf16 and close in loss.
void expectStepOf(const std::string &what, const DocumentRow &row,
                  const std::function<void(const std::string &,
                                           std::vector<float> &)> &change,
                  int neighbours = 0) {
  TempFolder folder;
  std::string model = changedModel(folder, "dense", change);
  DoorResult cpu = door(kDense32, model, row, kCpu);
  expectFinite(cpu);
  std::vector<DoorResult> near;
  for (int i = 0; i < neighbours; ++i) {
    TempFolder other;
    Random random(i + 1);
    std::string neighbour =
        changedModel(other, "dense",
                     [&](const std::string &name, std::vector<float> &values) {
                       change(name, values);
                       for (float &value : values)
                         value *= static_cast<float>(
                             1 + 0x1p-23 * (2 * random.uniform() - 1));
                     });
    near.push_back(door(kDense32, neighbour, row, kCpu));
  }
  expectClose(what, door(kDense32, model, row), cpu, 1e-5, 5e-4, near);
  DoorResult half = door(kDense16, model, row);
  expectFinite(half);
  EXPECT_NEAR(half.loss(), cpu.loss(), 5e-3 * cpu.loss());
}

void fill(std::vector<float> &values, double value) {
  std::fill(values.begin(), values.end(), static_cast<float>(value));
}

TEST(GpuCases, A09GradientsWithoutDecay) {
  expectStepOf("no decay", DocumentRow({100, 29, 170}),
               [](const std::string &name, std::vector<float> &values) {
                 if (contains(name, "A_log"))
                   fill(values, -100); // exp is below every float
               });
}

TEST(GpuCases, A11ExtremeDecayStaysFiniteAndExact) {
  DocumentRow row({128, 65, 110}, 11);
  expectStepOf("decay of 1e-12 everywhere", row,
               [](const std::string &name, std::vector<float> &values) {
                 if (contains(name, "A_log"))
                   fill(values, std::log(27.631 / 5.0067));
                 else if (contains(name, "dt_bias"))
                   fill(values, 5);
                 else if (contains(name, "in_proj_a"))
                   fill(values, 0);
               });
  // exp(A) * softplus(a) is about 0 or about 30 and more, as the tokens fall:
  // a rounding of the weights moves gradients of A_log by up to 5e-3.
  expectStepOf(
      "decay of nothing or all", row,
      [](const std::string &name, std::vector<float> &values) {
        if (contains(name, "in_proj_a"))
          for (float &value : values)
            value *= 100;
      },
      6);
  // One id alone points along the first column, which alone means decay.
  for (int64_t t = 0; t < 303; ++t)
    row.ids[t] = row.ids[t] % 255;
  row.ids[40] = row.ids[128 + 40] = 255;
  row.labels = row.ids;
  expectStepOf("decay at one token", row,
               [](const std::string &name, std::vector<float> &values) {
                 if (contains(name, "embed_tokens"))
                   for (size_t i = 0; i < values.size(); ++i) {
                     if (i % 64 == 0)
                       values[i] = 0;
                     if (i / 64 == 255)
                       values[i] = i % 64 == 0 ? 4 : 0.01f;
                   }
                 else if (contains(name, "A_log"))
                   fill(values, 0);
                 else if (contains(name, "dt_bias"))
                   fill(values, -20);
                 else if (contains(name, "in_proj_a")) {
                   bool first = contains(name, "layers.0.");
                   for (size_t i = 0; i < values.size(); ++i)
                     values[i] = first && i % 64 == 0 ? 8 : 0;
                 }
               });
}

// Offsets beyond 2^31 elements: a document at the start, in the middle or at
// the end of a row of 262,144 tokens is what it is alone.
TEST(GpuCases, A13OffsetsOfMoreThan32Bits) {
  if (kit::emulated())
    GTEST_SKIP() << "needs 55 GB and a GPU";
  std::vector<DocumentRow> documents;
  DocumentRow row({});
  for (int i = 0; i < 128; ++i) {
    documents.push_back(DocumentRow({2048}, 100 + i));
    const std::vector<int64_t> &ids = documents.back().ids;
    row.ids.insert(row.ids.end(), ids.begin(), ids.end());
    row.cuSeqlens.push_back(static_cast<int64_t>(row.ids.size()));
  }
  for (int document : {0, 64, 127}) {
    row.labels = row.ids;
    for (int other = 0; other < 128; ++other)
      if (other != document)
        row.mask(other);
    expectClose("document " + std::to_string(document) + " of 262,144 tokens",
                door(kLong, "", row), door(kShort, "", documents[document]),
                1e-5, 2e-2); // cuBLASLt rounds other sums at other sizes
  }
}

// Decay of 0.03 a token over hundreds of tokens, and a change of A_log by an
// eighth of what bf16 can tell: a bf16 step must feel it.
TEST(GpuCases, A15DecayIsNotRounded) {
  double losses[2];
  for (int i = 0; i < 2; ++i) {
    TempFolder folder;
    std::string model = changedModel(
        folder, "dense", [&](const std::string &name, std::vector<float> &v) {
          if (contains(name, "A_log"))
            for (size_t h = 0; h < v.size(); ++h)
              v[h] = static_cast<float>(std::log(0.03 + h * 1e-4) *
                                        (1 + i * 0x1p-11));
        });
    DocumentRow row({303}, 15);
    losses[i] = door(kDense16, model, row).loss();
    if (i == 0)
      expectClose("slow decay", door(kDense32, model, row),
                  door(kDense32, model, row, kCpu), 1e-5, 5e-4);
  }
  EXPECT_NE(losses[0], losses[1]);
}

// A head whose query and key are exactly zero: the norm's gradient is that of
// its epsilon.
TEST(GpuCases, A16ZeroQueriesAndKeys) {
  TempFolder folder;
  std::string model = changedModel(
      folder, "dense", [](const std::string &name, std::vector<float> &v) {
        if (contains(name, "conv1d")) // head 0 of q, head 1 of k
          for (int64_t channel = 0; channel < 64; ++channel)
            if (channel < 16 || channel >= 48)
              std::fill_n(&v[channel * 4], 4, 0.0f);
      });
  DocumentRow row({100, 203}, 16);
  DoorResult cpu = door(kDense32, model, row, kCpu);
  expectClose("zero queries and keys", door(kDense32, model, row), cpu, 1e-5,
              5e-4);
  expectFinite(door(kDense16, model, row));
}

// A16, A17: what a row does not fill is not felt by loss, balance loss, counts.
TEST(GpuCases, A16PaddingIsNotFelt) {
  DocumentRow row({32}, 5);
  expectClose("32 tokens and 271 of padding",
              door(kMoe32, kit::golden("moe"), row),
              door(kMoe32, kit::golden("moe"), row, kCpu), 1e-5, 5e-4);
  // The 32 tokens among masked documents, which are not padding, are felt by
  // the balance loss: the test can fail.
  DoorResult alone = door(kMoe32, kit::golden("moe"), row);
  DocumentRow more({32, 100}, 5);
  more.mask(1);
  EXPECT_NE(alone.dump.reals("aux_loss")[0],
            door(kMoe32, kit::golden("moe"), more).dump.reals("aux_loss")[0]);
}

// 256 experts and 8 tokens on memory full of NaN: at most 16 experts of a layer
// have a gradient, that of the others is exactly zero.
TEST(GpuCases, A18ExpertsWithoutTokensHaveZeroGradients) {
  DoorResult result = door(kExperts, "", DocumentRow({8}, 10), "--poison");
  EXPECT_TRUE(std::isfinite(result.dump.reals("grad_norm")[0]));
  int stacks = 0;
  for (const std::string &name : result.dump.names()) {
    if (name.rfind("grad.", 0) != 0 || !contains(name, ".experts."))
      continue;
    ++stacks;
    auto values = result.dump.reals(name);
    ASSERT_TRUE(allFinite(values)) << name;
    size_t size = values.size() / 256;
    int used = 0;
    for (int e = 0; e < 256; ++e)
      used += std::any_of(values.begin() + e * size,
                          values.begin() + (e + 1) * size,
                          [](double value) { return value != 0; });
    EXPECT_GE(used, 2) << name;
    EXPECT_LE(used, 16) << name;
  }
  EXPECT_EQ(stacks, 4);
}

// Logits far from uniform: the balance loss is that of one softmax (the CPU's,
// which test/unit/reference holds to the formula), far above what a softmax of
// probabilities gives, which is close to the 2 of a uniform router.
TEST(GpuCases, A20BalanceLossUsesOneSoftmax) {
  TempFolder folder;
  std::string model = changedModel(
      folder, "moe", [](const std::string &name, std::vector<float> &values) {
        if (contains(name, "mlp.gate.weight"))
          for (size_t i = 0; i < values.size(); ++i)
            values[i] *= i / 64 < 2 ? 40 : 5;
      });
  DocumentRow row({150, 153}, 20);
  DoorResult gpu = door(kMoe32, model, row),
             cpu = door(kMoe32, model, row, kCpu);
  double aux = gpu.dump.reals("aux_loss")[0];
  EXPECT_NEAR(aux, cpu.dump.reals("aux_loss")[0], 1e-4 * aux);
  EXPECT_GT(aux, 2.4);
}

// Published vocabulary: no buffer of the plan has room for the logits of a row,
// nor have the activations all together; the loss is the CPU's. Ids at both
// ends of the vocabulary.
TEST(GpuCases, A27NoBufferOfTokensTimesVocabulary) {
  DocumentRow row({200, 56}, 27, 248320);
  row.ids[3] = row.labels[3] = 0;
  row.ids[5] = row.labels[5] = 248319;
  row.ids[255] = row.labels[255] = 248319;
  DoorResult gpu = door(kVocabulary, "", row),
             cpu = door(kVocabulary, "", row, kCpu);
  EXPECT_NEAR(gpu.loss(), cpu.loss(), 1e-6 * cpu.loss());
  std::string head = "grad.model.embed_tokens.weight";
  EXPECT_LT(
      relativeError(gpu.dump.reals<float>(head), cpu.dump.reals<float>(head)),
      5e-4);

  for (const char *target : {"cuda", "cpu"}) {
    std::string plan =
        quiet(kit::tool("qwen35-run") + " " + kVocabulary.path() +
              " --target " + target + " --init 3 --dry-run");
    // Half of the tokens at a time, and what else the head needs.
    double room = 2.0 / 3 * 1024 * 248320 * 4;
    auto bytesAfter = [&](size_t at) { // "5.2 MB"
      double count = 0;
      char unit = 0;
      EXPECT_EQ(std::sscanf(plan.c_str() + at, "%lf %c", &count, &unit), 2)
          << plan.substr(at, 60);
      return count * (unit == 'k'   ? 1e3
                      : unit == 'M' ? 1e6
                      : unit == 'G' ? 1e9
                                    : 1);
    };
    size_t arena = plan.find("arena act "),
           largest = plan.find("largest buffers:\n");
    ASSERT_NE(arena, std::string::npos) << plan;
    ASSERT_NE(largest, std::string::npos) << plan;
    EXPECT_LT(bytesAfter(arena + 10), room) << target;
    // Its category is before its size.
    size_t line = plan.find_first_not_of(' ', largest + 17);
    EXPECT_LT(bytesAfter(plan.find(' ', line)), room) << plan.substr(line, 60);
  }
}

// NaN in a document without labels: the loss keeps its bits, and the update,
// whose norm is not finite, is refused.
TEST(GpuCases, NanStaysInItsDocument) {
  for (auto [bundle, model] :
       {std::pair(&kDense16, "dense"), std::pair(&kMoe16, "moe"),
        std::pair(&kDense32, "dense")}) {
    SCOPED_TRACE(bundle->arguments);
    TempFolder folder;
    DocumentRow row({70, 80, 100}, 12);
    for (int64_t &id : row.ids)
      id = id % 255;
    row.labels = row.ids;
    row.ids[75] = 255;
    row.mask(1);
    std::string poisoned = changedModel(
        folder, model, [](const std::string &name, std::vector<float> &values) {
          if (contains(name, "embed_tokens"))
            std::fill_n(&values[255 * 64], 64, quietNan<float>());
        });
    DoorResult with = door(*bundle, poisoned, row),
               without = door(*bundle, kit::golden(model), row);
    EXPECT_TRUE(contains(with.output, "not finite")) << with.output;
    EXPECT_EQ(with.loss(), without.loss());
    // The state is untouched.
    Safetensors before(poisoned + "/model.safetensors");
    int compared = 0;
    for (const std::string &name : before.names()) {
      auto kept = before.reals<float>(name),
           now = with.dump.reals<float>("param." + name);
      ASSERT_EQ(kept.size(), now.size()) << name;
      EXPECT_EQ(std::memcmp(kept.data(), now.data(), kept.size() * 4), 0)
          << name;
      ++compared;
    }
    EXPECT_GT(compared, 40);
  }
}

TEST(GpuCases, RepeatedAndEagerStepsAreTheSameBits) {
  DocumentRow row({17, 64, 100}, 13);
  for (auto [bundle, model] :
       {std::pair(&kDense16, "dense"), std::pair(&kMoe16, "moe")}) {
    DoorResult captured = door(*bundle, kit::golden(model), row);
    expectSameBits(captured, door(*bundle, kit::golden(model), row));
    expectSameBits(captured, door(*bundle, kit::golden(model), row, "--eager"));
  }
}

// Engines decode with the recurrent form what the step trains with the chunked
// one. A text of 300 tokens, one of them a target in every step, nothing
// learned: the losses are its log-probabilities, and those of the reference
// token by token are beside the golden model, with what bf16 costs it.
TEST(GpuCases, A31LogProbsAreThoseOfDecoding) {
  auto text = nlohmann::json::parse(
      readFile(kit::golden("real_heads") + "/logprobs.json"));
  std::vector<double> want = text["logprobs"];
  const int64_t targets = static_cast<int64_t>(want.size());
  ASSERT_EQ(targets, 299);
  TempFolder folder;
  std::string model =
      changedModel(folder, "real_heads",
                   [](const std::string &name, std::vector<float> &values) {
                     if (contains(name, "embed_tokens"))
                       for (float &value : values)
                         value /= 16;
                   });
  std::ostringstream lines;
  for (int64_t target = 1; target <= targets; ++target) {
    std::vector<int> mask(targets + 1);
    mask[target] = 1;
    lines << nlohmann::json{{"input_ids", text["ids"]}, {"loss_mask", mask}}
          << "\n";
  }
  writeFile(folder / "text.jsonl", lines.str());
  quiet(kit::tool("qwen35-data") + " " + (folder / "text.jsonl") +
        " --vocab 192 -o " + (folder / "text.bin"));
  int64_t steps = kit::emulated() ? 12 : targets;
  Permutation order(targets, 0, 0); // of train.seed and the first epoch
  for (const KitBundle *bundle : {&kText32, &kText16}) {
    std::string out = folder / (bundle == &kText32 ? "fp32" : "bf16");
    std::string count = std::to_string(steps);
    quiet(kit::tool("qwen35-run") + " " + bundle->path() +
          " --target cuda --weights " + model + " --data " +
          (folder / "text.bin") + " --set optim.lr=0 --set train.rows=1" +
          " --set train.seed=0 --set train.steps=" + count + " --steps " +
          count + " --no-save --out " + out);
    std::istringstream records(readFile(out + "/metrics.jsonl"));
    std::string record;
    double gap = 0, absolute = 0, divergence = 0;
    int64_t step = 0;
    for (; std::getline(records, record); ++step) {
      double difference = -nlohmann::json::parse(record)["loss"].get<double>() -
                          want[order(step)];
      gap += difference / steps;
      absolute += std::fabs(difference) / steps;
      divergence += (std::expm1(difference) - difference) / steps;
    }
    ASSERT_EQ(step, steps);
    std::printf("parity: log-probs of a text, %s: mean gap %.1e, mean "
                "|gap| %.1e, KL %.1e\n",
                bundle == &kText32 ? "fp32" : "bf16", gap, absolute,
                divergence);
    EXPECT_LT(absolute,
              bundle == &kText32 ? 1e-3 : 1.5 * text["bf16_gap"].get<double>());
    EXPECT_LT(divergence, 3e-4);
  }
}

} // namespace
} // namespace qwen35
