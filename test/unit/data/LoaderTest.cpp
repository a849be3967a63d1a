#include "runtime/data/loader.h"

#include "test/unit/data/data_test_util.h"

using namespace qwen35;

namespace {

LoaderOptions smallOptions() {
  LoaderOptions options;
  options.shape = {16, 5};
  options.rows = 3;
  options.seed = 5;
  return options;
}

std::shared_ptr<const Corpus> smallCorpus() {
  std::string text;
  for (int i = 0; i < 30; ++i)
    text += "paragraph " + std::to_string(i * 37) + "\n\n";
  return openCorpus({writeBytes("loader", text)}, 256);
}

} // namespace

TEST(LoaderTest, GivesThePackersBatchesInOrder) {
  auto corpus = smallCorpus();
  auto packer = Packer::create(corpus, smallOptions());
  auto loader = Loader::create(corpus, smallOptions());
  ASSERT_TRUE(packer.ok() && loader.ok());
  Batch expected, batch;
  for (int step = 0; step < 50; ++step) {
    ASSERT_TRUE(packer->next(expected).ok());
    ASSERT_TRUE((*loader)->next(batch).ok());
    ASSERT_EQ(batch.after, expected.after);
    ASSERT_EQ(batch.validLabels, expected.validLabels);
    for (size_t row = 0; row < 3; ++row) {
      ASSERT_EQ(batch.rows[row].ids, expected.rows[row].ids);
      ASSERT_EQ(batch.rows[row].labels, expected.rows[row].labels);
    }
    EXPECT_GE((*loader)->waitedSeconds(), 0);
  }
}

TEST(LoaderTest, WorkingAheadDoesNotMoveTheStateOfTheStep) {
  auto corpus = smallCorpus();
  Batch first, second, resumedSecond;
  {
    auto loader = Loader::create(corpus, smallOptions());
    ASSERT_TRUE((*loader)->next(first).ok());
    ASSERT_TRUE((*loader)->next(second).ok());
  }
  auto resumed = Loader::create(corpus, smallOptions(), &first.after);
  ASSERT_TRUE(resumed.ok());
  ASSERT_TRUE((*resumed)->next(resumedSecond).ok());
  EXPECT_EQ(resumedSecond.rows[0].ids, second.rows[0].ids);
  EXPECT_EQ(resumedSecond.after, second.after);
}

TEST(LoaderTest, EndsWhileItsThreadWaitsOrWorks) {
  auto corpus = smallCorpus();
  for (int i = 0; i < 50; ++i) {
    auto loader = Loader::create(corpus, smallOptions());
    Batch batch;
    if (i % 2)
      ASSERT_TRUE((*loader)->next(batch).ok());
  }
}

TEST(LoaderTest, AnErrorOfTheThreadComesOutOfEveryLaterNext) {
  std::string bytes = readBytes(writeTokens("sound", 100, {{{1, 2, 3}, {}}}));
  bytes[132] = 101;
  auto corpus = openCorpus({writeBytes("lying", bytes)}, 100);
  auto loader = Loader::create(corpus, smallOptions());
  ASSERT_TRUE(loader.ok());
  Batch batch;
  for (int i = 0; i < 3; ++i) {
    absl::Status status = (*loader)->next(batch);
    EXPECT_EQ(std::string(status.message()),
              tempPath("lying") + ": document 0, position 2: token id 101 is "
                                  "outside the vocabulary of 100");
  }
}
