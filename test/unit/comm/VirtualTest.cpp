#include "runtime/comm/virtual.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "test/unit/comm/CollectiveChecks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace qwen35;
using namespace qwen35::comm;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

std::string text(const absl::Status &status) {
  return std::string(status.message());
}

/// What each rank got.
struct Outcome {
  absl::Status cause;
  std::vector<absl::Status> ranks;
  double seconds;
};

Outcome runRanks(int ranks, const std::function<absl::Status(World &)> &body,
                 double limit = 30) {
  Outcome outcome;
  outcome.ranks.resize(static_cast<size_t>(ranks));
  auto start = std::chrono::steady_clock::now();
  outcome.cause =
      runVirtualRanks(ranks,
                      [&](World &world) {
                        absl::Status status = body(world);
                        outcome.ranks[static_cast<size_t>(world.rank())] =
                            status;
                        return status;
                      },
                      {limit});
  outcome.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return outcome;
}

class VirtualRanks : public testing::TestWithParam<int> {};

TEST_P(VirtualRanks, EveryCollectiveGivesTheBitsOfItsDefinition) {
  absl::Status status = runVirtualRanks(GetParam(), checkCollectives);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(VirtualRanks, SumsAreInRankOrder) {
  absl::Status status = runVirtualRanks(GetParam(), checkOrder);
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Ranks, VirtualRanks, testing::Values(1, 2, 3, 5));

TEST(VirtualTest, ARankThatFailsEndsTheOthersAtOnceAndIsNamed) {
  std::atomic<int> others = 0;
  Outcome outcome = runRanks(4, [&](World &world) -> absl::Status {
    QWEN35_RETURN_IF_ERROR(world.all().barrier());
    if (world.rank() == 2) {
      while (others < 3)
        std::this_thread::yield();
      return absl::DataLossError("the corpus is gone");
    }
    ++others;
    float x = 1;
    return world.all().allReduce(&x, &x, 1, Type::kF32, {}, {"grads", 17});
  });
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_EQ(text(outcome.cause), "rank 2 failed: the corpus is gone");
  for (int r : {0, 1, 3})
    EXPECT_EQ(text(outcome.ranks[static_cast<size_t>(r)]),
              absl::StrCat("rank 2 failed: the corpus is gone; this is rank ",
                           r,
                           ", in number 17, all_reduce 'grads' of 1 f32 "
                           "over 'world'"));
}

TEST(VirtualTest, ARankThatDoesNotComeIsNamedAfterTheLimit) {
  Outcome outcome = runRanks(
      3,
      [&](World &world) -> absl::Status {
        QWEN35_RETURN_IF_ERROR(world.all().barrier({"start"}));
        if (world.rank() == 1) // busy until the others have given up
          while (world.lastError().ok())
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::vector<float> x(10);
        return world.all().allGather(&x[static_cast<size_t>(world.rank())],
                                     x.data(), 1, Type::kF32, {"router"});
      },
      0.3);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_GE(outcome.seconds, 0.3);
  EXPECT_EQ(outcome.cause.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(text(outcome.cause),
              AllOf(HasSubstr("rank 1 did not come within 0.3 s to number 1, "
                              "all_gather 'router' of 1 f32 over 'world'"),
                    HasSubstr("its process lives, after number 0, barrier "
                              "'start'")));
  for (const absl::Status &status : outcome.ranks)
    EXPECT_THAT(text(status), HasSubstr("rank 1 did not come within 0.3 s"));
}

TEST(VirtualTest, TheRankThatKeepsTheOthersWaitingIsFoundThroughAnother) {
  // Rank 2 waits for 1, which waits for 0, which is busy.
  Outcome outcome = runRanks(
      3,
      [&](World &world) -> absl::Status {
        absl::StatusOr<std::shared_ptr<Communicator>> low =
            world.split("low", {{0, 1}, {2}});
        absl::StatusOr<std::shared_ptr<Communicator>> high =
            world.split("high", {{0}, {1, 2}});
        QWEN35_RETURN_IF_ERROR(high.status());
        if (world.rank() == 0)
          while (world.lastError().ok())
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        QWEN35_RETURN_IF_ERROR((*low)->barrier());
        return (*high)->barrier();
      },
      0.3);
  EXPECT_THAT(text(outcome.cause), HasSubstr("rank 0 did not come within"));
}

TEST(VirtualTest, DifferentCollectivesAreAnErrorThatNamesBoth) {
  Outcome outcome = runRanks(2, [](World &world) -> absl::Status {
    std::vector<float> x(8);
    if (world.rank() == 0)
      return world.all().allGather(&x[0], &x[0], 1, Type::kF32, {"keys", 4});
    return world.all().allReduce(&x[0], &x[0], 1, Type::kF32, {}, {"norm", 4});
  });
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_EQ(outcome.cause.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(outcome.cause),
              AllOf(HasSubstr("do not call the same collective"),
                    HasSubstr("in number 4, all_gather 'keys' of 1 f32"),
                    HasSubstr("in number 4, all_reduce 'norm' of 1 f32")));
}

TEST(VirtualTest, EveryFieldOfACallIsCompared) {
  auto differ = [](const std::function<absl::Status(World &, int)> &body) {
    return text(
        runRanks(
            2, [&](World &world) { return body(world, world.rank()); }, 0.3)
            .cause);
  };
  std::vector<double> a(64), b(64);
  double *x[2] = {a.data(), b.data()};
  EXPECT_THAT(differ([&](World &w, int r) {
                return w.all().allReduce(x[r], x[r], 4 + r, Type::kF32);
              }),
              AllOf(HasSubstr("of 4 f32"), HasSubstr("of 5 f32")));
  EXPECT_THAT(differ([&](World &w, int r) {
                return w.all().allReduce(x[r], x[r], 4,
                                         r ? Type::kF32 : Type::kI32);
              }),
              AllOf(HasSubstr("of 4 f32"), HasSubstr("of 4 i32")));
  EXPECT_THAT(differ([&](World &w, int r) {
                Reduce reduce;
                if (r)
                  reduce = {Reduction::kSum, Type::kBf16, Type::kF32};
                return w.all().allReduce(x[r], x[r], 4, Type::kF32, reduce);
              }),
              HasSubstr("of 4 f32 (wire bf16)"));
  EXPECT_THAT(differ([&](World &w, int r) {
                return w.all().allReduce(
                    x[r], x[r], 4, Type::kF32,
                    {r ? Reduction::kSum : Reduction::kMax});
              }),
              HasSubstr("of 4 f32, max"));
  EXPECT_THAT(differ([&](World &w, int r) {
                return w.all().broadcast(x[r], 4, Type::kF32, r);
              }),
              AllOf(HasSubstr("ranks wait for each other"),
                    HasSubstr("broadcast of 4 f32 from 0"),
                    HasSubstr("broadcast of 4 f32 from 1")));
  EXPECT_THAT(
      differ([&](World &w, int r) {
        return w.all().barrier({"same", r});
      }),
      AllOf(HasSubstr("number 0, barrier"), HasSubstr("number 1, barrier")));
  EXPECT_THAT(
      differ([&](World &w, int r) {
        return w
            .split("dp", {r ? std::vector<int>{0, 1} : std::vector<int>{1, 0}})
            .status();
      }),
      AllOf(HasSubstr("'dp' is split into 0 1 on rank 1"),
            HasSubstr("into 1 0 on rank 0")));
  EXPECT_THAT(differ([&](World &w, int r) {
                return w.exchange(r ? "ids" : "sizes", "x").status();
              }),
              AllOf(HasSubstr("'ids'"), HasSubstr("'sizes'")));
}

TEST(VirtualTest, ARankThatFinishedIsNotWaitedFor) {
  Outcome outcome = runRanks(2, [](World &world) -> absl::Status {
    return world.rank() == 0 ? absl::OkStatus() : world.all().barrier({"last"});
  });
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(text(outcome.cause),
              HasSubstr("rank 0 has finished while rank 1 waits for it in "
                        "barrier 'last'"));
}

TEST(VirtualTest, RanksInDifferentOrdersAreNotLeftHanging) {
  // Rank 0 takes the communicators in one order, rank 1 in the other; both
  // hold the same ranks, so that the messages meet and differ.
  Outcome outcome = runRanks(2, [](World &world) -> absl::Status {
    auto a = world.split("a", {{0, 1}}), b = world.split("b", {{0, 1}});
    QWEN35_RETURN_IF_ERROR(b.status());
    Communicator &first = world.rank() == 0 ? **a : **b;
    Communicator &second = world.rank() == 0 ? **b : **a;
    QWEN35_RETURN_IF_ERROR(first.barrier());
    return second.barrier();
  });
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_THAT(text(outcome.cause), HasSubstr("do not call the same"));
}

TEST(VirtualTest, RanksThatWaitForEachOtherAreAllNamed) {
  // A ring of three pairs, each rank in the pair that the next one waits for.
  Outcome outcome = runRanks(
      3,
      [](World &world) -> absl::Status {
        std::vector<std::shared_ptr<Communicator>> pairs;
        for (int i = 0; i < 3; ++i) {
          auto pair = world.split(absl::StrCat("pair", i), {{i, (i + 1) % 3}});
          QWEN35_RETURN_IF_ERROR(pair.status());
          pairs.push_back(*pair);
        }
        size_t r = static_cast<size_t>(world.rank());
        QWEN35_RETURN_IF_ERROR(pairs[r]->barrier());
        return pairs[(r + 2) % 3]->barrier();
      },
      0.3);
  EXPECT_EQ(outcome.cause.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(outcome.cause),
              AllOf(HasSubstr("ranks wait for each other"),
                    HasSubstr("'pair0'"), HasSubstr("'pair1'"),
                    HasSubstr("'pair2'")));
}

TEST(VirtualTest, AfterAnErrorEveryCallReturnsIt) {
  runRanks(2, [](World &world) -> absl::Status {
    if (world.rank() == 0)
      world.abort(absl::InternalError("first"));
    while (world.lastError().ok())
      std::this_thread::yield();
    world.abort(absl::InternalError("second"));
    EXPECT_EQ(text(world.lastError()), "rank 0 failed: first");
    EXPECT_THAT(text(world.all().barrier()), HasSubstr("first"));
    EXPECT_THAT(text(world.exchange("x", "").status()), HasSubstr("first"));
    EXPECT_THAT(text(world.split("s", {{0}}).status()), HasSubstr("first"));
    EXPECT_THAT(text(world.finish()), HasSubstr("first"));
    return world.lastError();
  });
}

TEST(VirtualTest, SendersGetTheirBuffersBackBeforeAnErrorReturns) {
  // The sender frees its buffer as soon as it has the error; under a sanitizer
  // a copy that still ran would show.
  for (int i = 0; i < 20; ++i) {
    Outcome outcome = runRanks(3, [&](World &world) -> absl::Status {
      if (world.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::microseconds(i * 50));
        return absl::InternalError("stop");
      }
      while (true) {
        std::vector<char> send(1 << 20), receive(1 << 20);
        QWEN35_RETURN_IF_ERROR(world.all().sendReceive(
            1 - world.rank(), send.data(), 1 << 20, 1 - world.rank(),
            receive.data(), 1 << 20, Type::kByte));
      }
    });
    EXPECT_EQ(text(outcome.cause), "rank 2 failed: stop");
  }
}

TEST(CommunicatorTest, CallsThatCannotBeAreRefusedWithTheNumbers) {
  runRanks(2, [](World &world) -> absl::Status {
    Communicator &all = world.all();
    std::vector<float> x(64);
    auto refused = [&](const absl::Status &status, const char *part) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(text(status), HasSubstr(part));
    };
    refused(all.allGather(&x[0], &x[32], -1, Type::kF32),
            "all_gather of -1 f32 over 'world': the count is -1");
    refused(all.allGather(&x[0], &x[32], int64_t(1) << 60, Type::kF32),
            "expected 0 to ");
    refused(all.allGather(&x[0], &x[8], 16, Type::kF32),
            "send (64 bytes) and receive (128 bytes) overlap, 32 bytes apart");
    refused(all.allReduce(&x[0], &x[1], 4, Type::kF32), "overlap");
    refused(all.allToAll(&x[0], &x[0], 4, Type::kF32), "overlap");
    refused(all.allGather(nullptr, &x[0], 4, Type::kF32), "null");
    refused(all.shift(&x[0], &x[32], 4, Type::kF32, 2),
            "the offset is 2; expected 1 to 1");
    refused(all.broadcast(&x[0], 4, Type::kF32, 2),
            "the root is 2; expected 0 to 1");
    refused(all.sendReceive(2, &x[0], 4, 0, &x[32], 4, Type::kF32),
            "sends to 2 and receives from 0");
    refused(all.allReduce(&x[0], &x[32], 4, Type::kByte),
            "bytes cannot be reduced");
    refused(all.allReduce(&x[0], &x[32], 4, Type::kBf16,
                          {Reduction::kSum, Type::kF32}),
            "the wire type is f32 for elements of bf16; expected bf16");
    refused(all.allReduce(&x[0], &x[32], 4, Type::kF32,
                          {Reduction::kSum, {}, Type::kBf16}),
            "accumulated in bf16; expected f32 or f64");
    refused(world.split("x", {{0}, {}}).status(),
            "group 1 of communicator 'x' is empty");
    refused(world.split("x", {{0, 2}}).status(),
            "has rank 2; the world has ranks 0 to 1");
    refused(world.split("x", {{0}, {1, 0}}).status(),
            "has rank 0 in groups 0 and 1");
    EXPECT_TRUE(world.lastError().ok()); // nothing was sent
    return all.barrier();
  });
}

TEST(VirtualTest, NumbersOfRanksAreChecked) {
  EXPECT_THAT(
      text(runVirtualRanks(0, [](World &) { return absl::OkStatus(); })),
      HasSubstr("0 virtual ranks; expected 1 to 4096"));
}

} // namespace
