#include "runtime/data/loader.h"

#include "test/unit/data/data_test_util.h"

#include <algorithm>
#include <numeric>

using namespace qwen35;

namespace {

/// Documents whose tokens are all different, of these lengths.
std::shared_ptr<const Corpus> makeCorpus(const std::string &name,
                                         const std::vector<int64_t> &lengths) {
  std::vector<Document> documents;
  int32_t next = 0;
  for (int64_t length : lengths) {
    Document document;
    for (int64_t i = 0; i < length; ++i)
      document.ids.push_back(next++);
    documents.push_back(document);
  }
  return openCorpus({writeTokens(name, 100000, documents)}, 100000);
}

Packer makePacker(std::shared_ptr<const Corpus> corpus,
                  const LoaderOptions &options) {
  auto packer = Packer::create(corpus, options);
  EXPECT_TRUE(packer.ok()) << packer.status();
  return *std::move(packer);
}

LoaderOptions optionsOf(int64_t tokens, int64_t maxDocs) {
  LoaderOptions options;
  options.shape = {tokens, maxDocs + 1};
  options.rows = 3;
  options.seed = 5;
  options.stripeMultiple = 1;
  return options;
}

// Every token of the row is on one rank, with its label, its document and what
// the document had before it.
TEST(StripesTest, RanksTogetherHoldTheRow) {
  auto corpus = makeCorpus(
      "stripes", {9, 1, 30, 17, 4, 4, 4, 60, 2, 12, 11, 12, 13, 100, 5});
  for (int64_t ranks : {1, 2, 3, 4, 8}) {
    LoaderOptions options = optionsOf(48, 6);
    Packer whole = makePacker(corpus, options);
    std::vector<Packer> packers;
    for (int64_t r = 0; r < ranks; ++r) {
      LoaderOptions mine = options;
      mine.stripeRank = r;
      mine.stripeRanks = ranks;
      packers.push_back(makePacker(corpus, mine));
    }
    StripeTable layout{48 / ranks, ranks};
    SeqTable local{layout.tokens, StripeTable::localDocs(7)};
    for (int step = 0; step < 6; ++step) {
      Batch all;
      std::vector<Batch> parts(ranks);
      ASSERT_TRUE(whole.next(all).ok());
      for (int64_t r = 0; r < ranks; ++r) {
        ASSERT_TRUE(packers[r].next(parts[r]).ok());
        // What the loss divides by, and where the run is, is the same on all.
        EXPECT_EQ(parts[r].validLabels, all.validLabels);
        EXPECT_EQ(parts[r].realTokens, all.realTokens);
        EXPECT_EQ(parts[r].after, all.after);
      }
      for (size_t n = 0; n < all.rows.size() && ranks > 1; ++n) {
        const PackedRow &row = all.rows[n];
        EXPECT_TRUE(row.stripes.empty());
        std::vector<int> seen(48, 0);
        int64_t real = 0, labels = 0;
        for (int64_t r = 0; r < ranks; ++r) {
          const PackedRow &part = parts[r].rows[n];
          ASSERT_EQ(static_cast<int64_t>(part.ids.size()), layout.tokens);
          ASSERT_EQ(static_cast<int64_t>(part.seq.size()), local.words());
          ASSERT_EQ(static_cast<int64_t>(part.stripes.size()), layout.words());
          EXPECT_EQ(part.stripes[StripeTable::kRank], r);
          EXPECT_EQ(part.pieces, row.pieces);
          for (int64_t t = 0; t < layout.tokens; ++t) {
            int64_t j = t / layout.rows(), in = t % layout.rows();
            int64_t stripe = part.stripes[StripeTable::kIndex + j];
            EXPECT_EQ(stripe, j == 0 ? r : 2 * ranks - 1 - r);
            int64_t g = stripe * layout.rows() + in;
            ++seen[g];
            EXPECT_EQ(part.ids[t], row.ids[g]);
            EXPECT_EQ(part.labels[t], row.labels[g]);
            int64_t begin = part.seq[local.docStart() + t];
            int64_t position = t - begin;
            if (begin == j * layout.rows())
              position += part.stripes[layout.offset() + stripe];
            EXPECT_EQ(position, g - row.seq[options.shape.docStart() + g]);
          }
          real += part.realTokens;
          labels += part.validLabels;
        }
        EXPECT_EQ(seen, std::vector<int>(48, 1));
        EXPECT_EQ(real, row.realTokens);
        EXPECT_EQ(labels, row.validLabels);
      }
    }
  }
}

TEST(StripesTest, OneRankTakesTheRowAsItIs) {
  auto corpus = makeCorpus("whole", {9, 30, 17});
  LoaderOptions options = optionsOf(45, 3); // odd: no two stripes
  Batch batch;
  ASSERT_TRUE(makePacker(corpus, options).next(batch).ok());
  EXPECT_EQ(batch.rows[0].ids.size(), 45u);
  EXPECT_TRUE(batch.rows[0].stripes.empty());
}

TEST(StripesTest, RefusesWhatCannotBeCut) {
  auto message = [](const absl::Status &status) {
    return std::string(status.message());
  };
  EXPECT_TRUE(checkStripes(8192, 8, 128).ok());
  EXPECT_EQ(
      message(checkStripes(8192, 3, 128)),
      "a row of 8192 tokens cannot be cut into 6 stripes for 3 "
      "context-parallel ranks, each a multiple of 128 tokens; data.tokens "
      "can be 7680 or 8448");
  EXPECT_EQ(
      message(checkStripes(100, 2, 128)),
      "a row of 100 tokens cannot be cut into 4 stripes for 2 "
      "context-parallel ranks, each a multiple of 128 tokens; data.tokens "
      "can be 512");
  EXPECT_FALSE(checkStripes(8192, 0, 128).ok());
  EXPECT_FALSE(checkStripes(8192, int64_t(1) << 61, 128).ok());
  auto corpus = makeCorpus("refused", {9, 30, 17});
  LoaderOptions options = optionsOf(48, 3);
  options.stripeRanks = 2;
  options.stripeRank = 2;
  EXPECT_EQ(message(Packer::create(corpus, options).status()),
            "there is no context-parallel rank 2 of 2");
  options.stripeRank = 1;
  options.stripeMultiple = 128;
  EXPECT_FALSE(Packer::create(corpus, options).ok());
  PackedRow empty;
  EXPECT_EQ(message(cutRow({48, 5}, 0, 2, empty)),
            "a row to cut has 0 ids, 0 labels and 0 words of its document "
            "table, expected 48, 48 and 131");
}

// A row that came without names of its documents, as from a file of batches.
TEST(StripesTest, DocumentsAreThoseOfTheTable) {
  auto corpus = makeCorpus("table", {9, 30, 4});
  LoaderOptions options = optionsOf(48, 3);
  options.rows = 1;
  Batch whole;
  ASSERT_TRUE(makePacker(corpus, options).next(whole).ok());
  for (int64_t rank : {0, 1}) {
    PackedRow named = whole.rows[0], unnamed = whole.rows[0];
    unnamed.pieces.clear();
    ASSERT_TRUE(cutRow(options.shape, rank, 2, named).ok());
    ASSERT_TRUE(cutRow(options.shape, rank, 2, unnamed).ok());
    EXPECT_EQ(unnamed.seq, named.seq);
    EXPECT_EQ(unnamed.stripes, named.stripes);
    EXPECT_EQ(unnamed.ids, named.ids);
  }
}

} // namespace
