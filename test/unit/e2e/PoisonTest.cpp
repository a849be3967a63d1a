// The memory plan on poisoned memory: before every program the act arena is
// filled with NaN, so a kernel that reads what nobody wrote in that program, or
// what another buffer has overwritten, shows. Rows of changing documents and
// padding, so that unused chunks and unused expert blocks occur.

#include "runtime/api/step.h"
#include "runtime/schema/seq_table.h"
#include "test/support/Numeric.h"
#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

namespace qwen35 {
namespace {

using namespace test;

/// All state and outputs after one step of three microbatches.
std::vector<uint8_t> stepOnce(const std::string &path, bool poison) {
  std::vector<uint8_t> result;
  auto bundle = BundleFile::open(path);
  EXPECT_TRUE(bundle.ok()) << bundle.status().ToString();
  if (!bundle.ok())
    return result;
  StepOptions options;
  options.threads = 2;
  options.poison = poison;
  auto created = Step::create(*bundle, options);
  EXPECT_TRUE(created.ok()) << created.status().ToString();
  if (!created.ok())
    return result;
  Step &step = **created;
  const bundle::Bundle &message = step.message();

  Random random(11);
  for (const bundle::Param &param : message.params()) {
    auto weight = step.buffer<float>(param.weight());
    for (float &value : *weight)
      value = static_cast<float>(0.1 * random.normal());
    for (uint32_t moment : {param.m(), param.v()}) {
      auto values = step.buffer<float>(moment);
      std::fill(values->begin(), values->end(), 0.0f);
    }
  }
  SeqTable table{message.io().tokens(), message.io().max_docs()};
  const std::vector<std::vector<int64_t>> rows = {
      {table.tokens}, {1, 63, 2}, {7}};
  EXPECT_TRUE(step.run("begin").ok());
  for (size_t i = 0; i < rows.size(); ++i) {
    auto ids = *step.input("ids"), labels = *step.input("labels");
    int64_t used = 0;
    for (int64_t length : rows[i])
      used += length;
    for (int64_t t = 0; t < table.tokens; ++t) {
      ids[t] = t < used ? static_cast<int32_t>(random.below(256)) : 0;
      labels[t] =
          t + 1 < used ? static_cast<int32_t>(random.below(256)) : -100;
    }
    EXPECT_TRUE(fillSeqTable(table, rows[i].data(),
                             static_cast<int64_t>(rows[i].size()),
                             step.input("seq")->data()));
    const std::map<std::string, float> scalars = {
        {"lr", 1e-3f},
        {"inv_count", 0.01f},
        {"bias_correction1", 0.1f},
        {"bias_correction2", 0.05f},
        {"aux_scale", 1.0f / 3}};
    for (const auto &[name, value] : scalars)
      EXPECT_TRUE(step.setScalar(name, value).ok()) << name;
    auto ran = step.run(i + 1 < rows.size() ? "accumulate" : "finish");
    EXPECT_TRUE(ran.ok()) << ran.ToString();
  }
  EXPECT_EQ(*step.output("commit"), 1) << "the norm is not finite";
  auto append = [&](uint32_t buffer) {
    auto bytes = step.bytes(buffer);
    result.insert(result.end(), bytes.begin(), bytes.end());
  };
  for (const bundle::Param &param : message.params())
    for (uint32_t buffer :
         {param.weight(), param.m(), param.v(), param.grad()})
      append(buffer);
  for (const bundle::IoBuffer &output : message.io().outputs())
    append(output.buffer());
  return result;
}

TEST(PoisonedMemory, ChangesNothing) {
  TempFolder folder;
  writeFile(folder / "config.json",
            changedConfig("moe", {{"num_experts", 256}}));
  for (const std::string &arguments : std::vector<std::string>{
        "debug --tokens 150 --max-docs 3",
        "debug --tokens 150 --max-docs 3 --set memory.remat=selective",
        "debug --tokens 150 --max-docs 3 --set memory.remat=full",
        "debug-moe --tokens 150 --max-docs 3 --set loss.aux=per_layer",
        // A18: most experts get no token.
        (folder / "config.json") + " --tokens 68 --max-docs 4"}) {
    SCOPED_TRACE(arguments);
    std::string bundle = bundleOf(arguments);
    std::vector<uint8_t> clean = stepOnce(bundle, false);
    ASSERT_FALSE(clean.empty());
    EXPECT_TRUE(clean == stepOnce(bundle, true));
  }
}

// Recomputing gives the same values as keeping them.
TEST(Remat, PoliciesGiveTheSameBits) {
  std::vector<uint8_t> none = stepOnce(
      bundleOf("debug --tokens 150 --max-docs 3"), false);
  for (const char *policy : {"selective", "full"})
    EXPECT_TRUE(none ==
                stepOnce(bundleOf(std::string("debug --tokens 150 --max-docs "
                                              "3 --set memory.remat=") +
                                  policy),
                         false))
        << policy;
}

} // namespace
} // namespace qwen35
