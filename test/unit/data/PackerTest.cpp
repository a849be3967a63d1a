#include "runtime/data/loader.h"

#include "test/unit/data/data_test_util.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace qwen35;

namespace {

/// Documents of given lengths; token i of document d is (100 d + i) mod 1000.
std::shared_ptr<const Corpus> makeCorpus(const std::string &name,
                                         const std::vector<int64_t> &lengths) {
  std::vector<Document> documents;
  for (size_t d = 0; d < lengths.size(); ++d) {
    Document document;
    for (int64_t i = 0; i < lengths[d]; ++i)
      document.ids.push_back((100 * static_cast<int64_t>(d) + i) % 1000);
    documents.push_back(document);
  }
  return openCorpus({writeTokens(name, 1000, documents)}, 1000);
}

std::vector<int64_t> randomLengths(std::mt19937 &random, int count,
                                   int64_t longest) {
  std::vector<int64_t> lengths;
  for (int i = 0; i < count; ++i)
    lengths.push_back(1 + random() % longest);
  return lengths;
}

LoaderOptions optionsOf(int64_t tokens, int64_t maxDocs, int64_t rows,
                        uint64_t seed = 1) {
  LoaderOptions options;
  options.shape = {tokens, maxDocs + 1};
  options.rows = rows;
  options.seed = seed;
  return options;
}

Packer makePacker(std::shared_ptr<const Corpus> corpus,
                  const LoaderOptions &options,
                  const LoaderState *resume = nullptr) {
  auto packer = Packer::create(corpus, options, resume);
  EXPECT_TRUE(packer.ok()) << packer.status();
  return *std::move(packer);
}

/// What must hold for any row; labels by the plain definition.
void checkRow(const Corpus &corpus, const LoaderOptions &options,
              const PackedRow &row) {
  int64_t tokens = options.shape.tokens;
  ASSERT_EQ(static_cast<int64_t>(row.ids.size()), tokens);
  ASSERT_EQ(static_cast<int64_t>(row.labels.size()), tokens);
  ASSERT_GE(row.pieces.size(), 1u);
  ASSERT_LE(static_cast<int64_t>(row.pieces.size()), options.shape.maxDocs - 1);
  std::vector<int64_t> lengths;
  int64_t at = 0, valid = 0;
  for (const Piece &piece : row.pieces) {
    int64_t length = corpus.length(piece.document);
    ASSERT_LE(at + piece.length, tokens);
    for (int64_t t = 0; t < piece.length; ++t, ++at) {
      int64_t i = piece.first + t;
      int32_t id, target = -100;
      ASSERT_TRUE(corpus.read(piece.document, i, 1, &id).ok());
      if (i + 1 < length && corpus.counts(piece.document, i + 1))
        ASSERT_TRUE(corpus.read(piece.document, i + 1, 1, &target).ok());
      ASSERT_EQ(row.ids[at], id);
      ASSERT_EQ(row.labels[at], target);
      valid += target != -100;
    }
    lengths.push_back(piece.length);
  }
  EXPECT_EQ(row.realTokens, at);
  EXPECT_EQ(row.validLabels, valid);
  for (; at < tokens; ++at) {
    ASSERT_EQ(row.ids[at], 0);
    ASSERT_EQ(row.labels[at], -100);
  }
  std::vector<int32_t> seq(options.shape.words());
  ASSERT_TRUE(fillSeqTable(options.shape, lengths.data(),
                           static_cast<int64_t>(lengths.size()), seq.data()));
  EXPECT_EQ(row.seq, seq);
}

bool sameRow(const PackedRow &a, const PackedRow &b) {
  return a.ids == b.ids && a.labels == b.labels && a.seq == b.seq &&
         a.pieces == b.pieces;
}

} // namespace

TEST(PermutationTest, IsABijectionForEverySize) {
  for (int64_t count : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097}) {
    Permutation order(count, 42, 3);
    std::vector<bool> seen(count);
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = order(i);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, count);
      ASSERT_FALSE(seen[at]) << count;
      seen[at] = true;
    }
  }
}

TEST(PermutationTest, DependsOnSeedAndEpochAndLooksShuffled) {
  constexpr int64_t kCount = 1000;
  auto draw = [](uint64_t seed, uint64_t epoch) {
    Permutation order(kCount, seed, epoch);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < kCount; ++i)
      all.push_back(order(i));
    return all;
  };
  auto base = draw(1, 0);
  EXPECT_EQ(base, draw(1, 0));
  for (auto other : {draw(1, 1), draw(2, 0), draw(0, 1)}) {
    int same = 0;
    for (int64_t i = 0; i < kCount; ++i)
      same += base[i] == other[i];
    EXPECT_LT(same, 12); // one is expected, 12 has odds below 1e-8
  }
  // Neighbours are far apart: the mean distance of a shuffle is a third.
  double distance = 0;
  for (int64_t i = 1; i < kCount; ++i)
    distance += static_cast<double>(std::abs(base[i] - base[i - 1]));
  EXPECT_NEAR(distance / (kCount - 1), kCount / 3.0, 30);
}

TEST(PermutationTest, LargeCountsStayInside) {
  constexpr int64_t kCount = (int64_t{1} << 40) - 5;
  Permutation order(kCount, 9, 9);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    int64_t at = order(kCount - 1 - i);
    ASSERT_TRUE(at >= 0 && at < kCount);
    ASSERT_TRUE(seen.insert(at).second);
  }
}

TEST(PackerTest, EveryRowIsWhatItsPiecesSay) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 25; ++trial) {
    int64_t tokens = 1 + random() % 200, maxDocs = 1 + random() % 9;
    auto corpus = makeCorpus(
        "rows", randomLengths(random, 1 + random() % 60, 1 + random() % 300));
    LoaderOptions options = optionsOf(tokens, maxDocs, 3, random());
    Packer packer = makePacker(corpus, options);
    Batch batch;
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(packer.next(batch).ok());
      ASSERT_EQ(batch.rows.size(), 3u);
      int64_t real = 0, valid = 0, documents = 0;
      for (const PackedRow &row : batch.rows) {
        checkRow(*corpus, options, row);
        real += row.realTokens;
        valid += row.validLabels;
        documents += static_cast<int64_t>(row.pieces.size());
      }
      EXPECT_EQ(batch.realTokens, real);
      EXPECT_EQ(batch.validLabels, valid);
      EXPECT_EQ(batch.documents, documents);
      EXPECT_EQ(batch.slots, 3 * tokens);
    }
  }
}

TEST(PackerTest, EveryTokenOfAnEpochComesOnceAndNoneIsDropped) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 10; ++trial) {
    int64_t tokens = 20 + random() % 100;
    auto corpus = makeCorpus("once", randomLengths(random, 90, 250));
    Packer packer = makePacker(
        corpus, optionsOf(tokens, 4, 1, static_cast<uint64_t>(trial)));
    std::map<int64_t, std::map<std::pair<int64_t, int64_t>, int64_t>> epochs;
    Batch batch;
    int64_t open = 0; // oldest epoch that may still have pieces to come
    while (open < 3) {
      ASSERT_TRUE(packer.next(batch).ok());
      for (const Piece &piece : batch.rows[0].pieces) {
        auto [at, isNew] = epochs[piece.epoch].insert(
            {{piece.document, piece.first}, piece.length});
        ASSERT_TRUE(isNew) << "a piece came twice";
      }
      open = packer.state().epoch;
      for (const Piece &piece : packer.state().window)
        open = std::min(open, piece.epoch);
    }
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::map<int64_t, int64_t> reached;
      for (auto [at, length] : epochs[epoch]) {
        ASSERT_EQ(reached[at.first], at.second); // parts join up
        reached[at.first] += length;
      }
      for (int64_t d = 0; d < corpus->documents(); ++d)
        ASSERT_EQ(reached[d], corpus->length(d));
    }
  }
}

TEST(PackerTest, SameGlobalBatchHoweverRanksShareIt) {
  std::mt19937 random(3);
  auto corpus = makeCorpus("ranks", randomLengths(random, 50, 90));
  LoaderOptions one = optionsOf(64, 5, 12);
  for (int64_t ranks : {2, 3, 4, 12}) {
    Packer whole = makePacker(corpus, one);
    std::vector<Packer> parts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      LoaderOptions options = one;
      options.dataRanks = ranks;
      options.dataRank = rank;
      parts.push_back(makePacker(corpus, options));
    }
    for (int step = 0; step < 4; ++step) {
      Batch all;
      ASSERT_TRUE(whole.next(all).ok());
      for (int64_t rank = 0; rank < ranks; ++rank) {
        Batch part;
        ASSERT_TRUE(parts[rank].next(part).ok());
        ASSERT_EQ(static_cast<int64_t>(part.rows.size()), 12 / ranks);
        for (size_t i = 0; i < part.rows.size(); ++i)
          EXPECT_TRUE(sameRow(part.rows[i], all.rows[i * ranks + rank]));
        EXPECT_EQ(part.validLabels, all.validLabels);
        EXPECT_EQ(part.realTokens, all.realTokens);
        EXPECT_EQ(part.after, all.after);
      }
    }
  }
}

TEST(PackerTest, RowsDoNotDependOnHowManyAStepTakes) {
  std::mt19937 random(4);
  auto corpus = makeCorpus("steps", randomLengths(random, 50, 90));
  Packer fours = makePacker(corpus, optionsOf(64, 5, 4));
  Packer ones = makePacker(corpus, optionsOf(64, 5, 1));
  for (int step = 0; step < 5; ++step) {
    Batch four, one;
    ASSERT_TRUE(fours.next(four).ok());
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(ones.next(one).ok());
      EXPECT_TRUE(sameRow(one.rows[0], four.rows[i]));
    }
  }
}

TEST(PackerTest, ResumesExactlyAfterAnyStepThroughJson) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 8; ++trial) {
    auto corpus = makeCorpus("resume", randomLengths(random, 40, 200));
    LoaderOptions options = optionsOf(48, 3, 2, random());
    Packer straight = makePacker(corpus, options);
    std::vector<Batch> batches(30);
    for (Batch &batch : batches)
      ASSERT_TRUE(straight.next(batch).ok());
    for (size_t stop = 0; stop + 1 < batches.size(); ++stop) {
      auto state = LoaderState::fromJson(batches[stop].after.toJson());
      ASSERT_TRUE(state.ok()) << state.status();
      ASSERT_EQ(*state, batches[stop].after);
      Packer resumed = makePacker(corpus, options, &*state);
      Batch batch;
      ASSERT_TRUE(resumed.next(batch).ok());
      for (size_t row = 0; row < 2; ++row)
        ASSERT_TRUE(sameRow(batch.rows[row], batches[stop + 1].rows[row]));
      ASSERT_EQ(batch.after, batches[stop + 1].after);
    }
  }
}

TEST(PackerTest, PacksTightlyWhenDocumentsAreShort) {
  std::mt19937 random(6);
  auto corpus = makeCorpus("tight", randomLengths(random, 500, 64));
  Packer packer = makePacker(corpus, optionsOf(256, 32, 50));
  Batch batch;
  ASSERT_TRUE(packer.next(batch).ok());
  EXPECT_GT(static_cast<double>(batch.realTokens), 0.99 * batch.slots);

  // Many more fit into a row than wait in the window.
  auto tiny = makeCorpus("tiny", std::vector<int64_t>(2000, 2));
  Packer filled = makePacker(tiny, optionsOf(1024, 1000, 1));
  ASSERT_TRUE(filled.next(batch).ok());
  EXPECT_EQ(batch.realTokens, 1024);
}

TEST(PackerTest, TheDocumentLimitHolds) {
  auto corpus = makeCorpus("limit", std::vector<int64_t>(100, 1));
  Packer packer = makePacker(corpus, optionsOf(64, 3, 1));
  Batch batch;
  ASSERT_TRUE(packer.next(batch).ok());
  EXPECT_EQ(batch.documents, 3);
  EXPECT_EQ(batch.rows[0].seq[SeqTable::kNumDocs], 4); // and padding
  EXPECT_EQ(batch.rows[0].seq[SeqTable::kRealTokens], 3);
}

TEST(PackerTest, DocumentsOfOneTokenHaveNoLabels) {
  auto corpus = makeCorpus("single", std::vector<int64_t>(10, 1));
  Packer packer = makePacker(corpus, optionsOf(8, 8, 2));
  Batch batch;
  ASSERT_TRUE(packer.next(batch).ok());
  EXPECT_EQ(batch.validLabels, 0);
  EXPECT_EQ(batch.invCount(), 0.0f);
}

TEST(PackerTest, ALongDocumentLosesNoTargetAtItsCuts) {
  auto corpus = makeCorpus("cut", {10});
  Packer packer = makePacker(corpus, optionsOf(4, 2, 3));
  Batch batch;
  ASSERT_TRUE(packer.next(batch).ok());
  // [0..3], [4..7], [8, 9] and the next epoch's pieces do not fit behind.
  EXPECT_EQ(batch.rows[0].labels, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(batch.rows[1].labels, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(batch.rows[2].labels[0], 9);
  EXPECT_EQ(batch.rows[2].labels[1], -100);
  EXPECT_EQ(batch.rows[2].pieces[0], (Piece{0, 0, 8, 2}));
}

TEST(PackerTest, MaskedTargetsAreMinusHundredAndNotCounted) {
  std::vector<Document> documents;
  std::mt19937 random(8);
  for (int d = 0; d < 40; ++d) {
    Document document;
    for (int i = 0, n = 1 + random() % 70; i < n; ++i) {
      document.ids.push_back(random() % 50);
      document.mask.push_back(random() % 2);
    }
    documents.push_back(document);
  }
  auto corpus = openCorpus({writeTokens("masked", 50, documents)}, 50);
  LoaderOptions options = optionsOf(32, 4, 4);
  Packer packer = makePacker(corpus, options);
  Batch batch;
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE(packer.next(batch).ok());
    int64_t valid = 0;
    for (const PackedRow &row : batch.rows) {
      checkRow(*corpus, options, row);
      valid += row.validLabels;
    }
    EXPECT_EQ(batch.validLabels, valid);
  }
}

TEST(PackerTest, EmptyDocumentsInsideAFileArePassedOver) {
  // Only another writer makes such a file: two equal index entries.
  std::string bytes =
      readBytes(writeTokens("hole", 10, {{{1, 2}, {}}, {{3, 4}, {}}}));
  uint64_t four = 4;
  std::memcpy(bytes.data() + 136 + 8, &four, 8);
  auto corpus = openCorpus({writeBytes("hole2", bytes)}, 10);
  ASSERT_EQ(corpus->length(1), 0);
  EXPECT_EQ(corpus->emptyDocuments(), 1);
  Packer packer = makePacker(corpus, optionsOf(4, 4, 3));
  Batch batch;
  ASSERT_TRUE(packer.next(batch).ok());
  for (const PackedRow &row : batch.rows)
    EXPECT_EQ(row.ids, (std::vector<int32_t>{1, 2, 3, 4}));
}

TEST(PackerTest, OptionsWithoutSenseAreRefused) {
  auto corpus = makeCorpus("options", {3});
  auto refuse = [&](LoaderOptions options) {
    auto packer = Packer::create(corpus, options);
    EXPECT_FALSE(packer.ok());
    return std::string(packer.status().message());
  };
  LoaderOptions options = optionsOf(8, 2, 4);
  options.shape.maxDocs = 1;
  EXPECT_NE(refuse(options).find("a row of 8 tokens and 1 documents"),
            std::string::npos);
  options = optionsOf(8, 2, 4);
  options.dataRanks = 3;
  EXPECT_EQ(refuse(options),
            "4 rows per step cannot be dealt to data rank 0 of 3");
  options.dataRanks = 4;
  options.dataRank = 4;
  EXPECT_NE(refuse(options), "");
  options = optionsOf(8, 2, 0);
  EXPECT_NE(refuse(options), "");
}

TEST(PackerTest, ResumeWithOtherDataSeedOrShapeIsRefused) {
  auto corpus = makeCorpus("before", {30, 20, 9});
  auto changed = makeCorpus("after", {30, 20, 8});
  LoaderOptions options = optionsOf(16, 3, 2, 1);
  Packer packer = makePacker(corpus, options);
  Batch batch;
  ASSERT_TRUE(packer.next(batch).ok());
  auto refuse = [&](std::shared_ptr<const Corpus> data, LoaderOptions other) {
    auto resumed = Packer::create(data, other, &batch.after);
    EXPECT_FALSE(resumed.ok());
    return std::string(resumed.status().message());
  };
  EXPECT_EQ(refuse(corpus, optionsOf(16, 3, 2, 2)),
            "cannot continue the data order: train.seed was 1 when the "
            "checkpoint was written and is 2 now");
  EXPECT_NE(refuse(corpus, optionsOf(17, 3, 2)).find("data.tokens was 16"),
            std::string::npos);
  EXPECT_NE(refuse(corpus, optionsOf(16, 4, 2)).find("data.max_docs was 3"),
            std::string::npos);
  EXPECT_NE(refuse(changed, options).find("fingerprint"), std::string::npos);
  // Another number of rows goes on with the same rows.
  EXPECT_TRUE(Packer::create(corpus, optionsOf(16, 3, 5), &batch.after).ok());

  LoaderState bad = batch.after;
  bad.cursor = 3;
  EXPECT_FALSE(Packer::create(corpus, options, &bad).ok());
  bad = batch.after;
  bad.window.push_back({0, 0, 25, 6});
  EXPECT_FALSE(Packer::create(corpus, options, &bad).ok());
  bad.window.back() = {0, 3, 0, 1};
  EXPECT_FALSE(Packer::create(corpus, options, &bad).ok());
}

TEST(LoaderStateTest, DamagedJsonIsNamed) {
  auto refuse = [](const std::string &text) {
    auto state = LoaderState::fromJson(text);
    EXPECT_FALSE(state.ok()) << text;
    return std::string(state.status().message());
  };
  EXPECT_EQ(refuse("[1"), "loader state is not a JSON object");
  EXPECT_EQ(refuse("[]"), "loader state is not a JSON object");
  EXPECT_EQ(refuse("{}"), "loader state has no member version");
  LoaderState state;
  state.documents = 1;
  state.window = {{0, 0, 0, 1}};
  state.seed = ~uint64_t{0};
  std::string good = state.toJson();
  EXPECT_EQ(LoaderState::fromJson(good).value(), state);
  auto replaced = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  EXPECT_EQ(refuse(replaced("\"epoch\":0", "\"epoch\":-1")),
            "loader state: epoch is -1, expected an integer from 0 to "
            "9223372036854775807");
  EXPECT_NE(refuse(replaced("\"version\":1", "\"version\":2")), "");
  EXPECT_EQ(refuse(replaced("[0,0,0,1]", "[0,0,1]")),
            "loader state: [0,0,1] is no piece [epoch, document, first, "
            "length]");
}
