#include "tools/qwen35-data/convert.h"

#include "test/unit/data/data_test_util.h"

using namespace qwen35;

namespace {

/// Converts one file of `text`; the message of what went wrong, or nothing.
std::string convert(absl::Status (*add)(const std::string &, TokenFileWriter &),
                    const std::string &text, int64_t vocab,
                    const std::string &output) {
  std::string input = writeBytes("convert_in", text);
  auto writer = TokenFileWriter::create(output, vocab);
  absl::Status status = add(input, **writer);
  if (status.ok())
    status = (*writer)->finish();
  std::string message(status.message());
  size_t at = message.find(input);
  if (at != std::string::npos)
    message.replace(at, input.size(), "IN");
  return message;
}

std::string jsonlError(const std::string &text) {
  return convert(addJsonl, text, 100, tempPath("never"));
}

struct Ran {
  int code;
  std::string output;
};

Ran run(const std::string &arguments) {
  std::string command =
      std::string(QWEN35_BINARY_DIR "/bin/qwen35-data ") + arguments + " 2>&1";
  FILE *pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[256];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe))
    output.append(buffer, n);
  return {WEXITSTATUS(pclose(pipe)), output};
}

} // namespace

TEST(ConvertTest, TextGivesTheSameDocumentsAsReadingItDirectly) {
  std::string text = "one\ntwo\r\n\r\n \nthree\n\n\nfo\xffur";
  std::string output = tempPath("converted");
  ASSERT_EQ(convert(addText, text, 256, output), "");
  auto direct = openCorpus({writeBytes("direct", text)}, 256);
  auto converted = openCorpus({output}, 256);
  ASSERT_EQ(converted->documents(), 3);
  ASSERT_EQ(direct->documents(), 3);
  for (int64_t d = 0; d < 3; ++d) {
    int64_t length = direct->length(d);
    ASSERT_EQ(converted->length(d), length);
    std::vector<int32_t> a(length), b(length);
    ASSERT_TRUE(direct->read(d, 0, length, a.data()).ok());
    ASSERT_TRUE(converted->read(d, 0, length, b.data()).ok());
    EXPECT_EQ(a, b);
  }
  EXPECT_EQ(convert(addText, " \n\n", 256, output),
            "IN: holds no text, only white space");
  EXPECT_EQ(convert(addText, "a\n\nbz", 120, output),
            "IN: paragraph 1: position 1: token id 122 is outside the "
            "vocabulary of 120");
}

TEST(ConvertTest, JsonlTakesIdsUnderTheirUsualNamesAndMasks) {
  std::string output = tempPath("jsonl");
  ASSERT_EQ(convert(addJsonl,
                    "{\"input_ids\": [1, 2, 3], \"loss_mask\": [0, 1, 1]}\n"
                    "\n"
                    "{\"ids\": [4], \"source\": \"x\"}\n"
                    "[5, 6]\n"
                    "{\"tokens\": []}\n"
                    "{\"tokens\": [7, 8], \"loss_mask\": [true, false]}",
                    100, output),
            "");
  auto corpus = openCorpus({output}, 100);
  ASSERT_EQ(corpus->documents(), 4);
  EXPECT_EQ(corpus->emptyDocuments(), 1);
  EXPECT_EQ(corpus->tokens(), 8);
  bool expected[] = {false, true, true};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(corpus->counts(0, i), expected[i]);
  EXPECT_TRUE(corpus->counts(1, 0)); // no mask: counts
  EXPECT_TRUE(corpus->counts(3, 0));
  EXPECT_FALSE(corpus->counts(3, 1));
  EXPECT_TRUE(corpus->verify().ok());
}

TEST(ConvertTest, JsonlFaultsNameFileLineAndPosition) {
  EXPECT_EQ(jsonlError("{\"ids\": [1]}\n{\"ids\": [1, 100]}\n"),
            "IN:2: position 1: token id 100 is outside the vocabulary of 100");
  EXPECT_EQ(jsonlError("{\"ids\": [1,]}"), "IN:1: is not valid JSON");
  EXPECT_EQ(jsonlError("{\"text\": \"hi\"}"),
            "IN:1: has no list of ids named input_ids, ids or tokens");
  EXPECT_EQ(jsonlError("{\"ids\": [1], \"tokens\": [1]}"),
            "IN:1: has more than one of input_ids, ids and tokens");
  EXPECT_EQ(jsonlError("{\"ids\": \"1 2\"}"),
            "IN:1: the ids are no list but \"1 2\"");
  EXPECT_EQ(jsonlError("{\"ids\": [1.5]}"),
            "IN:1: position 0: token id 1.5 is not an integer");
  EXPECT_EQ(jsonlError("{\"ids\": [18446744073709551615]}"),
            "IN:1: position 0: token id 18446744073709551615 is not an "
            "integer");
  EXPECT_EQ(jsonlError("{\"ids\": [1, 2], \"loss_mask\": [1]}"),
            "IN:1: loss_mask has 1 entries for 2 ids");
  EXPECT_EQ(jsonlError("{\"ids\": [1], \"loss_mask\": [0.5]}"),
            "IN:1: position 0: loss_mask is 0.5, expected 0 or 1");
  EXPECT_EQ(jsonlError("{\"ids\": [1], \"loss_mask\": null}"),
            "IN:1: loss_mask is no list but null");
  EXPECT_EQ(jsonlError("{\"ids\": []}").substr(0, 17), "nothing to write ");
  EXPECT_FALSE(exists(tempPath("never")));
}

TEST(ConvertTest, ToolConvertsChecksAndDescribes) {
  std::string text = writeBytes("tool.txt", "hello\n\nworld!\n");
  std::string ids = writeBytes("tool.jsonl", "[1,2]\n[]\n[255]\n");
  std::string output = tempPath("tool.q35tok");
  Ran ran = run(text + " " + ids + " --vocab 256 -o " + output);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(ran.output, output + ": 4 documents, 14 tokens, vocabulary 256, "
                                 "200 bytes\n1 empty documents skipped\n");
  ran = run("--info " + output);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(ran.output,
            output + ": 4 documents, 14 tokens in 1 file (1 empty skipped)\n"
                     "  longest document 6 tokens; 10 labels count in the "
                     "loss; contents and ids checked\n");

  ran = run(ids + " -o " + output);
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.output, "qwen35-data: " + ids +
                            ": token ids need --vocab, the model's vocabulary "
                            "size\n");
  EXPECT_EQ(run(text).code, 2);
  EXPECT_EQ(run("--info " + text + " -o x").code, 2);
  EXPECT_NE(run("--bogus").code, 0);
  ran = run("--info /no/such");
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.output, "qwen35-data: cannot open data file /no/such: No such "
                        "file or directory\n");
}
