#include "runtime/data/token_file.h"

#include "runtime/crc/crc32c.h"
#include "test/unit/data/data_test_util.h"

#include <cstring>
#include <random>
#include <sys/resource.h>

using namespace qwen35;

namespace {

/// Sets the header's checksum to what it must be, after a change to it.
void reseal(std::string &bytes) {
  uint32_t crc = crc32c(bytes.data(), 124);
  std::memcpy(bytes.data() + 124, &crc, 4);
}

template <typename T> void poke(std::string &bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

} // namespace

TEST(TokenFileTest, LayoutIsTheDocumentedOne) {
  std::string path =
      writeTokens("layout", 300, {{{1, 2, 299}, {}}, {{7, 8}, {0, 1}}});
  std::string bytes = readBytes(path);
  ASSERT_EQ(bytes.size(), 128u + 16 + 3 * 8 + 1);
  EXPECT_EQ(bytes.substr(0, 8), std::string("Q35TOKS\0", 8));
  auto u16 = [&](size_t at) {
    uint16_t value;
    std::memcpy(&value, bytes.data() + at, 2);
    return value;
  };
  auto u64 = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, bytes.data() + at, 8);
    return value;
  };
  EXPECT_EQ(u16(8), 1);  // version
  EXPECT_EQ(u16(12), 2); // width
  EXPECT_EQ(u64(16), 300u);
  EXPECT_EQ(u64(24), 5u);
  EXPECT_EQ(u64(32), 2u);
  EXPECT_EQ(u64(40), 1u);
  EXPECT_EQ(u64(48), 128u);
  EXPECT_EQ(u64(56), 144u);
  EXPECT_EQ(u64(64), 168u);
  EXPECT_EQ(u64(72), 169u);
  EXPECT_EQ(u16(128), 1);
  EXPECT_EQ(u16(132), 299);
  EXPECT_EQ(u16(136), 8);
  EXPECT_EQ(u64(144), 0u);
  EXPECT_EQ(u64(152), 3u);
  EXPECT_EQ(u64(160), 5u);
  EXPECT_EQ(static_cast<uint8_t>(bytes[168]), 0b10111);
}

TEST(TokenFileTest, SameDocumentsGiveSameBytes) {
  std::vector<Document> documents = {{{1, 2}, {1, 0}}, {{70000}, {}}};
  EXPECT_EQ(readBytes(writeTokens("a", 100000, documents)),
            readBytes(writeTokens("b", 100000, documents)));
}

TEST(TokenFileTest, WideVocabulariesTakeFourBytes) {
  std::string path = writeTokens("wide", 248320, {{{248319, 0, 65536}, {}}});
  auto corpus = openCorpus({path}, 248320);
  int32_t ids[3];
  ASSERT_TRUE(corpus->read(0, 0, 3, ids).ok());
  EXPECT_EQ(ids[0], 248319);
  EXPECT_EQ(ids[2], 65536);
  EXPECT_FALSE(corpus->hasMask(0));
}

TEST(TokenFileTest, EmptyDocumentsAreCountedAndLeftOut) {
  std::string path =
      writeTokens("empties", 10, {{{}, {}}, {{1}, {}}, {{}, {}}});
  auto corpus = openCorpus({path}, 10);
  EXPECT_EQ(corpus->documents(), 1);
  EXPECT_EQ(corpus->emptyDocuments(), 2);
}

TEST(TokenFileTest, WriterNamesWhatItRefuses) {
  std::string path = tempPath("refused");
  EXPECT_FALSE(TokenFileWriter::create(path, 0).ok());
  EXPECT_FALSE(TokenFileWriter::create(path, int64_t{1} << 31).ok());
  {
    auto writer = TokenFileWriter::create(path, 10);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(std::string((*writer)->add({1, 10}).message()),
              "position 1: token id 10 is outside the vocabulary of 10");
    EXPECT_EQ(std::string((*writer)->add({-1}).message()),
              "position 0: token id -1 is outside the vocabulary of 10");
    EXPECT_EQ(std::string((*writer)->add({1, 2}, {1}).message()),
              "loss mask has 1 entries for 2 ids");
    EXPECT_EQ(std::string((*writer)->add({1, 2}, {1, 2}).message()),
              "position 1: loss mask is 2, expected 0 or 1");
    EXPECT_FALSE((*writer)->finish().ok()); // nothing inside
  }
  EXPECT_FALSE(exists(path));
  EXPECT_EQ(
      std::string(
          TokenFileWriter::create("/no/such/dir/x", 10).status().message()),
      "cannot create /no/such/dir/x: No such file or directory");
}

TEST(TokenFileTest, AnUnfinishedFileNeverAppears) {
  std::string path = writeTokens("kept", 10, {{{5}, {}}});
  std::string before = readBytes(path);
  {
    auto writer = TokenFileWriter::create(path, 10);
    ASSERT_TRUE((*writer)->add({1, 2, 3}).ok());
  }
  EXPECT_EQ(readBytes(path), before);
}

TEST(TokenFileTest, FullDiskIsOneErrorAndLeavesNothing) {
  // A limit on file sizes fails a write as a full disk does.
  std::string path = tempPath("full");
  signal(SIGXFSZ, SIG_IGN);
  rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  absl::Status status;
  {
    auto writer = TokenFileWriter::create(path, 256);
    std::vector<uint8_t> bytes(1 << 18, 65);
    for (int i = 0; i < 8 && status.ok(); ++i)
      status = (*writer)->addBytes(bytes);
    if (status.ok())
      status = (*writer)->finish();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(std::string(status.message()),
            "cannot write " + path + ": File too large");
  EXPECT_FALSE(exists(path));
}

TEST(TokenFileTest, DamagedHeadersAreRefusedOneByOne) {
  std::string good =
      readBytes(writeTokens("good", 100, {{{1, 2, 3}, {1, 1, 0}}, {{4}, {}}}));
  struct Damage {
    const char *what;
    void (*change)(std::string &);
    const char *message;
  };
  const Damage damages[] = {
      {"width", [](std::string &b) { poke<uint32_t>(b, 12, 3); },
       "bytes per token is 3, expected 2 or 4"},
      {"version", [](std::string &b) { poke<uint32_t>(b, 8, 2); },
       "version is 2, expected 1"},
      {"vocab", [](std::string &b) { poke<int64_t>(b, 16, 0); },
       "vocabulary size is 0, expected 1 to 65536"},
      {"tokens", [](std::string &b) { poke<int64_t>(b, 24, -1); },
       "tokens is -1"},
      {"huge", [](std::string &b) { poke<int64_t>(b, 24, INT64_MAX); },
       "tokens is 9223372036854775807"},
      {"more", [](std::string &b) { poke<int64_t>(b, 24, 400); },
       "offset of the index is 136, expected 928"},
      {"documents", [](std::string &b) { poke<int64_t>(b, 32, 3); },
       "offset of the mask is 160, expected 168"},
      {"flags", [](std::string &b) { poke<int64_t>(b, 40, 2); },
       "flags is 2, expected 0 to 1"},
      {"tokens offset", [](std::string &b) { poke<int64_t>(b, 48, 64); },
       "offset of the tokens is 64, expected 128"},
      {"size", [](std::string &b) { poke<int64_t>(b, 72, 1); },
       "file size is 1, expected 161"},
      {"reserved", [](std::string &b) { b[100] = 1; },
       "reserved byte is 1, expected 0"},
      {"longer", [](std::string &b) { b += "x"; },
       "token file has 162 bytes, its header says 161"},
      {"truncated", [](std::string &b) { b.resize(150); },
       "token file has 150 bytes, its header says 161; it is truncated"},
      {"index start", [](std::string &b) { poke<uint64_t>(b, 136, 1); },
       "index entry 0 is 1, expected 0"},
      {"index end", [](std::string &b) { poke<uint64_t>(b, 152, 5); },
       "index entry 2 is 5, expected 4"},
      {"index middle",
       [](std::string &b) { poke<uint64_t>(b, 144, uint64_t{1} << 60); },
       "index entry 1 is 1152921504606846976, expected 0 to 4"},
  };
  for (const Damage &damage : damages) {
    std::string bytes = good;
    damage.change(bytes);
    reseal(bytes);
    std::string message = openError(writeBytes("damaged", bytes), 100);
    EXPECT_NE(message.find(damage.message), std::string::npos)
        << damage.what << ": " << message;
  }
  std::string bytes = good;
  bytes[20] ^= 1; // and no new checksum
  EXPECT_NE(openError(writeBytes("damaged", bytes), 100).find("checksum is"),
            std::string::npos);
  bytes = good.substr(0, 100);
  EXPECT_NE(openError(writeBytes("damaged", bytes), 100)
                .find("length is 100, expected 128 bytes"),
            std::string::npos);
}

TEST(TokenFileTest, AnyFlippedBitIsRefusedOrFoundByVerify) {
  std::string good =
      readBytes(writeTokens("flip", 100, {{{1, 2, 3}, {1, 1, 0}}, {{4}, {}}}));
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    auto corpus = Corpus::open({writeBytes("flipped", bytes)}, {100, true});
    if (corpus.ok())
      EXPECT_FALSE((*corpus)->verify().ok()) << "bit " << bit;
  }
}

TEST(TokenFileTest, RandomBytesBehindAValidHeaderNeverLeadOutside) {
  std::string good = readBytes(writeTokens(
      "random", 100, {{{1, 2, 3}, {1, 1, 0}}, {{4}, {}}, {{5, 6}, {}}}));
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    std::string bytes = good;
    for (int i = 0; i < 3; ++i)
      bytes[128 + random() % (bytes.size() - 128)] =
          static_cast<char>(random());
    auto corpus = Corpus::open({writeBytes("randomised", bytes)}, {100, false});
    if (!corpus.ok())
      continue;
    for (int64_t d = 0; d < (*corpus)->documents(); ++d) {
      std::vector<int32_t> ids((*corpus)->length(d));
      (void)(*corpus)->read(d, 0, (*corpus)->length(d), ids.data());
      (void)(*corpus)->countTargets(d, 0, (*corpus)->length(d));
    }
  }
}

TEST(Crc32cTest, KnownVectors) {
  // RFC 3720, B.4, and the check value of the CRC catalogue.
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  std::string data(32, '\0');
  EXPECT_EQ(crc32c(data.data(), 32), 0x8a9136aau);
  data.assign(32, '\xff');
  EXPECT_EQ(crc32c(data.data(), 32), 0x62a8ab43u);
  for (int i = 0; i < 32; ++i)
    data[i] = static_cast<char>(i);
  EXPECT_EQ(crc32c(data.data(), 32), 0x46dd794eu);
  for (int i = 0; i < 32; ++i)
    data[i] = static_cast<char>(31 - i);
  EXPECT_EQ(crc32c(data.data(), 32), 0x113fdb5cu);
  EXPECT_EQ(crc32c("", 0), 0u);
}

TEST(Crc32cTest, PartsGiveTheCrcOfTheWhole) {
  std::string data = "some bytes that do not come in eights, as files do";
  for (size_t cut = 0; cut <= data.size(); ++cut)
    EXPECT_EQ(
        crc32c(data.data() + cut, data.size() - cut, crc32c(data.data(), cut)),
        crc32c(data.data(), data.size()));
}
