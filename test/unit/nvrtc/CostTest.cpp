// What stages cost: the figures behind the roofline of a profile.

#include "codegen/cuda/Compile.h"
#include "codegen/cuda/Target.h"
#include "runtime/schema/seq_table.h"

#include "mlir/AsmParser/AsmParser.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

class CostTest : public ::testing::Test {
protected:
  CostTest() { registerAllKernels(); }

  std::vector<StageCost> costs(const std::string &op, const std::string &attrs,
                               const std::string &types) {
    auto signature = dyn_cast_or_null<FunctionType>(parseType(types, &context));
    auto config =
        dyn_cast_or_null<DictionaryAttr>(parseAttribute(attrs, &context));
    if (!signature || !config) {
      ADD_FAILURE() << attrs << ' ' << types;
      return {};
    }
    NamedKernel kernel{op, {op, config, {}, {}}};
    for (Type type : signature.getInputs())
      kernel.spec.inputs.push_back(cast<MemRefType>(type));
    for (Type type : signature.getResults())
      kernel.spec.outputs.push_back(cast<MemRefType>(type));
    auto stages = planStages({kernel}, *gpuTarget("sm_90a"), [&] {
      return emitError(UnknownLoc::get(&context));
    });
    std::vector<StageCost> result;
    EXPECT_TRUE(succeeded(stages)) << op;
    if (succeeded(stages))
      for (const CompiledStage &stage : *stages)
        result.push_back(stage.cost);
    return result;
  }

  StageCost sum(const std::vector<StageCost> &costs) {
    StageCost total;
    for (const StageCost &cost : costs) {
      total.flops += cost.flops;
      total.bytes += cost.bytes;
    }
    return total;
  }

  static std::string text(int64_t number) { return std::to_string(number); }

  MLIRContext context;
};

TEST_F(CostTest, ProductsAndWhatTheyAddTo) {
  StageCost cost = sum(costs(
      "linear", "{}",
      "(memref<64x128xbf16>, memref<256x128xbf16>) -> memref<64x256xbf16>"));
  EXPECT_EQ(cost.flops, 2.0 * 64 * 128 * 256);
  EXPECT_EQ(cost.bytes, 2.0 * (64 * 128 + 256 * 128 + 64 * 256));
  cost = sum(costs("matmul",
                   "{transpose_a = true, transpose_b = false, accumulate = "
                   "true}",
                   "(memref<64x128xbf16>, memref<64x256xbf16>, "
                   "memref<128x256xf32>) -> memref<128x256xf32>"));
  EXPECT_EQ(cost.flops, 2.0 * 64 * 128 * 256);
  EXPECT_EQ(cost.bytes, 2.0 * (64 * 128 + 64 * 256) + 8.0 * 128 * 256);
}

TEST_F(CostTest, OperandsOnceWhereNoRuleSaysOtherwise) {
  StageCost cost = sum(costs("add", "{}",
                             "(memref<64x128xbf16>, memref<64x128xbf16>) -> "
                             "memref<64x128xbf16>"));
  EXPECT_EQ(cost.flops, 0);
  EXPECT_EQ(cost.bytes, 3 * 2.0 * 64 * 128);
}

TEST_F(CostTest, RowsOfTablesThatAreLookedUp) {
  StageCost cost = sum(costs("embed", "{}",
                             "(memref<32xi32>, memref<5000x64xf32>) -> "
                             "memref<32x64xbf16>"));
  EXPECT_EQ(cost.bytes, 32.0 * 4 + 32 * 64 * (4 + 2));
}

TEST_F(CostTest, TheCausalHalfOfAttention) {
  const int64_t tokens = 256, heads = 4, size = 256;
  std::string attrs = "{scale = 0.0625, tokens = 256, max_docs = 2}";
  std::string q = "memref<256x4x256xbf16>", k = "memref<256x2x256xbf16>";
  std::string lse = "memref<256x4xf32>";
  std::string seq = "memref<" + text(SeqTable{tokens, 2}.words()) + "xi32>";
  double product = 2.0 * heads * size * tokens * (tokens + 1) / 2;
  EXPECT_EQ(sum(costs("attention", attrs,
                      "(" + q + ", " + k + ", " + k + ", " + seq + ") -> (" +
                          q + ", " + lse + ")"))
                .flops,
            2 * product);
  double backward = sum(costs("attention_bwd", attrs,
                              "(" + q + ", " + q + ", " + k + ", " + k + ", " +
                                  q + ", " + lse + ", " + seq + ") -> (" + q +
                                  ", " + k + ", " + k + ")"))
                        .flops;
  EXPECT_GE(backward, 5 * product); // 7 where scores are made twice
  EXPECT_LE(backward, 7 * product);
}

TEST_F(CostTest, EveryProductOfTheLoss) {
  std::string operands = "(memref<128x64xbf16>, memref<1000x64xbf16>, "
                         "memref<128xi32>, memref<f32>) -> ";
  StageCost forward = sum(costs("lm_loss", "{}", operands + "memref<f32>"));
  EXPECT_EQ(forward.flops, 2.0 * 128 * 64 * 1000);
  StageCost gradient =
      sum(costs("lm_loss_grad", "{}",
                operands + "(memref<f32>, memref<128x64xbf16>, "
                           "memref<1000x64xf32>)"));
  EXPECT_EQ(gradient.flops, 3 * forward.flops);
  EXPECT_GT(gradient.bytes, forward.bytes);
}

} // namespace
} // namespace qwen35::codegen::cuda
