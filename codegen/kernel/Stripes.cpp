#include "codegen/kernel/Stripes.h"

#include "runtime/schema/stripe_table.h"

using namespace mlir;

namespace qwen35::codegen {

FailureOr<int64_t> requireStripes(const KernelSpec &spec, MemRefType stripes,
                                  int64_t tokens, EmitError emitError) {
  Type i32 = IntegerType::get(stripes.getContext(), 32);
  if (failed(requireType(spec, stripes, "stripes", {kAny}, i32, emitError)))
    return failure();
  int64_t ranks = StripeTable::ranksOf(stripes.getDimSize(0));
  if (ranks == 0)
    return emitError() << spec.op << ": stripes has " << stripes.getDimSize(0)
                       << " words, expected 8 and 6 for each of the ranks";
  if (tokens % StripeTable::kLocal != 0)
    return emitError() << spec.op << ": " << tokens
                       << " tokens are not two stripes";
  return ranks;
}

} // namespace qwen35::codegen
