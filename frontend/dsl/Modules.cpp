#include "frontend/dsl/Modules.h"

namespace qwen35::dsl {

Linear::Linear(Builder &builder, const llvm::Twine &path, int64_t inputs,
               int64_t outputs)
    : Module(builder, path),
      weight(builder.parameter(child("weight"), {outputs, inputs})) {}

Tensor Linear::operator()(Tensor x) const {
  Builder::Scope scope(builder, path());
  return builder.linear(x, weight);
}

Embedding::Embedding(Builder &builder, const llvm::Twine &path, int64_t rows,
                     int64_t columns)
    : Module(builder, path),
      weight(builder.parameter(child("weight"), {rows, columns})) {}

Tensor Embedding::operator()(Tensor ids) const {
  Builder::Scope scope(builder, path());
  return builder.embed(ids, weight);
}

RmsNorm::RmsNorm(Builder &builder, const llvm::Twine &path, int64_t columns,
                 double eps)
    : Module(builder, path),
      weight(builder.parameter(child("weight"), {columns}, Init::zeros(),
                               builder.fileType())),
      eps(eps) {}

Tensor RmsNorm::operator()(Tensor x) const {
  Builder::Scope scope(builder, path());
  return builder.rmsNorm(x, weight, eps, /*offset=*/1);
}

} // namespace qwen35::dsl
