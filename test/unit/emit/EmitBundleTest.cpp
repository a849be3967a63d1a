// What the bundle says of a parameter, from stage S6 as text.

#include "codegen/emit/EmitBundle.h"

#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

using namespace mlir;

namespace qwen35 {
namespace {

TEST(EmitBundleTest, WorkingCopiesAreNamedWhereThereAreSome) {
  MLIRContext context;
  context.loadDialect<qplan::QPlanDialect>();
  auto module = parseSourceString<ModuleOp>(R"(
    qplan.arena @state bytes 2048 align 256
    qplan.buffer @w in @state at 0 : tensor<8xf32> as "weights"
    qplan.buffer @m in @state at 256 : tensor<8xf32> as "optimizer"
    qplan.buffer @v in @state at 512 : tensor<8xf32> as "optimizer"
    qplan.buffer @g in @state at 768 : tensor<8xf32> as "gradients"
    qplan.buffer @c in @state at 1024 : tensor<8xbf16> as "weights"
    qplan.param "plain" weight @w m @m v @v grad @g {init = "zeros", decay = false, file_dtype = "f32"}
    qplan.param "cast" weight @w m @m v @v grad @g work @c {init = "zeros", decay = true, file_dtype = "bf16"}
  )",
                                            &context);
  ASSERT_TRUE(module);
  bundle::Bundle out;
  ASSERT_TRUE(succeeded(codegen::emitPlan(
      *module, 64, 3, [](qplan::KernelOp, unsigned, bundle::Kernel &) {},
      out)));
  ASSERT_EQ(out.params_size(), 2);
  EXPECT_FALSE(out.params(0).has_work());
  ASSERT_TRUE(out.params(1).has_work());
  const bundle::Buffer &work = out.buffers(out.params(1).work());
  EXPECT_EQ(work.name(), "c");
  EXPECT_EQ(work.dtype(), bundle::BF16);
  EXPECT_EQ(work.bytes(), 16u);
}

} // namespace
} // namespace qwen35
