#include "codegen/emit/DescribeStage.h"

namespace qwen35::codegen {

bundle::DType dtypeOf(mlir::Type type) {
  if (type.isF32())
    return bundle::F32;
  if (type.isF64())
    return bundle::F64;
  if (type.isBF16())
    return bundle::BF16;
  if (type.isInteger(32))
    return bundle::I32;
  if (type.isInteger(64))
    return bundle::I64;
  if (type.isInteger(8))
    return bundle::U8;
  return bundle::DTYPE_NONE;
}

static void set(const cuda::Operand &operand, bundle::GemmOperand *out) {
  out->set_arg(operand.arg);
  out->set_offset(operand.offset);
}

void describeStage(const cuda::CompiledStage &compiled, bundle::Kernel &out) {
  out.set_symbol(compiled.symbol);
  out.set_flops(compiled.cost.flops);
  out.set_bytes(compiled.cost.bytes);
  if (const auto *device = std::get_if<cuda::DeviceStage>(&compiled.stage)) {
    out.set_threads(device->threads);
    out.set_shared_bytes(device->sharedBytes);
    out.set_cluster(device->clusterBlocks);
    return;
  }
  const auto &product = std::get<cuda::GemmStage>(compiled.stage);
  bundle::Gemm *gemm = out.mutable_gemm();
  gemm->set_m(product.m);
  gemm->set_n(product.n);
  gemm->set_k(product.k);
  gemm->set_trans_a(product.transA);
  gemm->set_trans_b(product.transB);
  gemm->set_lda(product.lda);
  gemm->set_ldb(product.ldb);
  gemm->set_ldd(product.ldd);
  gemm->set_a_type(dtypeOf(product.typeA));
  gemm->set_b_type(dtypeOf(product.typeB));
  gemm->set_d_type(dtypeOf(product.typeD));
  set(product.a, gemm->mutable_a());
  set(product.b, gemm->mutable_b());
  set(product.d, gemm->mutable_d());
  gemm->set_accumulate(product.accumulate);
  set(product.workspace, gemm->mutable_workspace());
  gemm->set_workspace_bytes(product.workspaceBytes);
}

} // namespace qwen35::codegen
