#include "runtime/bundle/bundle_reader.h"

#include "codegen/bundle/bundle_writer.h"
#include "runtime/bundle/wire_scan.h"
#include "runtime/schema/bundle_format.h"
#include "test/unit/bundle/tiny_bundle.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace qwen35 {
namespace {

absl::Status parse(const std::string &file) {
  return BundleFile::parse(asBytes(file)).status();
}

bool contains(const absl::Status &status, const std::string &part) {
  return status.message().find(part) != absl::string_view::npos;
}

/// Every error is one sentence: something is said, in one line.
void expectOneSentence(const absl::Status &status) {
  EXPECT_GT(status.message().size(), 10u) << status;
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << status;
  EXPECT_LT(status.message().size(), 1000u) << status;
}

TEST(BundleReaderTest, ReadsBackWhatWasWritten) {
  std::string path = ::testing::TempDir() + "qwen35-reads-back.q35";
  std::vector<uint8_t> kernels = tinyKernels(), table(100, 5);
  ASSERT_TRUE(writeBundle(path, tinyMessage(),
                          {{"kernels.so", kernels}, {"table", table}})
                  .ok());
  auto file = BundleFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), std::filesystem::file_size(path));
  EXPECT_EQ((*file)->digest().size(), 64u);
  EXPECT_EQ((*file)->blob(0), absl::MakeConstSpan(kernels));
  EXPECT_EQ((*file)->blob(1), absl::MakeConstSpan(table));
  bundle::Bundle message = (*file)->message();
  EXPECT_EQ(message.blobs(1).name(), "table");
  message.clear_blobs();
  EXPECT_EQ(message.SerializeAsString(), tinyMessage().SerializeAsString());
  std::filesystem::remove(path);
}

TEST(BundleReaderTest, SaysWhyAFileCannotBeRead) {
  std::string folder = ::testing::TempDir();
  absl::Status status =
      BundleFile::open(folder + "/qwen35-nowhere.q35").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(contains(status, "qwen35-nowhere.q35: cannot open: No such"));
  status = BundleFile::open(folder).status();
  EXPECT_TRUE(contains(status, "not a regular file")) << status;
  std::string empty = folder + "qwen35-empty.q35";
  std::ofstream(empty).close();
  EXPECT_TRUE(contains(BundleFile::open(empty).status(), "is empty"));
  std::filesystem::remove(empty);
}

TEST(BundleReaderTest, RefusesEveryTruncation) {
  std::string file = tinyBundle();
  size_t message = messageOf(file).size() + BundleFormat::kMessageOffset;
  for (size_t length = 0; length < file.size();
       length += length < message + 64 || length + 64 > file.size() ? 1 : 97) {
    absl::Status status = parse(file.substr(0, length));
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss)
        << length << ": " << status;
    expectOneSentence(status);
  }
  EXPECT_TRUE(contains(parse(file + '\0'), "its contents end after"));
}

// Nothing in the file is without meaning, so no flipped bit goes unnoticed.
TEST(BundleReaderTest, RefusesEveryFlippedBitOfTheFile) {
  std::string file = tinyBundle();
  ASSERT_TRUE(parse(file).ok()) << parse(file);
  for (size_t i = 0; i < file.size(); ++i) {
    std::string flipped = file;
    flipped[i] = char(flipped[i] ^ (1 << (i % 8)));
    absl::Status status = parse(flipped);
    ASSERT_FALSE(status.ok()) << "byte " << i;
    expectOneSentence(status);
  }
}

// With the digest made right, the message itself is what stands in the way.
TEST(BundleReaderTest, SurvivesEveryFlippedBitOfTheMessage) {
  std::string file = tinyBundle();
  std::string message = messageOf(file);
  size_t accepted = 0;
  for (size_t bit = 0; bit < 8 * message.size(); ++bit) {
    std::string flipped = message;
    flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << (bit % 8)));
    absl::Status status = parse(withMessage(file, flipped));
    if (status.ok())
      ++accepted; // a letter of a name, for example
    else
      expectOneSentence(status);
  }
  // Names and numbers without a rule are a small part of the message.
  EXPECT_LT(accepted, 8 * message.size() / 2);
}

TEST(BundleReaderTest, SurvivesEveryTruncationOfTheMessage) {
  std::string file = tinyBundle();
  std::string message = messageOf(file);
  size_t accepted = 0;
  for (size_t length = 0; length < message.size(); ++length)
    accepted += parse(withMessage(file, message.substr(0, length))).ok();
  // Only the planned peak and the compiler's name can be absent at the end.
  EXPECT_LE(accepted, 2u);
}

TEST(BundleReaderTest, ReportsOtherVersionsAsSuch) {
  std::string file = tinyBundle();
  file[BundleFormat::kVersionOffset] = 2;
  absl::Status status = parse(file);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(contains(status, "version 2, this reader knows version 1"));

  status = parse(tinyBundle([](bundle::Bundle &message) {
    message.mutable_header()->set_major(2);
    message.clear_programs(); // Whatever version 2 is like.
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(contains(status, "schema version 2.0")) << status;

  status = parse(tinyBundle([](bundle::Bundle &message) {
    message.mutable_header()->add_features("streams");
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(contains(status, "needs the feature 'streams'")) << status;

  EXPECT_TRUE(parse(tinyBundle([](bundle::Bundle &message) {
                message.mutable_header()->set_minor(9);
              })).ok());
}

// Field 15 stands for what a later minor version might add.
TEST(BundleReaderTest, AcceptsUnknownFieldsButNotUnknownPlanEntries) {
  std::string file = tinyBundle();
  std::string message = messageOf(file);
  // Field 20.
  absl::Status status =
      parse(withMessage(file, message + std::string("\xa2\x01\x03"
                                                    "new")));
  EXPECT_TRUE(status.ok()) << status;

  // An entry of field 10 (programs) > 2 (entries) > 7.
  std::string program = std::string("\x0a\x04"
                                    "eval"
                                    "\x12\x02\x3a\x00",
                                    10);
  std::string withEntry = message + "\x52" + char(program.size()) + program;
  status = parse(withMessage(file, withEntry));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(contains(status, "a plan entry holds field 7")) << status;
}

TEST(BundleReaderTest, BoundsTheMemoryOfParsing) {
  std::string file = tinyBundle();
  std::string many;
  many.reserve(2 * (uint64_t(1) << 22) + 2);
  for (uint64_t i = 0; i <= uint64_t(1) << 22; ++i)
    many += std::string("\x3a\x00", 2); // an empty buffer
  absl::Status status = parse(withMessage(file, many));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(contains(status, "more than 4194304 strings and submessages"))
      << status;
}

TEST(BundleReaderTest, NamesTheBlobThatChanged) {
  std::string file = tinyBundle();
  file[file.size() - 1] ^= 1;
  absl::Status status = parse(file);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(contains(status, "blob 0 'kernels.so' has SHA-256 ")) << status;
}

TEST(BundleReaderTest, RefusesBlobsElsewhere) {
  std::string file = tinyBundle();
  auto changed = [&](const std::function<void(bundle::Blob &)> &change) {
    bundle::Bundle message;
    message.ParseFromString(messageOf(file));
    change(*message.mutable_blobs(0));
    return parse(withMessage(file, message.SerializeAsString()));
  };
  EXPECT_TRUE(
      contains(changed([](bundle::Blob &blob) { blob.set_offset(UINT64_MAX); }),
               "said to begin at byte 18446744073709551615"));
  EXPECT_TRUE(
      contains(changed([](bundle::Blob &blob) { blob.set_size(UINT64_MAX); }),
               "the file ends after"));
  EXPECT_TRUE(contains(changed([](bundle::Blob &blob) { blob.set_size(0); }),
                       "is empty"));
  EXPECT_TRUE(
      contains(changed([](bundle::Blob &blob) { blob.set_sha256("short"); }),
               "but the message says 73686f7274"));
}

} // namespace
} // namespace qwen35
