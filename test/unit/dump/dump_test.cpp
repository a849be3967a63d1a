#include "runtime/dump/batch_file.h"
#include "runtime/dump/dump_file.h"

#include <limits>

#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

MadeTensor ints(const std::string &name, std::vector<int64_t> shape,
                const std::vector<int64_t> &values,
                ElementType type = ElementType::I64) {
  MadeTensor tensor{name, type, std::move(shape), {}};
  for (int64_t value : values)
    for (int64_t i = 0; i < bytesOf(type); ++i)
      tensor.bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return tensor;
}

/// 1, 2, 3, ...
std::vector<int64_t> counting(int64_t count, int64_t first = 1) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(first + i);
  return values;
}

absl::StatusOr<Batch> read(const std::vector<MadeTensor> &tensors,
                           int64_t tokens, int64_t maxDocs,
                           int64_t vocab = 100) {
  TempFolder folder;
  absl::Status status = writeTensors(folder.in("batch.safetensors"), tensors);
  EXPECT_TRUE(status.ok()) << status;
  // The table holds one document more than the user's limit, for padding.
  return readBatch(folder.in("batch.safetensors"),
                   {SeqTable{tokens, maxDocs + 1}, vocab});
}

TEST(BatchFileTest, ShiftsLabelsInsideARowAndPadsTheRest) {
  auto batch = read({ints("input_ids", {1, 4}, {5, 6, 7, 8}),
                     ints("labels", {1, 4}, {5, 6, -100, 8})},
                    6, 1);
  ASSERT_OK(batch);
  ASSERT_EQ(batch->rows.size(), 1u);
  const PackedRow &row = batch->rows[0];
  EXPECT_EQ(row.ids, (std::vector<int32_t>{5, 6, 7, 8, 0, 0}));
  EXPECT_EQ(row.labels,
            (std::vector<int32_t>{6, -100, 8, -100, -100, -100}));
  EXPECT_EQ(row.seq[SeqTable::kNumDocs], 2); // padding is one
  EXPECT_EQ(row.seq[SeqTable::kRealTokens], 4);
  EXPECT_EQ(row.validLabels, 2);
  EXPECT_EQ(batch->validLabels, 2);
  EXPECT_EQ(batch->invCount(), 0.5f);
  EXPECT_EQ(batch->realTokens, 4);
  EXPECT_EQ(batch->slots, 6);
}

TEST(BatchFileTest, RowsShareACompiledRowWhileTheyFit) {
  std::vector<MadeTensor> tensors = {ints("input_ids", {5, 3}, counting(15)),
                                     ints("labels", {5, 3}, counting(15))};
  auto batch = read(tensors, 7, 4); // two rows of three fit seven slots
  ASSERT_OK(batch);
  ASSERT_EQ(batch->rows.size(), 3u);
  EXPECT_EQ(batch->rows[0].ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 0}));
  EXPECT_EQ(batch->rows[0].labels,
            (std::vector<int32_t>{2, 3, -100, 5, 6, -100, -100}));
  EXPECT_EQ(batch->rows[2].ids, (std::vector<int32_t>{13, 14, 15, 0, 0, 0, 0}));
  EXPECT_EQ(batch->documents, 5);
  EXPECT_EQ(batch->validLabels, 10);
  EXPECT_EQ(batch->slots, 21);
  EXPECT_EQ(read(tensors, 15, 4)->rows.size(), 2u); // four documents at most
  EXPECT_EQ(read(tensors, 15, 5)->rows.size(), 1u); // full: no padding
}

TEST(BatchFileTest, OneRowOfDocumentsIsOneCompiledRow) {
  auto batch = read({ints("input_ids", {1, 6}, counting(6), ElementType::I32),
                     ints("labels", {1, 6}, counting(6), ElementType::I32),
                     ints("cu_seqlens", {4}, {0, 2, 3, 6}, ElementType::I32)},
                    8, 3);
  ASSERT_OK(batch);
  ASSERT_EQ(batch->rows.size(), 1u);
  const PackedRow &row = batch->rows[0];
  EXPECT_EQ(row.labels, (std::vector<int32_t>{2, -100, -100, 5, 6, -100, -100,
                                              -100}));
  SeqTable shape{8, 4};
  EXPECT_EQ(row.seq[SeqTable::kNumDocs], 4);
  EXPECT_EQ(row.seq[shape.cuSeqlens() + 2], 3);
  EXPECT_EQ(row.seq[shape.docStart() + 5], 3);
}

TEST(BatchFileTest, BadBatchesAreOneClearErrorEach) {
  auto ids = ints("input_ids", {2, 3}, counting(6));
  auto labels = ints("labels", {2, 3}, counting(6));
  auto rowIds = ints("input_ids", {1, 6}, counting(6));
  auto rowLabels = ints("labels", {1, 6}, counting(6));
  float nan = std::numeric_limits<float>::quiet_NaN();
  float floats[6] = {1, 2, 3, 4, nan, 6};
  MadeTensor nanLabels{"labels", ElementType::F32, {2, 3},
                       std::string(reinterpret_cast<char *>(floats), 24)};
  MadeTensor floatIds = makeTensor("input_ids", ElementType::F32, {2, 3});
  auto cu = [](std::vector<int64_t> values) {
    int64_t count = static_cast<int64_t>(values.size());
    return ints("cu_seqlens", {count}, values);
  };
  struct Bad {
    std::vector<MadeTensor> tensors;
    std::string message;
  } table[] = {
      {{labels}, "has no tensor input_ids"},
      {{ids}, "has no tensor labels"},
      {{floatIds, labels}, "input_ids has dtype F32, expected I64 or I32"},
      {{ids, nanLabels},
       "labels has nan at [1, 1] and dtype F32, expected I64 or I32"},
      {{ints("input_ids", {6}, counting(6)), labels},
       "input_ids has shape [6], expected [rows, tokens]"},
      {{ids, ints("labels", {3, 2}, counting(6))},
       "labels has shape [3, 2], expected that of input_ids, [2, 3]"},
      {{ints("input_ids", {0, 3}, {}), ints("labels", {0, 3}, {})},
       "empty documents cannot be trained on"},
      {{ints("input_ids", {2, 0}, {}), ints("labels", {2, 0}, {})},
       "empty documents cannot be trained on"},
      {{ints("input_ids", {2, 3}, {1, 2, 3, 4, 100, 6}), labels},
       "input_ids has 100 at [1, 1], expected 0 to 99"},
      {{ints("input_ids", {2, 3}, {1, 2, -1, 4, 5, 6}), labels},
       "input_ids has -1 at [0, 2], expected 0 to 99"},
      {{ids, ints("labels", {2, 3}, {1, 2, 3, 4, 5, -101})},
       "labels has -101 at [1, 2], expected 0 to 99 or -100"},
      {{ids, ints("labels", {2, 3}, {1, 2, 3, 4, 5, int64_t{1} << 32})},
       "labels has 4294967296 at [1, 2]"},
      {{ids, ints("labels", {2, 3}, {9, -100, -100, 9, -100, -100})},
       "labels leave no token to train on"},
      {{ints("input_ids", {1, 9}, counting(9)),
        ints("labels", {1, 9}, counting(9))},
       "rows of 9 tokens, the bundle was compiled for 8"},
      {{ids, labels, cu({0, 6})}, "needs input_ids of one row, found 2"},
      {{rowIds, rowLabels, ints("cu_seqlens", {1, 2}, {0, 6})},
       "cu_seqlens has shape [1, 2]"},
      {{rowIds, rowLabels, cu({0})}, "cu_seqlens has shape [1]"},
      {{rowIds, rowLabels, cu({0, 5})},
       "cu_seqlens goes from 0 to 5, expected 0 to 6"},
      {{rowIds, rowLabels, cu({0, 2, 2, 6})},
       "document 1 of cu_seqlens is empty"},
      {{rowIds, rowLabels, cu({0, 4, 2, 6})},
       "document 1 of cu_seqlens ends at 2 before it begins at 4"},
      {{rowIds, rowLabels, cu({0, 1, 2, 3, 6})},
       "cu_seqlens has 4 documents, the bundle was compiled for 3"},
      {{ids, labels, ints("attention_mask", {2, 3}, {1, 1, 0, 1, 1, 1})},
       "attention_mask is 0 at [0, 2]"},
  };
  for (const Bad &bad : table) {
    SCOPED_TRACE(bad.message);
    absl::Status status = read(bad.tensors, 8, 3).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    expectError(status, {"batch.safetensors: ", bad.message});
  }
  EXPECT_TRUE(read({ids, labels, ints("attention_mask", {2, 3},
                                      {1, 1, 1, 1, 1, 1})},
                   8, 3)
                  .ok());
}

std::vector<ParamSpec> twoParams() {
  return {{"model.norm.weight", {2}, "", ElementType::BF16},
          {"lm_head.weight", {1, 2}, "", ElementType::BF16}};
}

TEST(DumpFileTest, WritesScalarsGradientsAndParameters) {
  std::vector<float> a = {1, 2}, b = {3, 4};
  Dump dump;
  dump.loss = {5};
  dump.auxLoss = {0};
  dump.gradNorm = {2.5f};
  dump.grads = {a, b};
  dump.params = {b, a};
  TempFolder folder;
  ASSERT_OK(writeDump(folder.in("x"), twoParams(), dump, false));
  auto file = SafetensorsFile::open(folder.in("x"));
  ASSERT_OK(file);
  EXPECT_EQ(file->tensors().size(), 7u);
  EXPECT_TRUE(file->find("loss")->shape.empty());
  auto floats = [&](const char *name) {
    const TensorInfo *info = file->find(name);
    EXPECT_NE(info, nullptr) << name;
    std::vector<float> values(elementsOf(info->shape));
    toFloat(info->type, file->bytes(*info).data(),
            static_cast<int64_t>(values.size()), values.data());
    return values;
  };
  EXPECT_EQ(floats("loss"), dump.loss);
  EXPECT_EQ(floats("aux_loss"), dump.auxLoss);
  EXPECT_EQ(floats("grad_norm"), dump.gradNorm);
  EXPECT_EQ(floats("grad.model.norm.weight"), a);
  EXPECT_EQ(floats("grad.lm_head.weight"), b);
  EXPECT_EQ(floats("param.model.norm.weight"), b);
  EXPECT_EQ(file->find("param.lm_head.weight")->shape,
            (std::vector<int64_t>{1, 2}));
}

TEST(DumpFileTest, SeveralStepsAreArrays) {
  std::vector<float> a = {1, 2}, b = {3, 4};
  Dump dump{{3, 2, 1}, {0, 0, 0}, {1, 1, 1}, {a, b}, {a, b}};
  TempFolder folder;
  ASSERT_OK(writeDump(folder.in("x"), twoParams(), dump, true));
  EXPECT_EQ(SafetensorsFile::open(folder.in("x"))->find("grad_norm")->shape,
            std::vector<int64_t>{3});
  expectError(writeDump(folder.in("y"), twoParams(), dump, false),
              {"3 losses"});
  dump.grads.pop_back();
  expectError(writeDump(folder.in("y"), twoParams(), dump, true),
              {"1 arrays for grad.NAME, expected 2"});
}

} // namespace
} // namespace qwen35
