#include "runtime/bundle/bundle_reader.h"
#include "test/unit/bundle/tiny_bundle.h"
#include "test/unit/bundle/tiny_kernels.h"

#include <gtest/gtest.h>

#include <chrono>

namespace qwen35 {
namespace {

using bundle::Bundle;

std::string verdict(Bundle message) {
  message.add_blobs()->set_name("kernels.so");
  absl::Status status = validateBundle(message);
  EXPECT_TRUE(status.ok()) << "not a question of the plan: " << status;
  status = checkPlan(message);
  EXPECT_TRUE(status.ok() ||
              status.code() == absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

/// The verdict on the tiny bundle after one change.
std::string after(const std::function<void(Bundle &)> &change) {
  Bundle message = tinyMessage();
  change(message);
  return verdict(message);
}

void swapEntries(Bundle &message, const std::string &name, int a, int b) {
  program(message, name)->mutable_entries()->SwapElements(a, b);
}

TEST(PlanCheckTest, AcceptsTheTinyBundle) {
  EXPECT_EQ(verdict(tinyMessage()), "");
}

TEST(PlanCheckTest, FindsAReadOfOverwrittenBytes) {
  // finish: forward, loss, gradient, norm_partial, norm, update. The partial
  // sums take the bytes of `error`, which the gradient still needs.
  EXPECT_EQ(after([](Bundle &m) { swapEntries(m, "finish", 2, 3); }),
            "entry 3 of program finish ('tiny/gradient', kernel "
            "tiny_gradient) reads buffer 'error', but its byte 64 was "
            "overwritten through buffer 'partial' by entry 2 of program finish "
            "('tiny/norm', kernel tiny_norm_partial)");
}

TEST(PlanCheckTest, FindsAReadOfBytesThatNobodyWrote) {
  EXPECT_EQ(after([](Bundle &m) { swapEntries(m, "accumulate", 0, 1); }),
            "entry 0 of program accumulate ('tiny/loss', kernel tiny_loss) "
            "reads buffer 'error', but its byte 0 has not been written in this "
            "program");
  // A part is enough.
  EXPECT_EQ(after([](Bundle &m) {
              launch(m, "accumulate", "tiny_forward")
                  ->mutable_args(3)
                  ->set_bytes(188);
            }),
            "entry 1 of program accumulate ('tiny/loss', kernel tiny_loss) "
            "reads buffer 'error', but its byte 188 has not been written in "
            "this program");
}

TEST(PlanCheckTest, ActDoesNotLastFromOneProgramToTheNext) {
  EXPECT_EQ(after([](Bundle &m) {
              program(m, "finish")->mutable_entries()->DeleteSubrange(0, 2);
            }),
            "entry 0 of program finish ('tiny/gradient', kernel "
            "tiny_gradient) reads buffer 'error', but its byte 0 has not been "
            "written in this program");
}

TEST(PlanCheckTest, WantsGradientsSetByBegin) {
  EXPECT_EQ(after([](Bundle &m) {
              program(m, "begin")->mutable_entries()->DeleteSubrange(0, 1);
            }),
            "program begin does not set all of 'w.grad', the gradient sum of "
            "param 'model.w'");
}

TEST(PlanCheckTest, WantsOutputsWritten) {
  EXPECT_EQ(after([](Bundle &m) {
              bundle::Launch *norm = launch(m, "finish", "tiny_norm");
              norm->mutable_args(1)->set_buffer(bufferIndex(m, "error"));
              norm->mutable_args(1)->set_offset(0);
            }),
            "program finish does not write the output grad_norm");
  EXPECT_EQ(after([](Bundle &m) { program(m, "eval")->clear_entries(); }),
            "program eval does not write the output loss");
}

TEST(PlanCheckTest, OnlyFinishChangesWeights) {
  EXPECT_EQ(after([](Bundle &m) {
              launch(m, "accumulate", "tiny_forward")
                  ->mutable_args(0)
                  ->set_write(true);
            }),
            "entry 0 of program accumulate ('tiny/forward', kernel "
            "tiny_forward) writes buffer 'w', a weight or moment that only "
            "finish may change");
  EXPECT_EQ(after([](Bundle &m) {
              bundle::PlanEntry *entry = program(m, "eval")->add_entries();
              entry->mutable_memset()->set_buffer(bufferIndex(m, "w.grad"));
            }),
            "entry 3 of program eval (memset of 'w.grad') writes buffer 'w.grad', a "
            "gradient sum that eval may not change");
  EXPECT_EQ(
      after([](Bundle &m) {
        launch(m, "finish", "tiny_forward")->mutable_args(1)->set_write(true);
      }),
      "entry 0 of program finish ('tiny/forward', kernel tiny_forward) "
      "writes buffer 'ids', an input that only the runtime fills");
}

TEST(PlanCheckTest, FindsBuffersOfOneLaunchThatShareBytes) {
  // norm_partial reads `error` instead of the gradient, and writes over it.
  EXPECT_EQ(after([](Bundle &m) {
              bundle::Arg *arg =
                  launch(m, "finish", "tiny_norm_partial")->mutable_args(0);
              arg->set_buffer(bufferIndex(m, "error"));
              arg->set_bytes(128);
            }),
            "entry 3 of program finish ('tiny/norm', kernel "
            "tiny_norm_partial) gets buffers 'error' and 'partial', which "
            "share byte 64 of arena act, and writes one of them");
}

TEST(PlanCheckTest, SeesStateThatBeginDoesNotSet) {
  // A sum in the state arena that accumulate reads: begin has to set it.
  auto withSum = [](bool memset) {
    Bundle message = tinyMessage();
    bundle::Buffer *sum = message.add_buffers();
    *sum = message.buffers(int(bufferIndex(message, "inv_count")));
    sum->set_name("sum");
    sum->set_offset(message.arenas(1).bytes());
    message.mutable_arenas(1)->set_bytes(message.arenas(1).bytes() + 64);
    message.mutable_provenance()->set_planned_peak(0);
    if (memset)
      program(message, "begin")
          ->add_entries()
          ->mutable_memset()
          ->set_buffer(bufferIndex(message, "sum"));
    launch(message, "accumulate", "tiny_loss")
        ->mutable_args(1)
        ->set_buffer(bufferIndex(message, "sum"));
    return verdict(message);
  };
  EXPECT_EQ(withSum(true), "");
  EXPECT_EQ(withSum(false),
            "entry 1 of program accumulate ('tiny/loss', kernel tiny_loss) "
            "reads buffer 'sum', but its byte 0 has not been written in this "
            "program or in begin");
}

TEST(PlanCheckTest, JoinsPartsWrittenByOneBuffer) {
  // `error` written in two halves, the second one first, then read whole.
  EXPECT_EQ(
      after([](Bundle &m) {
        bundle::Program *accumulate = program(m, "accumulate");
        bundle::PlanEntry first = accumulate->entries(0);
        bundle::Arg *arg = first.mutable_launch()->mutable_args(3);
        arg->set_bytes(96);
        *accumulate->add_entries() = first;
        bundle::Arg *second =
            accumulate->mutable_entries(0)->mutable_launch()->mutable_args(3);
        second->set_offset(96);
        second->set_bytes(96);
        // order: second half, first half, loss, gradient
        swapEntries(m, "accumulate", 3, 2);
        swapEntries(m, "accumulate", 2, 1);
      }),
      "");
}

/// The verdict on the tiny bundle with a working copy after one change.
std::string withWork(const std::function<void(Bundle &)> &change) {
  return after([&](Bundle &m) {
    addWorkingCopy(m);
    change(m);
  });
}

TEST(PlanCheckTest, RefreshMakesWorkingCopiesBeforeAnyStep) {
  auto readWork = [](Bundle &m) { // in the place of the weight
    bundle::Arg *arg = launch(m, "accumulate", "tiny_forward")->mutable_args(0);
    arg->set_buffer(bufferIndex(m, "w.work"));
    arg->set_bytes(512);
  };
  EXPECT_EQ(withWork(readWork), "");
  EXPECT_EQ(withWork([&](Bundle &m) {
              readWork(m);
              program(m, "refresh")->clear_entries();
            }),
            "entry 0 of program accumulate ('tiny/forward', kernel "
            "tiny_forward) reads buffer 'w.work', but its byte 0 has not been "
            "written in this program or in begin");
}

TEST(PlanCheckTest, OnlyFinishAndRefreshWriteWorkingCopies) {
  EXPECT_EQ(withWork([](Bundle &m) {
              launch(m, "finish", "tiny_update")->mutable_args(6)->set_write(
                  false);
            }),
            "program finish changes param 'model.w' but does not write its "
            "working copy 'w.work'");
  EXPECT_EQ(withWork([](Bundle &m) {
              bundle::Memset *memset =
                  program(m, "begin")->add_entries()->mutable_memset();
              memset->set_buffer(bufferIndex(m, "w.work"));
            }),
            "entry 2 of program begin (memset of 'w.work') writes buffer "
            "'w.work', a working copy that only finish and refresh may "
            "change");
  EXPECT_EQ(withWork([](Bundle &m) {
              launch(m, "refresh", "tiny_refresh")->mutable_args(0)->set_write(
                  true);
            }),
            "entry 0 of program refresh ('tiny/cast', kernel tiny_refresh) "
            "writes buffer 'w', a weight or moment that only finish may "
            "change");
}

// The replay of a plan as large as that of the largest model takes a moment.
TEST(PlanCheckTest, IsFastOnManyLaunches) {
  Bundle message = tinyMessage();
  bundle::Program *finish = program(message, "finish");
  bundle::PlanEntry forward = finish->entries(0), loss = finish->entries(1);
  for (int i = 0; i < 50000; ++i) {
    *finish->add_entries() = forward;
    *finish->add_entries() = loss;
  }
  auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(verdict(message), "");
  std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 10);
}

} // namespace
} // namespace qwen35
