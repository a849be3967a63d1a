#include "runtime/checkpoint/safetensors.h"

#include <fstream>

#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

std::string fileWithHeader(const std::string &header, int64_t dataBytes) {
  std::string text(8, '\0');
  for (int i = 0; i < 8; ++i)
    text[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + header + std::string(dataBytes, '\1');
}

TEST(SafetensorsTest, WritesWhatItReads) {
  TempFolder folder;
  std::vector<MadeTensor> tensors = {
      makeTensor("b", ElementType::BF16, {3}),
      makeTensor("a", ElementType::F32, {2, 2}),
      makeTensor("empty", ElementType::F64, {0, 5}),
      makeTensor("scalar", ElementType::F64, {})};
  tensors.push_back({"ids", ElementType::I64, {2}, std::string(16, '\3')});
  tensors.push_back({"flag", ElementType::BOOL, {1}, std::string(1, '\1')});
  ASSERT_OK(writeTensors(folder.in("x"), tensors));
  auto file = SafetensorsFile::open(folder.in("x"));
  ASSERT_OK(file);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->header().size() % 8, 0u);
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (const MadeTensor &tensor : tensors) {
    const TensorInfo *info = file->find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->type, tensor.type);
    EXPECT_EQ(info->shape, tensor.shape);
    EXPECT_EQ(file->bytes(*info), tensor.bytes);
  }
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(SafetensorsTest, EqualInputGivesEqualBytes) {
  TempFolder folder;
  std::vector<MadeTensor> tensors = {makeTensor("b", ElementType::BF16, {3}),
                                     makeTensor("a", ElementType::F32, {2})};
  ASSERT_OK(writeTensors(folder.in("x"), tensors));
  ASSERT_OK(writeTensors(folder.in("y"), tensors));
  EXPECT_EQ(readAll(folder.in("x")), readAll(folder.in("y")));
}

TEST(SafetensorsTest, ReadsFilesOfTheReferenceImplementation) {
  std::string path = QWEN35_SOURCE_DIR "/test/golden/dense/model.safetensors";
  auto file = SafetensorsFile::open(path);
  ASSERT_OK(file);
  const TensorInfo *info = file->find("model.layers.0.linear_attn.A_log");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->type, ElementType::F32);
}

TEST(SafetensorsTest, RefusesWhatTheFormatForbids) {
  auto one = [](const std::string &entry) {
    return "{\"t\":" + entry + "}";
  };
  auto ok = one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})");
  struct Bad {
    std::string bytes, message;
  } table[] = {
      {"", "too short for a safetensors file, 0 bytes"},
      {"1234567", "too short for a safetensors file, 7 bytes"},
      {std::string(8, '\xff'), "announces a header of 18446744073709551615"},
      {fileWithHeader(ok, 8).substr(0, 30), "truncated: the header has"},
      {fileWithHeader("[]", 0), "does not begin with '{'"},
      {fileWithHeader("{\"t\":", 0), "not valid JSON"},
      {fileWithHeader(ok, 7), "ends at byte 8 of the data, which has 7"},
      {fileWithHeader(ok, 9), "tensors take 8 bytes but the data has 9"},
      {fileWithHeader(one("[[[[[1]]]]]"), 0), "nested deeper than 4"},
      {fileWithHeader(one("[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"), 0),
       "an array has more than 16 elements"},
      {fileWithHeader("{\"a\\u001b[2Jb\":5}", 0),
       "the key \"a\\x1b[2Jb\" has a control character"},
      {fileWithHeader(one("5"), 0), "tensor t is not described by an object"},
      {fileWithHeader(one(R"({"shape":[2],"data_offsets":[0,8]})"), 8),
       "tensor t has no dtype"},
      {fileWithHeader(
           one(R"({"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]})"), 2),
       "dtype F8_E4M3 is not one of"},
      {fileWithHeader(one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"),
                      8),
       "has no shape"},
      {fileWithHeader(
           one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), 8),
       "a dimension that is no count"},
      {fileWithHeader(
           one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), 8),
       "a dimension that is no count"},
      {fileWithHeader(one(R"({"dtype":"F32","shape":[4294967296,4294967296],)"
                          R"("data_offsets":[0,0]})"),
                      0),
       "impossible size"},
      {fileWithHeader(one(R"({"dtype":"F32","shape":[4611686018427387904],)"
                          R"("data_offsets":[0,0]})"),
                      0),
       "impossible size"},
      {fileWithHeader(one(R"({"dtype":"F32","shape":[2]})"), 8),
       "no pair of data_offsets"},
      {fileWithHeader(
           one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), 8),
       "ends at byte 0 before it begins at 8"},
      {fileWithHeader(
           one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8),
       "has 8 bytes but shape [3] of F32 needs 12"},
      {fileWithHeader(
           one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), 8),
       "unknown field \"x\""},
      {fileWithHeader(
           R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
           R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           2),
       "\"t\" appears twice"},
      {fileWithHeader(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "begins at byte 1 of the data, inside another tensor; expected 2"},
      {fileWithHeader(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
           6),
       "begins at byte 4 of the data, leaving a hole; expected 2"},
      {fileWithHeader(R"({"__metadata__":{"a":1}})", 0), "is not a string"},
      {fileWithHeader(R"({"__metadata__":[]})", 0), "is not an object"},
  };
  TempFolder folder;
  for (const Bad &bad : table) {
    ASSERT_OK(writeFile(folder.in("bad"), bad.bytes));
    auto file = SafetensorsFile::open(folder.in("bad"));
    SCOPED_TRACE(bad.message);
    expectError(file.status(), {folder.in("bad"), bad.message});
  }
  ASSERT_OK(writeFile(folder.in("good"), fileWithHeader(ok, 8)));
  EXPECT_TRUE(SafetensorsFile::open(folder.in("good")).ok());
  ASSERT_OK(writeFile(folder.in("none"), fileWithHeader("{}", 0)));
  EXPECT_TRUE(SafetensorsFile::open(folder.in("none")).ok());
}

// Any single damaged byte is either refused or harmless, never a crash.
TEST(SafetensorsTest, SurvivesEveryFlippedHeaderByte) {
  TempFolder folder;
  ASSERT_OK(writeTensors(folder.in("x"),
                         {makeTensor("a", ElementType::F32, {2, 3}),
                          makeTensor("b", ElementType::BF16, {4})}));
  std::string good = readAll(folder.in("x"));
  size_t header = SafetensorsFile::open(folder.in("x"))->header().size();
  for (size_t i = 0; i < header; ++i)
    for (int bit : {0, 4, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      // Without a sync: hundreds of them would take seconds.
      std::ofstream(folder.in("bad"), std::ios::binary) << bad;
      auto file = SafetensorsFile::open(folder.in("bad"));
      if (!file.ok())
        continue;
      size_t total = 0;
      for (const TensorInfo &info : file->tensors())
        total += file->bytes(info).size();
      EXPECT_EQ(total, good.size() - header);
    }
}

TEST(SafetensorsTest, AWriterRefusesNamesTwiceAndWrongLengths) {
  TempFolder folder;
  float zeros[4] = {};
  std::vector<TensorSource> twice = {
      tensorFromBytes("a", ElementType::F32, {4}, zeros),
      tensorFromBytes("a", ElementType::F32, {4}, zeros)};
  expectError(writeSafetensors(folder.in("x"), twice, {}).status(),
              {"\"a\"", "given twice"});
  std::vector<TensorSource> brief = {
      tensorFromBytes("a", ElementType::F32, {3}, zeros)};
  brief[0].shape = {4};
  expectError(writeSafetensors(folder.in("x"), brief, {}).status(),
              {"tensor a gave 12 bytes, expected 16"});
  EXPECT_TRUE(listFolder(folder.path)->empty());
}

} // namespace
} // namespace qwen35
