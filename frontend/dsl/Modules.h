#ifndef QWEN35_FRONTEND_DSL_MODULES_H
#define QWEN35_FRONTEND_DSL_MODULES_H

#include "frontend/dsl/Builder.h"

namespace qwen35::dsl {

/// A node of the module tree. Constructing one declares its parameters, in the
/// order of its members; calling it appends its ops. The builder must outlive
/// it.
class Module {
public:
  /// `path` is the module's Hugging Face name: model.layers.0.mlp
  Module(Builder &builder, const llvm::Twine &path)
      : builder(builder), modulePath(path.str()) {}

  const std::string &path() const { return modulePath; }

protected:
  std::string child(llvm::StringRef name) const {
    return modulePath + "." + name.str();
  }

  Builder &builder;

private:
  std::string modulePath;
};

/// y = x weight^T; weight: `<path>.weight`, [outputs, inputs].
class Linear : public Module {
public:
  Linear(Builder &builder, const llvm::Twine &path, int64_t inputs,
         int64_t outputs);
  Tensor operator()(Tensor x) const;

  const Tensor weight;
};

/// Rows of `<path>.weight`, [rows, columns], by id.
class Embedding : public Module {
public:
  Embedding(Builder &builder, const llvm::Twine &path, int64_t rows,
            int64_t columns);
  Tensor operator()(Tensor ids) const;

  const Tensor weight;
};

/// RMS norm of the last dim with a weight stored around zero: every norm of the
/// decoder but the gated one. weight: `<path>.weight`, [columns].
class RmsNorm : public Module {
public:
  RmsNorm(Builder &builder, const llvm::Twine &path, int64_t columns,
          double eps);
  Tensor operator()(Tensor x) const;

  const Tensor weight;

private:
  double eps;
};

} // namespace qwen35::dsl

#endif // QWEN35_FRONTEND_DSL_MODULES_H
