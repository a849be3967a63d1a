#include "frontend/dsl/Builder.h"

#include "dialect/Qwen35/IR/StepAttrs.h"
#include "frontend/config/Text.h"

#include "mlir/IR/Verifier.h"

#include "llvm/Support/FormatVariadic.h"

namespace qwen35::dsl {

using mlir::NamedAttribute;
using mlir::RankedTensorType;
using mlir::Type;
using mlir::Value;

Init Init::normal(double deviation) {
  return {"normal(" + shortestReal(deviation) + ")"};
}

Init Init::logUniform(double low, double high) {
  return {"log_uniform(" + shortestReal(low) + "," + shortestReal(high) + ")"};
}

Builder::Builder(mlir::MLIRContext &context, const Options &options)
    : options(options), builder(&context),
      location(mlir::NameLoc::get(mlir::StringAttr::get(&context, "model"))) {
  context.loadDialect<mlir::func::FuncDialect, Qwen35Dialect>();
  auto seq = SeqType::getChecked([&] { return mlir::emitError(location); },
                                 &context, options.tokens, options.maxDocs);
  // Placeholder sizes keep every handle valid after a wrong one.
  hasFailed = !seq;
  int64_t tokens = hasFailed ? 1 : options.tokens;
  if (hasFailed)
    seq = SeqType::get(&context, 1, 1);

  auto row = RankedTensorType::get({tokens}, builder.getI32Type());
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  module = mlir::ModuleOp::create(location);
  builder.setInsertionPointToEnd(module->getBody());
  function = mlir::func::FuncOp::create(
      builder, location, "model",
      builder.getFunctionType({row, row, seq, scalar, scalar}, {}));
  constexpr llvm::StringRef names[] = {"ids", "labels", "seq", "inv_count",
                                       "aux_scale"};
  for (auto [index, name] : llvm::enumerate(names))
    function.setArgAttr(index, kNameAttr, builder.getStringAttr(name));
  mlir::Block *body = function.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  idsInput = Tensor(body->getArgument(0));
  labelsInput = Tensor(body->getArgument(1));
  seqInput = Documents(body->getArgument(2));
  invCountInput = Tensor(body->getArgument(3));
  auxScaleInput = Tensor(body->getArgument(4));
}

Builder::Scope::Scope(Builder &builder, llvm::StringRef path)
    : builder(builder), outer(builder.location) {
  path.consume_front("model.");
  builder.location = mlir::NameLoc::get(builder.builder.getStringAttr(path));
}

Tensor Builder::fail(const llvm::Twine &message) {
  hasFailed = true;
  mlir::emitError(location) << message;
  return {};
}

bool Builder::check(llvm::StringRef op, llvm::ArrayRef<Operand> operands) {
  for (const Operand &operand : operands)
    if (!operand.tensor) {
      // Either a reported mistake, or a handle that was never filled.
      if (!hasFailed)
        fail(op + ": " + operand.name + " is an empty tensor");
      return false;
    }
  for (const Operand &operand : operands)
    if (operand.rank != kAnyRank && operand.tensor.rank() != operand.rank) {
      std::string type;
      llvm::raw_string_ostream(type) << operand.tensor.type();
      fail(llvm::formatv("{0}: {1} is {2}, expected rank {3}", op, operand.name,
                         type, operand.rank));
      return false;
    }
  return true;
}

NamedAttribute Builder::real(llvm::StringRef name, double value) {
  return builder.getNamedAttr(name, builder.getF64FloatAttr(value));
}

NamedAttribute Builder::integer(llvm::StringRef name, int64_t value) {
  return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
}

NamedAttribute Builder::flag(llvm::StringRef name, bool value) {
  return builder.getNamedAttr(name, builder.getBoolAttr(value));
}

/// Infers the result types first: `Op::create` without them would end the
/// process on the first wrong shape.
template <typename Op>
llvm::SmallVector<Tensor, 3>
Builder::infer(mlir::ValueRange operands,
               llvm::ArrayRef<NamedAttribute> attrs) {
  typename Op::Properties properties{};
  mlir::DictionaryAttr dictionary = builder.getDictionaryAttr(attrs);
  llvm::SmallVector<Tensor, 3> results;
  auto refused = [&] {
    hasFailed = true; // The op has said why.
    results.resize(3);
    return results;
  };
  if constexpr (!std::is_same_v<typename Op::Properties, mlir::EmptyProperties>)
    if (mlir::failed(Op::setPropertiesFromAttr(
            properties, dictionary, [&] { return mlir::emitError(location); })))
      return refused();
  llvm::SmallVector<Type> types;
  if (mlir::failed(Op::inferReturnTypes(builder.getContext(), location,
                                        operands, dictionary, &properties, {},
                                        types)))
    return refused();
  auto op = Op::create(builder, location, mlir::TypeRange(types), operands,
                       properties);
  for (Value result : op->getResults())
    results.push_back(Tensor(result));
  results.resize(3);
  return results;
}

template <typename Op>
llvm::SmallVector<Tensor, 3>
Builder::append(llvm::ArrayRef<Operand> operands,
                llvm::ArrayRef<NamedAttribute> attrs, bool withDocuments) {
  llvm::StringRef name = Op::getOperationName();
  if (!check(name, operands))
    return llvm::SmallVector<Tensor, 3>(3);
  llvm::SmallVector<Value> values;
  for (const Operand &operand : operands)
    values.push_back(operand.tensor.value());
  if (withDocuments) // Always the last operand.
    values.push_back(seqInput.value());
  return infer<Op>(values, attrs);
}

Tensor Builder::parameter(const llvm::Twine &name,
                          llvm::ArrayRef<int64_t> shape, const Init &init,
                          FileType fileType) {
  std::string text = name.str();
  if (!names.insert(text).second)
    return fail("parameter \"" + text +
                "\" was declared before, expected a new name");
  for (int64_t size : shape)
    if (size < 1)
      return fail(llvm::formatv("parameter \"{0}\" has a dimension of {1}, "
                                "expected at least 1",
                                text, size));
  Scope scope(*this, llvm::StringRef(text).rsplit('.').first);
  mlir::OpBuilder::InsertionGuard guard(builder);
  if (lastParameter)
    builder.setInsertionPointAfter(lastParameter);
  else
    builder.setInsertionPointToStart(builder.getInsertionBlock());
  auto type = RankedTensorType::get(shape, builder.getF32Type());
  lastParameter = ParamOp::create(
      builder, location, type, text, init.text, /*decay=*/shape.size() >= 2,
      fileType == FileType::Float32 ? "f32" : "bf16");
  return Tensor(lastParameter->getResult(0));
}

Tensor Builder::parameter(const llvm::Twine &name,
                          llvm::ArrayRef<int64_t> shape) {
  return parameter(name, shape, Init::normal(options.initializerRange),
                   options.fileType);
}

Tensor Builder::linear(Tensor x, Tensor weight) {
  return append<LinearOp>({{"x", x, 2}, {"weight", weight, 2}}, {})[0];
}

Tensor Builder::matmul(Tensor a, Tensor b, bool transposeA, bool transposeB) {
  return append<MatmulOp>(
      {{"a", a, 2}, {"b", b, 2}},
      {flag("transpose_a", transposeA), flag("transpose_b", transposeB)})[0];
}

Tensor Builder::swiglu(Tensor gate, Tensor up) {
  return append<SwigluOp>({{"gate", gate, 2}, {"up", up, 2}}, {})[0];
}

Tensor Builder::add(Tensor a, Tensor b) {
  return append<AddOp>({{"a", a, kAnyRank}, {"b", b, kAnyRank}}, {})[0];
}

Tensor Builder::scale(Tensor x, double factor) {
  return append<ScaleOp>({{"x", x, kAnyRank}}, {real("factor", factor)})[0];
}

Tensor Builder::mulScalar(Tensor x, Tensor scalar) {
  return append<MulScalarOp>({{"x", x, kAnyRank}, {"s", scalar, 0}}, {})[0];
}

Tensor Builder::reshape(Tensor x, llvm::ArrayRef<int64_t> shape) {
  if (!check("qwen35.reshape", {{"x", x, kAnyRank}}))
    return {};
  int64_t elements = 1;
  for (int64_t size : shape)
    elements *= size;
  if (elements != x.type().getNumElements())
    return fail(llvm::formatv(
        "qwen35.reshape: x has {0} elements but the result has {1}",
        x.type().getNumElements(), elements));
  return Tensor(
      ReshapeOp::create(builder, location, x.type().clone(shape), x.value()));
}

Tensor Builder::slice(Tensor x, int64_t axis, int64_t start, int64_t size) {
  return append<SliceOp>({{"x", x, kAnyRank}},
                         {integer("axis", axis), integer("start", start),
                          integer("size", size)})[0];
}

Tensor Builder::concat(llvm::ArrayRef<Tensor> parts, int64_t axis) {
  llvm::SmallVector<Operand> operands;
  for (Tensor part : parts)
    operands.push_back({"an input", part, kAnyRank});
  return append<ConcatOp>(operands, {integer("axis", axis)})[0];
}

Tensor Builder::zeros(llvm::ArrayRef<int64_t> shape) {
  return Tensor(ZerosOp::create(
      builder, location, RankedTensorType::get(shape, builder.getF32Type())));
}

Tensor Builder::rmsNorm(Tensor x, Tensor weight, double eps, double offset) {
  return append<RmsNormOp>({{"x", x, kAnyRank}, {"weight", weight, 1}},
                           {real("eps", eps), real("offset", offset)})[0];
}

Tensor Builder::gatedRmsNorm(Tensor o, Tensor z, Tensor weight, double eps) {
  return append<GatedRmsNormOp>(
      {{"o", o, 3}, {"z", z, 3}, {"weight", weight, 1}}, {real("eps", eps)})[0];
}

Tensor Builder::ropeTable(double theta, int64_t rotaryDim) {
  return append<RopeTableOp>(
      {}, {real("theta", theta), integer("rotary_dim", rotaryDim)},
      /*withDocuments=*/true)[0];
}

Tensor Builder::rope(Tensor x, Tensor table) {
  return append<RopeOp>({{"x", x, 3}, {"table", table, 3}},
                        {flag("inverse", false)})[0];
}

Tensor Builder::attention(Tensor q, Tensor k, Tensor v, double scale) {
  return append<AttentionOp>({{"q", q, 3}, {"k", k, 3}, {"v", v, 3}},
                             {real("scale", scale)},
                             /*withDocuments=*/true)[0];
}

Tensor Builder::mulSigmoid(Tensor x, Tensor gate) {
  return append<MulSigmoidOp>({{"x", x, kAnyRank}, {"gate", gate, kAnyRank}},
                              {})[0];
}

Tensor Builder::causalConv(Tensor x, Tensor weight) {
  return append<CausalConvOp>({{"x", x, 2}, {"weight", weight, 3}}, {},
                              /*withDocuments=*/true)[0];
}

Builder::Gates Builder::gdnGates(Tensor a, Tensor b, Tensor aLog,
                                 Tensor dtBias) {
  auto results = append<GdnGatesOp>(
      {{"a", a, 2}, {"b", b, 2}, {"a_log", aLog, 1}, {"dt_bias", dtBias, 1}},
      {});
  return {results[0], results[1]};
}

Tensor Builder::gatedDeltaRule(Tensor q, Tensor k, Tensor v, Gates gates,
                               double scale, double eps) {
  return append<GatedDeltaRuleOp>({{"q", q, 3},
                                   {"k", k, 3},
                                   {"v", v, 3},
                                   {"g", gates.decay, 2},
                                   {"beta", gates.beta, 2}},
                                  {real("scale", scale), real("eps", eps)},
                                  /*withDocuments=*/true)[0];
}

Builder::Routing Builder::router(Tensor logits, int64_t topK) {
  auto results =
      append<RouterOp>({{"logits", logits, 2}}, {integer("top_k", topK)});
  return {results[0], results[1], results[2]};
}

Tensor Builder::moeExperts(Tensor x, const Routing &routing, Tensor gateUp,
                           Tensor down) {
  return append<MoeExpertsOp>({{"x", x, 2},
                               {"weights", routing.weights, 2},
                               {"idx", routing.experts, 2},
                               {"w_gate_up", gateUp, 3},
                               {"w_down", down, 3}},
                              {})[0];
}

Tensor Builder::routerAux(llvm::ArrayRef<Routing> layers,
                          llvm::StringRef scope) {
  llvm::StringRef name = RouterAuxOp::getOperationName();
  llvm::SmallVector<Value> operands;
  for (const Routing &layer : layers) {
    if (!check(name, {{"probs", layer.probs, 2}, {"idx", layer.experts, 2}}))
      return {};
    operands.push_back(layer.probs.value());
  }
  for (const Routing &layer : layers)
    operands.push_back(layer.experts.value());
  operands.push_back(seqInput.value());
  auto count = int32_t(layers.size());
  return infer<RouterAuxOp>(
      operands,
      {builder.getNamedAttr("scope", builder.getStringAttr(scope)),
       builder.getNamedAttr("operandSegmentSizes", builder.getDenseI32ArrayAttr(
                                                       {count, count, 1}))})[0];
}

Tensor Builder::embed(Tensor ids, Tensor table) {
  return append<EmbedOp>({{"ids", ids, 1}, {"table", table, 2}}, {})[0];
}

Tensor Builder::lmLoss(Tensor h, Tensor weight, Tensor labels,
                       Tensor invCount) {
  return append<LmLossOp>({{"h", h, 2},
                           {"weight", weight, 2},
                           {"labels", labels, 1},
                           {"inv_count", invCount, 0}},
                          {})[0];
}

mlir::OwningOpRef<mlir::ModuleOp>
Builder::finish(Tensor loss, std::optional<AuxiliaryLoss> parts) {
  llvm::SmallVector<Operand> operands = {{"loss", loss, 0}};
  llvm::SmallVector<llvm::StringRef> resultNames = {"loss"};
  if (parts) {
    operands.push_back({"lm_loss", parts->languageModel, 0});
    operands.push_back({"aux_loss", parts->auxiliary, 0});
    resultNames.append({"lm_loss", "aux_loss"});
  }
  if (!check("finish", operands) || hasFailed)
    return {};
  llvm::SmallVector<Value> results;
  llvm::SmallVector<Type> types;
  for (const Operand &operand : operands) {
    results.push_back(operand.tensor.value());
    types.push_back(operand.tensor.value().getType());
  }
  mlir::func::ReturnOp::create(builder, location, results);
  function.setFunctionType(
      builder.getFunctionType(function.getArgumentTypes(), types));
  for (auto [index, name] : llvm::enumerate(resultNames))
    function.setResultAttr(index, kNameAttr, builder.getStringAttr(name));
  if (mlir::failed(mlir::verify(*module)))
    return {};
  return std::move(module);
}

} // namespace qwen35::dsl
