#include "codegen/bundle/bundle_writer.h"

#include "runtime/schema/bundle_format.h"
#include "test/unit/bundle/tiny_bundle.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/resource.h>

namespace qwen35 {
namespace {

std::string readFile(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(stream)),
                     std::istreambuf_iterator<char>());
}

class BundleWriterTest : public ::testing::Test {
protected:
  void SetUp() override {
    folder = ::testing::TempDir() + "qwen35-bundle-writer-" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  size_t filesInFolder() const {
    return size_t(std::distance(std::filesystem::directory_iterator(folder),
                                std::filesystem::directory_iterator()));
  }

  std::string folder;
};

TEST_F(BundleWriterTest, SameInputGivesSameBytes) {
  std::vector<uint8_t> kernels = tinyKernels();
  std::string first = folder + "/a.q35", second = folder + "/b.q35";
  ASSERT_TRUE(writeBundle(first, tinyMessage(), {{"k", kernels}}).ok());
  ASSERT_TRUE(writeBundle(second, tinyMessage(), {{"k", kernels}}).ok());
  EXPECT_EQ(readFile(first), readFile(second));
  EXPECT_EQ(readFile(first),
            serializeBundle(tinyMessage(), {{"k", kernels}}).value());
  EXPECT_EQ(filesInFolder(), 2u) << "a temporary file is left over";
}

TEST_F(BundleWriterTest, PutsEveryBlobOnThePageAfterTheOneBefore) {
  std::vector<uint8_t> a(BundleFormat::kPage, 1), b(1, 2), c(5000, 3);
  std::string file =
      serializeBundle(tinyMessage(), {{"a", a}, {"b", b}, {"c", c}}).value();
  bundle::Bundle message;
  ASSERT_TRUE(message.ParseFromString(messageOf(file)));
  ASSERT_EQ(message.blobs_size(), 3);
  uint64_t page = BundleFormat::pageAligned(BundleFormat::kMessageOffset +
                                            messageOf(file).size());
  EXPECT_EQ(message.blobs(0).offset(), page);
  EXPECT_EQ(message.blobs(1).offset(), page + 4096);
  EXPECT_EQ(message.blobs(2).offset(), page + 8192);
  EXPECT_EQ(file.size(), page + 8192 + 5000);
  EXPECT_EQ(file[page + 4096], 2);
}

// Offsets are varints inside the message: one more byte of offset can push the
// message over a page. Try a message of every size around that point.
TEST_F(BundleWriterTest, OffsetsAgreeWithTheMessageThatHoldsThem) {
  std::vector<uint8_t> blob(1, 7);
  for (size_t extra = 0; extra < 64; ++extra) {
    bundle::Bundle message;
    message.mutable_recipe()->set_toml(std::string(16200 + extra, 'x'));
    std::string file = serializeBundle(message, {{"a", blob}}).value();
    ASSERT_TRUE(message.ParseFromString(messageOf(file)));
    EXPECT_EQ(message.blobs(0).offset(),
              BundleFormat::pageAligned(BundleFormat::kMessageOffset +
                                        messageOf(file).size()))
        << extra;
  }
}

TEST_F(BundleWriterTest, FillsInTheSchemaVersion) {
  bundle::Bundle message;
  std::string file = serializeBundle(message, {}).value();
  ASSERT_TRUE(message.ParseFromString(messageOf(file)));
  EXPECT_EQ(message.header().major(), BundleFormat::kMajor);
}

TEST_F(BundleWriterTest, RefusesWhatItCannotPlace) {
  std::vector<uint8_t> blob(1, 7);
  auto refusal = [](const bundle::Bundle &message,
                    absl::Span<const NamedBlob> blobs) {
    absl::StatusOr<std::string> file = serializeBundle(message, blobs);
    return file.ok() ? "accepted" : std::string(file.status().message());
  };
  EXPECT_EQ(refusal({}, {{"a", blob}, {"a", blob}}), "two blobs are named 'a'");
  EXPECT_EQ(refusal({}, {{"", blob}}), "a blob has no name");
  EXPECT_EQ(refusal({}, {{"a", {}}}), "blob 'a' is empty");
  bundle::Bundle filled;
  filled.add_blobs();
  EXPECT_EQ(refusal(filled, {}),
            "the message already lists 1 blobs, but the writer fills that "
            "table");
  bundle::Bundle large;
  large.mutable_recipe()->set_toml(std::string(BundleFormat::kMaxMessage, 'x'));
  EXPECT_NE(refusal(large, {}).find("more than the 67108864"),
            std::string::npos);
}

TEST_F(BundleWriterTest, KeepsTheOldFileWhenItCannotWrite) {
  absl::Status status =
      writeBundle(folder + "/missing/a.q35", tinyMessage(), {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("No such file or directory"),
            absl::string_view::npos);

  // A folder in the way: the rename fails, and no temporary file stays.
  std::filesystem::create_directories(folder + "/a.q35/inside");
  status = writeBundle(folder + "/a.q35", tinyMessage(), {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(filesInFolder(), 1u);
}

// A limit on the size of files stands in for a full disk.
TEST_F(BundleWriterTest, ReportsAFullDisk) {
  std::vector<uint8_t> blob(1 << 16, 7);
  rlimit before, small;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = {4096, before.rlim_max};
  auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  absl::Status status =
      writeBundle(folder + "/a.q35", tinyMessage(), {{"a", blob}});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("File too large"), absl::string_view::npos)
      << status;
  EXPECT_EQ(filesInFolder(), 0u);
}

} // namespace
} // namespace qwen35
