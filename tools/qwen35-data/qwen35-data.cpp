// qwen35-data: makes token files, and tells what is in one.

#include "runtime/data/corpus.h"
#include "runtime/data/loader.h"
#include "runtime/records/step_record.h"
#include "tools/qwen35-data/convert.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace qwen35;

namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string output;
  std::string format = "auto";
  int64_t vocab = 0;
  bool info = false;
};

absl::Status convert(const Options &options) {
  auto isJsonl = [&](const std::string &path) {
    return options.format == "jsonl" ||
           (options.format == "auto" && absl::EndsWith(path, ".jsonl"));
  };
  int64_t vocab = options.vocab;
  for (const std::string &input : options.inputs) {
    if (isJsonl(input) && vocab == 0)
      return absl::InvalidArgumentError(absl::StrCat(
          input, ": token ids need --vocab, the model's vocabulary size"));
  }
  if (vocab == 0)
    vocab = 256;
  auto writer = TokenFileWriter::create(options.output, vocab);
  if (!writer.ok())
    return writer.status();
  for (const std::string &input : options.inputs) {
    absl::Status status =
        isJsonl(input) ? addJsonl(input, **writer) : addText(input, **writer);
    if (!status.ok())
      return status;
  }
  absl::Status status = (*writer)->finish();
  if (!status.ok())
    return status;
  const TokenFileHeader &head = (*writer)->header();
  std::printf("%s: %s documents, %s tokens, vocabulary %s, %s bytes%s\n",
              options.output.c_str(), groupDigits(head.documents).c_str(),
              groupDigits(head.tokens).c_str(),
              groupDigits(head.vocabSize).c_str(),
              groupDigits(head.fileBytes()).c_str(),
              head.hasMask ? ", with a loss mask" : "");
  if (head.emptyDocuments)
    std::printf("%s empty documents skipped\n",
                groupDigits(head.emptyDocuments).c_str());
  return absl::OkStatus();
}

absl::Status info(const Options &options) {
  CorpusOptions open;
  open.vocabSize = options.vocab ? options.vocab : INT32_MAX;
  open.byteVocabulary = !options.vocab || options.vocab == 256;
  for (const std::string &input : options.inputs) {
    auto corpus = Corpus::open({input}, open);
    if (!corpus.ok())
      return corpus.status();
    absl::Status status = (*corpus)->verify();
    if (!status.ok())
      return status;
    int64_t longest = 0, counted = 0;
    for (int64_t d = 0; d < (*corpus)->documents(); ++d) {
      int64_t length = (*corpus)->length(d);
      longest = std::max(longest, length);
      if (length > 1)
        counted += (*corpus)->countTargets(d, 1, length - 1);
    }
    std::printf(
        "%s: %s\n  longest document %s tokens; %s labels count in the "
        "loss; contents and ids checked\n",
        input.c_str(),
        formatReport(reportCorpus(**corpus, INT32_MAX), INT32_MAX).c_str(),
        groupDigits(longest).c_str(), groupDigits(counted).c_str());
  }
  return absl::OkStatus();
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  CLI::App app("Makes token files for qwen35-run --data from text (ids are its "
               "bytes, one document per paragraph) or from JSONL of token ids "
               "({\"input_ids\": [...], \"loss_mask\": [...]} per line).");
  app.name("qwen35-data");
  app.add_option("input", options.inputs,
                 "text or .jsonl files, written one after the other; with "
                 "--info: token or text files")
      ->required()
      ->type_name("FILE...");
  app.add_option("-o,--output", options.output, "the token file to write")
      ->type_name("OUT");
  app.add_option("--format", options.format,
                 "what the inputs are; auto: .jsonl by name, else text")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}))
      ->capture_default_str();
  app.add_option("--vocab", options.vocab,
                 "vocabulary size; ids are below it (text: 256)")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}));
  app.add_flag("--info", options.info,
               "check the files, all of their contents, and describe them");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.info != options.output.empty()) {
    std::fprintf(stderr, options.info
                             ? "qwen35-data: --info writes nothing; leave out "
                               "-o\n"
                             : "qwen35-data: name the token file to write "
                               "with -o OUT\n");
    return 2;
  }
  absl::Status status = options.info ? info(options) : convert(options);
  if (!status.ok()) {
    std::fprintf(stderr, "qwen35-data: %s\n",
                 std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
