#include "runtime/api/step.h"

#include "runtime/schema/seq_table.h"
#include "test/unit/bundle/tiny_bundle.h"
#include "test/unit/bundle/tiny_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace qwen35 {
namespace {

/// The tiny bundle in memory and a step made of it.
struct Tiny {
  std::string file;
  std::unique_ptr<Step> step;
};

Tiny makeTiny(const StepOptions &options = {},
              const std::function<void(bundle::Bundle &)> &change = nullptr) {
  Tiny tiny{tinyBundle(change), nullptr};
  auto bundle = BundleFile::parse(asBytes(tiny.file));
  EXPECT_TRUE(bundle.ok()) << bundle.status();
  auto step = Step::create(*bundle, options);
  EXPECT_TRUE(step.ok()) << step.status();
  tiny.step = *std::move(step);
  return tiny;
}

int32_t id(int row, int token) { return (token * 37 + row * 11) % kWords; }
int32_t label(int row, int token) {
  return token % 7 == 3 ? -100 : (token * 5 + row) % 9;
}

void fillState(Step &step) {
  absl::Span<float> w = step.buffer<float>("w").value();
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = 0.125f * float(i % 16);
  for (const char *name : {"w.m", "w.v"}) {
    absl::Span<float> moments = step.buffer<float>(name).value();
    std::fill(moments.begin(), moments.end(), 0.0f);
  }
}

void fillInputs(Step &step, int row, float invCount) {
  absl::Span<int32_t> ids = step.input("ids").value();
  absl::Span<int32_t> labels = step.input("labels").value();
  ASSERT_EQ(ids.size(), size_t(kTokens));
  for (int t = 0; t < kTokens; ++t) {
    ids[t] = id(row, t);
    labels[t] = label(row, t);
  }
  int64_t length = kTokens;
  ASSERT_TRUE(fillSeqTable(SeqTable{kTokens, 4}, &length, 1,
                           step.input("seq").value().data()));
  for (auto [name, value] :
       {std::pair("lr", 0.5f), std::pair("inv_count", invCount),
        std::pair("bias_correction1", 1.0f),
        std::pair("bias_correction2", 1.0f)})
    ASSERT_TRUE(step.setScalar(name, value).ok());
}

/// One optimizer step over `rows` microbatches.
void train(Step &step, int rows) {
  ASSERT_TRUE(step.run("begin").ok());
  for (int row = 0; row < rows; ++row) {
    fillInputs(step, row, 1.0f / float(rows * kTokens));
    ASSERT_TRUE(step.run(row + 1 < rows ? "accumulate" : "finish").ok());
  }
}

std::vector<float> weights(Step &step) {
  absl::Span<float> w = step.buffer<float>("w").value();
  return std::vector<float>(w.begin(), w.end());
}

TEST(StepTest, TrainsAsTheSameLoopsInDoubleDo) {
  Tiny tiny = makeTiny();
  fillState(*tiny.step);
  std::vector<double> w(kWords), grad(kWords, 0);
  for (int i = 0; i < kWords; ++i)
    w[i] = 0.125 * (i % 16);
  double loss = 0, norm = 0, invCount = 1.0 / (3 * kTokens);
  for (int row = 0; row < 3; ++row)
    for (int t = 0; t < kTokens; ++t)
      if (label(row, t) != -100) {
        double error = w[id(row, t)] - label(row, t);
        loss += 0.5 * error * error * invCount;
        grad[id(row, t)] += error * invCount;
      }
  train(*tiny.step, 3);
  for (int i = 0; i < kWords; ++i) {
    norm += grad[i] * grad[i];
    w[i] -= 0.5 * grad[i];
  }
  EXPECT_NEAR(tiny.step->output("loss").value(), loss, 1e-6 * loss);
  EXPECT_NEAR(tiny.step->output("grad_norm").value(), norm, 1e-6 * norm);
  EXPECT_EQ(tiny.step->output("commit").value(), 1);
  std::vector<float> trained = weights(*tiny.step);
  for (int i = 0; i < kWords; ++i)
    EXPECT_NEAR(trained[i], w[i], 1e-6);

  float before = tiny.step->output("loss").value();
  ASSERT_TRUE(tiny.step->run("eval").ok());
  EXPECT_LT(tiny.step->output("loss").value(), before);
  EXPECT_EQ(weights(*tiny.step), trained);
}

TEST(StepTest, ResultsDoNotDependOnThreadsOrTheirTasks) {
  Tiny one = makeTiny({.threads = 1});
  fillState(*one.step);
  for (int i = 0; i < 5; ++i)
    train(*one.step, 2);
  for (int threads : {2, 3, 4, 8})
    for (auto tasks :
         {StepOptions::Tasks::Dynamic, StepOptions::Tasks::Static}) {
      Tiny many = makeTiny({.threads = threads, .tasks = tasks});
      EXPECT_EQ(many.step->threads(), threads);
      fillState(*many.step);
      for (int i = 0; i < 5; ++i)
        train(*many.step, 2);
      std::vector<float> expected = weights(*one.step),
                         found = weights(*many.step);
      EXPECT_EQ(std::memcmp(expected.data(), found.data(), kWords * 4), 0)
          << threads;
      EXPECT_EQ(one.step->output("loss").value(),
                many.step->output("loss").value());
    }
}

TEST(StepTest, PoisonReachesOnlyWhatNobodyReads) {
  Tiny clean = makeTiny(), poisoned = makeTiny({.poison = true});
  EXPECT_TRUE(std::isnan(poisoned.step->buffer<float>("w").value()[5]));
  EXPECT_EQ(poisoned.step->input("ids").value()[0], -1);
  fillState(*clean.step);
  fillState(*poisoned.step);
  for (int i = 0; i < 3; ++i) {
    train(*clean.step, 2);
    train(*poisoned.step, 2);
  }
  EXPECT_EQ(weights(*clean.step), weights(*poisoned.step));
  EXPECT_EQ(clean.step->output("loss").value(),
            poisoned.step->output("loss").value());
}

TEST(StepTest, PoisonsActBeforeEveryProgram) {
  Tiny tiny = makeTiny({.poison = true});
  fillState(*tiny.step);
  train(*tiny.step, 1);
  absl::Span<float> error = tiny.step->buffer<float>("error").value();
  EXPECT_EQ(std::isnan(error[0]), false);
  ASSERT_TRUE(tiny.step->run("begin").ok());
  EXPECT_TRUE(std::isnan(error[0]));
}

// A non-finite gradient: commit is 0 and no bit of the state moves.
TEST(StepTest, KeepsTheStateWhenTheGradientIsNotFinite) {
  Tiny tiny = makeTiny();
  fillState(*tiny.step);
  tiny.step->buffer<float>("w").value()[id(0, 0)] = INFINITY;
  std::vector<float> before = weights(*tiny.step);
  train(*tiny.step, 1);
  EXPECT_EQ(tiny.step->output("commit").value(), 0);
  EXPECT_EQ(weights(*tiny.step), before);
}

TEST(StepTest, FillsWithTheValueOfTheMemset) {
  Tiny tiny = makeTiny({}, [](bundle::Bundle &message) {
    message.mutable_programs(0)
        ->mutable_entries(0)
        ->mutable_memset()
        ->set_value(0x40);
  });
  ASSERT_TRUE(tiny.step->run("begin").ok());
  for (uint8_t byte : tiny.step->bytes(tiny.step->findBuffer("w.grad").value()))
    ASSERT_EQ(byte, 0x40);
}

TEST(StepTest, NamesWhatIsUnknown) {
  Tiny tiny = makeTiny();
  Step &step = *tiny.step;
  auto message = [](const absl::Status &status) {
    return std::string(status.message());
  };
  EXPECT_EQ(message(step.run("export")),
            "the bundle has no program named 'export', it has begin, "
            "accumulate, finish, eval");
  EXPECT_EQ(message(step.findBuffer("x").status()),
            "the bundle has no buffer named 'x'");
  EXPECT_EQ(message(step.buffer<double>("w").status()),
            "buffer 'w' holds f32, but f64 was asked for");
  EXPECT_EQ(message(step.buffer<uint16_t>("w").status()),
            "buffer 'w' holds f32, but bf16 or f16 was asked for");
  EXPECT_EQ(message(step.input("lr").status()),
            "the step has no input named 'lr', it has ids, labels, seq");
  EXPECT_EQ(message(step.setScalar("ids", 1)),
            "the step has no scalar named 'ids', it has bias_correction1, "
            "bias_correction2, inv_count, lr");
  EXPECT_EQ(message(step.output("aux_loss").status()),
            "the step has no output named 'aux_loss', it has commit, "
            "grad_norm, loss");
  EXPECT_FALSE(step.hasScalar("aux_scale"));
  EXPECT_FALSE(step.hasOutput("aux_loss"));
  EXPECT_TRUE(step.hasOutput("loss"));
  EXPECT_TRUE(step.hasProgram("eval"));
}

TEST(StepTest, AccountsForItsMemory) {
  Tiny tiny = makeTiny();
  StepMemory memory = tiny.step->memory();
  ASSERT_EQ(memory.arenas.size(), 3u);
  EXPECT_EQ(memory.arenas[0].name, "state");
  EXPECT_EQ(memory.arenas[0].bytes, 4096u);
  EXPECT_EQ(memory.planned, 5632u);
  EXPECT_GE(memory.mapped, memory.planned);
  uint64_t weights = 0;
  for (const StepMemory::Entry &entry : memory.categories)
    if (entry.name == "weights")
      weights = entry.bytes;
  EXPECT_EQ(weights, 1024u);
}

TEST(StepTest, RefusesAPlanThatDoesNotFit) {
  std::string file = tinyBundle([](bundle::Bundle &message) {
    message.mutable_arenas(2)->set_bytes(uint64_t(40) << 40);
    message.mutable_provenance()->set_planned_peak(0);
  });
  auto bundle = BundleFile::parse(asBytes(file)).value();
  auto step = Step::create(bundle, {});
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.status().code(), absl::StatusCode::kResourceExhausted);
  std::string message(step.status().message());
  EXPECT_NE(message.find("the bundle's arenas need 44.0 TB (state 4.1 kB, io "
                         "1.3 kB, act 44.0 TB), but this machine has "),
            std::string::npos)
      << message;
  step = Step::create(bundle, {.maxBytes = 1000000});
  EXPECT_NE(step.status().message().find("but the limit is 1.0 MB"),
            absl::string_view::npos);
}

TEST(StepTest, RefusesBadThreadCounts) {
  std::string file = tinyBundle();
  auto bundle = BundleFile::parse(asBytes(file)).value();
  EXPECT_EQ(
      std::string(Step::create(bundle, {.threads = -1}).status().message()),
      "-1 threads were asked for, expected 1 to 4096, or 0 for one per "
      "CPU");
}

TEST(StepTest, ProfilesByKindOfKernel) {
  Tiny tiny = makeTiny({.profile = true});
  fillState(*tiny.step);
  train(*tiny.step, 2);
  std::vector<OpTime> times = tiny.step->profile();
  uint64_t norms = 0, memsets = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_GT(times[i].seconds, 0);
    if (i > 0)
      EXPECT_LE(times[i].seconds, times[i - 1].seconds);
    norms += times[i].op == "norm" ? times[i].calls : 0;
    memsets += times[i].op == "memset" ? times[i].calls : 0;
  }
  EXPECT_EQ(times.size(), 6u);
  EXPECT_EQ(norms, 2u);
  EXPECT_EQ(memsets, 2u);
  tiny.step->resetProfile();
  EXPECT_TRUE(tiny.step->profile().empty());
  EXPECT_TRUE(makeTiny().step->profile().empty());
}

} // namespace
} // namespace qwen35
