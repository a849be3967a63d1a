#ifndef QWEN35_CODEGEN_EMIT_TUNEDPRODUCTS_H
#define QWEN35_CODEGEN_EMIT_TUNEDPRODUCTS_H

#include "runtime/schema/gemm_table.h"

namespace qwen35::codegen {

/// tuned_products.txt, which `qwen35-run --tune` writes.
const GemmTable &tunedProducts();

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_EMIT_TUNEDPRODUCTS_H
