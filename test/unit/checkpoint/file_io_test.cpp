#include "runtime/checkpoint/file_io.h"

#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

TEST(FileIoTest, AFileAppearsOnlyWhenCommitted) {
  TempFolder folder;
  {
    auto writer = FileWriter::create(folder.in("a"));
    ASSERT_OK(writer);
    ASSERT_OK(writer->append("half"));
    EXPECT_FALSE(exists(folder.in("a")));
  }
  EXPECT_TRUE(listFolder(folder.path)->empty());
  auto writer = FileWriter::create(folder.in("a"));
  ASSERT_OK(writer->append("abc"));
  auto digest = writer->commit();
  ASSERT_OK(digest);
  EXPECT_EQ(digest->bytes, 3);
  EXPECT_EQ(digest->sha256, // FIPS 180-2, B.1
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(readAll(folder.in("a")), "abc");
}

// The file size limit stands for a full disk: writes come back short, then
// fail, as they do at the end of a disk.
TEST(FileIoTest, AFullDiskIsOneErrorAndLeavesNoHalfFile) {
  TempFolder folder;
  ASSERT_OK(writeFile(folder.in("old"), "still here"));
  ignoreFileSizeSignal();
  struct rlimit before, tight;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  tight = before;
  tight.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  absl::Status status =
      writeFile(folder.in("old"), std::string(5000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  expectError(status, {"writing ", "/old: File too large",
                       "1000 bytes written, 4000 more did not fit"});
  EXPECT_EQ(readAll(folder.in("old")), "still here");
  EXPECT_EQ(listFolder(folder.path)->size(), 1u);
}

TEST(FileIoTest, APipeIsRefusedAndNotWaitedFor) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.in("pipe").c_str(), 0600), 0);
  expectError(MappedFile::open(folder.in("pipe")).status(),
              {"is not a regular file"});
  expectError(MappedFile::open(folder.path).status(),
              {"is not a regular file"});
  EXPECT_EQ(MappedFile::open(folder.in("nothing")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(FileIoTest, RemoveAllDoesNotFollowLinks) {
  TempFolder folder;
  ASSERT_OK(makeFolders(folder.in("keep/deep")));
  ASSERT_OK(makeFolders(folder.in("gone/deep")));
  ASSERT_EQ(::symlink("../keep", folder.in("gone/link").c_str()), 0);
  ASSERT_OK(removeAll(folder.in("gone")));
  EXPECT_FALSE(exists(folder.in("gone")));
  EXPECT_TRUE(isFolder(folder.in("keep/deep")));
  EXPECT_TRUE(removeAll(folder.in("gone")).ok());
}

TEST(FileIoTest, AFolderIsReplacedWhole) {
  TempFolder folder;
  ASSERT_OK(makeFolders(folder.in("new")));
  ASSERT_OK(writeFile(folder.in("new/a"), "2"));
  ASSERT_OK(makeFolders(folder.in("name")));
  ASSERT_OK(writeFile(folder.in("name/b"), "1"));
  ASSERT_OK(replaceFolder(folder.in("new"), folder.in("name")));
  EXPECT_EQ(*listFolder(folder.path), std::vector<std::string>{"name"});
  EXPECT_EQ(*listFolder(folder.in("name")), std::vector<std::string>{"a"});
}

} // namespace
} // namespace qwen35
