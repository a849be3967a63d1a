#include "test/unit/bundle/tiny_kernels.h"
#include "test/unit/train/train_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

MadeTensor tokens(const std::string &name, std::vector<int64_t> shape,
                  const std::vector<int64_t> &values) {
  return {name, ElementType::I64, std::move(shape),
          std::string(reinterpret_cast<const char *>(values.data()),
                      values.size() * sizeof(int64_t))};
}

class BatchDoorTest : public testing::Test {
protected:
  /// w is zero but for w[3] = 2; token 3 is followed by 4, 4 by 3.
  void SetUp() override {
    MadeTensor w{"model.w", ElementType::F32, {256}, std::string(1024, '\0')};
    float two = 2;
    std::memcpy(&w.bytes[4 * 3], &two, 4);
    ASSERT_OK(makeFolders(tiny.folder.in("hf")));
    ASSERT_OK(writeTensors(tiny.folder.in("hf/model.safetensors"), {w}));
    ASSERT_OK(writeTensors(tiny.folder.in("batch"),
                           {tokens("input_ids", {2, 3}, {3, 4, 3, 4, 3, 4}),
                            tokens("labels", {2, 3}, {3, 4, 3, 4, 3, 4})}));
    options.bundle = tiny.folder.in("tiny.q35");
    options.weights = tiny.folder.in("hf");
    options.batch = tiny.folder.in("batch");
    options.dump = tiny.folder.in("dump");
    options.sets = {"optim.lr=0.5", "schedule.kind=constant"};
  }

  std::vector<float> floats(const std::string &name) {
    auto file = SafetensorsFile::open(options.dump);
    EXPECT_TRUE(file.ok()) << file.status();
    const TensorInfo *info = file.ok() ? file->find(name) : nullptr;
    EXPECT_NE(info, nullptr) << name;
    if (!info)
      return {};
    std::vector<float> values(elementsOf(info->shape));
    toFloat(info->type, file->bytes(*info).data(),
            static_cast<int64_t>(values.size()), values.data());
    return values;
  }

  TinyRun tiny;
  RunOptions options;
};

// Four labels: 3 -> 4 twice with error 2 - 4, 4 -> 3 twice with error -3.
TEST_F(BatchDoorTest, DumpsOneStep) {
  ASSERT_OK(tiny.run(options));
  EXPECT_EQ(floats("loss"), std::vector<float>{(4 + 9) / 4.0f});
  EXPECT_EQ(floats("aux_loss"), std::vector<float>{0});
  std::vector<float> grad = floats("grad.model.w");
  EXPECT_EQ(grad[3], -1);
  EXPECT_EQ(grad[4], -1.5f);
  EXPECT_EQ(grad[5], 0);
  EXPECT_EQ(floats("grad_norm"), std::vector<float>{3.25f}); // tiny: squared
  std::vector<float> param = floats("param.model.w");
  EXPECT_EQ(param[3], 2.5f);
  EXPECT_EQ(param[4], 0.75f);
  EXPECT_TRUE(SafetensorsFile::open(options.dump)->find("loss")->shape.empty());
}

TEST_F(BatchDoorTest, RepeatsTheBatch) {
  options.steps = 3;
  ASSERT_OK(tiny.run(options));
  std::vector<float> loss = floats("loss");
  ASSERT_EQ(loss.size(), 3u);
  EXPECT_EQ(loss[0], 3.25f);
  EXPECT_EQ(loss[1], (1.5f * 1.5f + 2.25f * 2.25f) / 4);
  EXPECT_GT(loss[1], loss[2]);
  EXPECT_EQ(countLines(tiny.output, "step 3/3"), 1);
}

TEST_F(BatchDoorTest, SeedsAreWeightsToo) {
  options.weights.clear();
  options.initSeed = 1;
  ASSERT_OK(tiny.run(options));
  std::vector<float> first = floats("param.model.w");
  ASSERT_OK(tiny.run(options));
  EXPECT_EQ(floats("param.model.w"), first);
}

TEST_F(BatchDoorTest, ABadBatchIsOneError) {
  ASSERT_OK(writeTensors(
      tiny.folder.in("batch"),
      {tokens("input_ids", {1, 2}, {3, 256}), tokens("labels", {1, 2}, {3, 4})}));
  expectError(tiny.run(options),
              {"input_ids has 256 at [0, 1], expected 0 to 255"});
  EXPECT_FALSE(exists(options.dump));
}

} // namespace
} // namespace qwen35
