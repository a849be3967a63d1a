#include "runtime/step/arena.h"

#include <gtest/gtest.h>

#include <cstring>

namespace qwen35 {
namespace {

TEST(ArenaTest, IsZeroedAlignedAndWritable) {
  for (uint64_t bytes : {uint64_t(1), uint64_t(4096), uint64_t(5) << 20}) {
    auto arena = Arena::allocate("act", bytes);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % Arena::kAlign, 0u);
    EXPECT_EQ(arena->bytes(), bytes);
    EXPECT_GE(arena->mapped(), bytes);
    for (uint64_t i = 0; i < bytes; i += 997)
      ASSERT_EQ(arena->data()[i], 0);
    std::memset(arena->data(), 1, bytes);
  }
}

TEST(ArenaTest, MayBeEmpty) {
  auto arena = Arena::allocate("act", 0);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->data(), nullptr);
}

TEST(ArenaTest, MovesItsMemory) {
  Arena arena = Arena::allocate("act", 100).value();
  uint8_t *data = arena.data();
  Arena other = std::move(arena);
  EXPECT_EQ(other.data(), data);
  data[0] = 1;
}

TEST(ArenaTest, StopsAKernelThatRunsOut) {
  Arena arena = Arena::allocate("act", 4096).value();
  volatile uint8_t *data = arena.data();
  EXPECT_DEATH(data[4096] = 1, "");
  EXPECT_DEATH(data[-1] = 1, "");
}

TEST(ArenaTest, ReportsWhatCannotBeHad) {
  auto arena = Arena::allocate("act", uint64_t(1) << 60);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(arena.status().message().find("arena act needs 1.2 EB"),
            absl::string_view::npos)
      << arena.status();
}

TEST(ArenaTest, KnowsTheMachine) {
  EXPECT_GT(availableMemory(), uint64_t(1) << 20);
}

} // namespace
} // namespace qwen35
