#include "runtime/data/corpus.h"

#include "runtime/data/loader.h"
#include "test/unit/data/data_test_util.h"

using namespace qwen35;

namespace {

std::vector<std::string> paragraphsOf(const std::string &text) {
  std::vector<std::string> found;
  for (auto [begin, end] :
       findParagraphs(reinterpret_cast<const uint8_t *>(text.data()),
                      static_cast<int64_t>(text.size())))
    found.push_back(text.substr(begin, end - begin));
  return found;
}

using Strings = std::vector<std::string>;

} // namespace

TEST(CorpusTest, ParagraphsAreWhatBlankLinesSeparate) {
  EXPECT_EQ(paragraphsOf("one\ntwo\n\nthree\n"),
            (Strings{"one\ntwo", "three"}));
  EXPECT_EQ(paragraphsOf("a\n \t \n\n\n  b"), (Strings{"a", "  b"}));
  EXPECT_EQ(paragraphsOf("\n\n\na\r\nb\r\n\r\nc\r\n"),
            (Strings{"a\r\nb", "c"}));
  EXPECT_EQ(paragraphsOf("x"), (Strings{"x"}));
  EXPECT_EQ(paragraphsOf(""), Strings{});
  EXPECT_EQ(paragraphsOf(" \n\t\n"), Strings{});
  EXPECT_EQ(paragraphsOf("\xc3\xa4 \xff\n"), (Strings{"\xc3\xa4 \xff"}));
}

TEST(CorpusTest, TextIsReadAsBytesByAByteModel) {
  std::string path = writeBytes("text", "hi\n\n\xff\x01z\n");
  auto corpus = openCorpus({path}, 256);
  ASSERT_EQ(corpus->documents(), 2);
  EXPECT_EQ(corpus->tokens(), 5);
  int32_t ids[3];
  ASSERT_TRUE(corpus->read(1, 0, 3, ids).ok());
  EXPECT_EQ(ids[0], 255);
  EXPECT_EQ(ids[1], 1);
  EXPECT_EQ(ids[2], 'z');
  EXPECT_FALSE(corpus->hasMask(0));
  EXPECT_EQ(corpus->countTargets(1, 0, 3), 3);
}

TEST(CorpusTest, FilesAreNumberedThrough) {
  std::string a = writeTokens("fa", 10, {{{1, 2}, {}}, {{3}, {}}});
  std::string b = writeTokens("fb", 20, {{{4, 5, 6}, {0, 1, 0}}});
  auto corpus = openCorpus({a, b, a}, 20);
  ASSERT_EQ(corpus->documents(), 5);
  EXPECT_EQ(corpus->files(), 3);
  EXPECT_EQ(corpus->length(2), 3);
  EXPECT_EQ(corpus->length(3), 2);
  int32_t id;
  ASSERT_TRUE(corpus->read(2, 1, 1, &id).ok());
  EXPECT_EQ(id, 5);
  EXPECT_TRUE(corpus->hasMask(2));
  EXPECT_FALSE(corpus->counts(2, 0));
  EXPECT_TRUE(corpus->counts(2, 1));
  EXPECT_TRUE(corpus->counts(4, 0));
  EXPECT_EQ(corpus->countTargets(2, 0, 3), 1);
}

TEST(CorpusTest, CountsTargetsOverBytesOfBits) {
  std::vector<int64_t> ids(100, 1);
  std::vector<uint8_t> mask(100);
  for (int i = 0; i < 100; ++i)
    mask[i] = i % 3 == 0;
  auto corpus = openCorpus({writeTokens("bits", 2, {{ids, mask}})}, 2);
  for (int64_t first = 0; first < 100; first += 7)
    for (int64_t count = 0; first + count <= 100; count += 5) {
      int64_t expected = 0;
      for (int64_t i = first; i < first + count; ++i)
        expected += mask[i];
      EXPECT_EQ(corpus->countTargets(0, first, count), expected);
    }
}

TEST(CorpusTest, IdOutsideTheModelsVocabularyIsNamed) {
  std::string path =
      writeTokens("outside", 1000, {{{1, 2}, {}}, {{3, 4, 999}, {}}});
  EXPECT_EQ(openError(path, 256, true),
            path + ": document 1, position 2: token id 999 is outside the "
                   "vocabulary of 256");
  // The vocabulary of the file is larger, its ids are not.
  EXPECT_NE(openCorpus({writeTokens("inside", 1000, {{{255}, {}}})}, 256),
            nullptr);
  // A file whose header lies is caught where the id is used.
  std::string bytes = readBytes(writeTokens("lie", 100, {{{1, 2, 3}, {}}}));
  bytes[132] = 101;
  auto corpus = openCorpus({writeBytes("lie2", bytes)}, 100);
  int32_t ids[3];
  EXPECT_EQ(std::string(corpus->read(0, 0, 3, ids).message()),
            tempPath("lie2") + ": document 0, position 2: token id 101 is "
                               "outside the vocabulary of 100");
}

TEST(CorpusTest, WhatIsNoDataIsOneClearError) {
  std::string empty = writeBytes("zero", "");
  EXPECT_EQ(openError(empty, 256, true), empty + ": is empty");
  std::string blank = writeBytes("blank", "\n \n");
  EXPECT_EQ(openError(blank, 256, true),
            blank + ": holds no text, only white space");
  std::string text = writeBytes("plain", "hello");
  EXPECT_EQ(openError(text, 1000),
            text + ": is not a token file (its first bytes are not "
                   "\"Q35TOKS\"), and only a model with a byte vocabulary "
                   "reads text (this one has 1000 ids); convert it with "
                   "qwen35-data");
  std::string binary = writeBytes("binary", std::string("ab\0c", 4));
  EXPECT_EQ(openError(binary, 256, true),
            binary + ": is not a token file (its first bytes are not "
                     "\"Q35TOKS\"), nor text (byte 2 is 0)");
  EXPECT_EQ(openError("/no/such/file", 256, true),
            "cannot open data file /no/such/file: No such file or directory");
  EXPECT_EQ(openError("/", 256, true), "/: is not a regular file");
  EXPECT_FALSE(Corpus::open({}, {256, true}).ok());
}

TEST(CorpusTest, FingerprintFollowsContentAndOrder) {
  std::string a = writeTokens("pa", 10, {{{1, 2}, {}}});
  std::string b = writeTokens("pb", 10, {{{1, 3}, {}}});
  std::string t = writeBytes("pt", "ab"), u = writeBytes("pu", "ac");
  auto print = [](const Strings &paths) {
    return openCorpus(paths, 256)->fingerprint();
  };
  EXPECT_EQ(print({a}), print({a}));
  EXPECT_NE(print({a}), print({b}));
  EXPECT_NE(print({a, b}), print({b, a}));
  EXPECT_NE(print({t}), print({u}));
}

TEST(CorpusTest, ReportCountsWhatPackingWillDo) {
  auto corpus = openCorpus(
      {writeTokens("report", 10,
                   {{{1}, {}}, {{}, {}}, {{1, 2, 3, 4, 5}, {}}, {{1, 2}, {}}})},
      10);
  CorpusReport report = reportCorpus(*corpus, 2);
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.emptyDocuments, 1);
  EXPECT_EQ(report.splitDocuments, 1);
  EXPECT_EQ(report.pieces, 5);
  EXPECT_EQ(formatReport(report, 2),
            "3 documents, 8 tokens in 1 file (1 empty skipped; 1 longer than 2 "
            "split, 5 pieces)");
  EXPECT_EQ(formatReport(
                reportCorpus(*openCorpus({writeBytes("r", "ab")}, 256), 8), 8),
            "1 document, 2 tokens in 1 file");
}
