#include "dialect/Interpreter/Interpreter.h"

#include "dialect/Interpreter/Collectives.h"
#include "dialect/Interpreter/Evaluators.h"
#include "dialect/QKern/IR/QKernDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace qwen35::interpreter {
namespace {

StringRef messageOf(const absl::Status &status) {
  return StringRef(status.message().data(), status.message().size());
}

InFlightDiagnostic errorAt(Operation *op) {
  return op->emitError("interpreting '") << op->getName() << "': ";
}

/// The shape that a value of this type has outside of a run.
SmallVector<int64_t> shapeOf(Type type) {
  if (auto seq = dyn_cast<SeqType>(type))
    return {SeqTable{seq.getTokens(), seq.getMaxDocs()}.words()};
  return SmallVector<int64_t>(cast<RankedTensorType>(type).getShape());
}

bool isInteger(Type type) {
  return isa<SeqType>(type) || getElementTypeOrSelf(type).isInteger(32);
}

/// Why values of the type cannot be interpreted, or nothing.
std::optional<std::string> unsupported(Type type) {
  if (isa<SeqType>(type))
    return std::nullopt;
  auto tensor = dyn_cast<RankedTensorType>(type);
  Type element = tensor ? tensor.getElementType() : Type();
  if (tensor && tensor.hasStaticShape() &&
      (element.isF32() || element.isF64() || element.isBF16() ||
       element.isInteger(32)))
    return std::nullopt;
  std::string text;
  llvm::raw_string_ostream(text)
      << "values of type '" << type
      << "' are not interpreted, expected a document table or a static tensor "
         "of f32, f64, bf16 or i32";
  return text;
}

std::string describe(const Tensor &tensor) {
  std::string text = "[";
  llvm::raw_string_ostream stream(text);
  llvm::interleaveComma(tensor.shape, stream);
  stream << "] of ";
  if (std::holds_alternative<std::vector<int32_t>>(tensor.elements))
    stream << "int32";
  else if (std::holds_alternative<std::vector<float>>(tensor.elements))
    stream << "float";
  else
    stream << "double";
  return text;
}

/// The last op of the block that uses each value made in it, as the values that
/// die with each op; values without a use die where they are made, arguments
/// of the block under the null op.
DenseMap<Operation *, SmallVector<Value>> deathsIn(Block &block) {
  DenseMap<Operation *, SmallVector<Value>> deaths;
  auto add = [&](Value value, Operation *made) {
    Operation *last = made;
    for (Operation *user : value.getUsers()) {
      Operation *here = block.findAncestorOpInBlock(*user);
      if (!last || last->isBeforeInBlock(here))
        last = here;
    }
    deaths[last].push_back(value);
  };
  for (Value argument : block.getArguments())
    add(argument, nullptr);
  for (Operation &op : block)
    for (Value result : op.getResults())
      add(result, &op);
  return deaths;
}

/// One run: all functions that it enters, in one precision.
template <typename Real> class Run {
public:
  explicit Run(const ParamMap &params) : params(params) {}

  FailureOr<SmallVector<Tensor>> run(func::FuncOp function,
                                     ArrayRef<Tensor> arguments);
  FailureOr<SmallVector<SmallVector<Tensor>>>
  runRanks(func::FuncOp function, const Mesh &mesh,
           ArrayRef<SmallVector<Tensor>> arguments);
  Stats stats() const { return {operations, memory.peakBytes()}; }

private:
  /// `tensor` as the elements of a value of `type`; copied only if it has to be
  /// converted, so the handle must not outlive it.
  FailureOr<Handle> import(const Tensor &tensor, Type type,
                           function_ref<InFlightDiagnostic()> error);
  FailureOr<SmallVector<Handle>>
  importAll(func::FuncOp function, ArrayRef<Tensor> arguments, StringRef where);
  SmallVector<Tensor> exportAll(func::FuncOp function,
                                MutableArrayRef<Handle> handles);
  LogicalResult checkBody(func::FuncOp function);
  FailureOr<SmallVector<Handle>> call(func::FuncOp function,
                                      MutableArrayRef<Handle> arguments);
  LogicalResult runBody(Block &block, Frame<Real> &frame);
  LogicalResult runOp(Operation &op, Frame<Real> &frame);
  LogicalResult runParam(ParamOp op, Frame<Real> &frame);
  LogicalResult runConstant(arith::ConstantOp op, Frame<Real> &frame);
  LogicalResult runCall(func::CallOp op, Frame<Real> &frame);
  LogicalResult runGroup(qkern::GroupOp op, Frame<Real> &frame);

  Memory memory;
  int64_t operations = 0;
  const ParamMap &params;
  SmallVector<func::FuncOp> entered; // functions that have not returned
};

template <typename Real>
FailureOr<Handle> Run<Real>::import(const Tensor &tensor, Type type,
                                    function_ref<InFlightDiagnostic()> error) {
  if (std::optional<std::string> why = unsupported(type))
    return error() << *why;
  size_t elements = 1;
  for (int64_t size : tensor.shape)
    elements *= static_cast<size_t>(size);
  bool integers = std::holds_alternative<std::vector<int32_t>>(tensor.elements);
  bool complete = std::visit(
      [&](const auto &list) { return list.size() == elements; },
      tensor.elements);
  if (!llvm::equal(tensor.shape, shapeOf(type)) ||
      integers != isInteger(type) || !complete)
    return error() << "got " << describe(tensor) << ", expected " << type;

  Handle given(&tensor.elements, [](const Elements *) {});
  if (integers)
    return given;
  Type element = getElementTypeOrSelf(type);
  if (isKeptIn<Real>(element, *given) && !element.isBF16())
    return given;
  auto convert = [&](auto sample) {
    std::vector<decltype(sample)> kept;
    std::visit([&](const auto &list) { kept.assign(list.begin(), list.end()); },
               *given);
    return memory.own(std::move(kept));
  };
  if (element.isF64())
    return Handle(convert(double()));
  std::shared_ptr<Elements> kept = convert(Real());
  if constexpr (std::is_same_v<Real, float>)
    if (element.isBF16())
      roundToBf16(absl::MakeSpan(std::get<std::vector<float>>(*kept)));
  return Handle(std::move(kept));
}

template <typename Real>
FailureOr<SmallVector<Handle>> Run<Real>::importAll(func::FuncOp function,
                                                    ArrayRef<Tensor> arguments,
                                                    StringRef where) {
  auto error = [&] {
    return function.emitError("interpreting @")
           << function.getName() << where << ": ";
  };
  if (arguments.size() != function.getNumArguments())
    return error() << "got " << arguments.size() << " arguments, expected "
                   << function.getNumArguments();
  SmallVector<Handle> handles;
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    auto handle = import(argument, function.getArgumentTypes()[i], [&, i = i] {
      return error() << "argument " << i << ": ";
    });
    if (failed(handle))
      return failure();
    handles.push_back(*handle);
  }
  return handles;
}

template <typename Real>
SmallVector<Tensor> Run<Real>::exportAll(func::FuncOp function,
                                         MutableArrayRef<Handle> handles) {
  SmallVector<Tensor> results;
  for (auto [type, handle] :
       llvm::zip_equal(function.getResultTypes(), handles)) {
    SmallVector<int64_t> shape = shapeOf(type);
    results.push_back({{shape.begin(), shape.end()}, *handle});
    handle.reset();
  }
  return results;
}

template <typename Real>
FailureOr<SmallVector<Tensor>> Run<Real>::run(func::FuncOp function,
                                              ArrayRef<Tensor> arguments) {
  auto handles = importAll(function, arguments, "");
  if (failed(handles))
    return failure();
  auto returned = call(function, *handles);
  if (failed(returned))
    return failure();
  return exportAll(function, *returned);
}

template <typename Real>
LogicalResult Run<Real>::checkBody(func::FuncOp function) {
  auto error = [&] {
    return function.emitError("interpreting @") << function.getName() << ": ";
  };
  if (function.isExternal())
    return error() << "it has no body";
  if (!function.getBody().hasOneBlock())
    return error() << "it has " << function.getBody().getBlocks().size()
                   << " blocks, expected one: control flow is not interpreted";
  if (llvm::is_contained(entered, function))
    return error() << "it calls itself";
  return success();
}

template <typename Real>
FailureOr<SmallVector<SmallVector<Tensor>>>
Run<Real>::runRanks(func::FuncOp function, const Mesh &mesh,
                    ArrayRef<SmallVector<Tensor>> arguments) {
  if (failed(checkBody(function)))
    return failure();
  Block &block = function.getBody().front();
  std::vector<Frame<Real>> frames(mesh.ranks(), Frame<Real>(memory));
  for (auto [rank, frame] : llvm::enumerate(frames)) {
    auto handles = importAll(function, arguments[rank],
                             " on rank " + std::to_string(rank));
    if (failed(handles))
      return failure();
    for (auto [argument, handle] :
         llvm::zip_equal(block.getArguments(), *handles))
      frame.set(argument, std::move(handle));
  }
  auto deaths = deathsIn(block);
  auto bury = [&](Operation *op) {
    for (Value value : deaths.lookup(op))
      for (Frame<Real> &frame : frames)
        frame.erase(value);
  };
  bury(nullptr);
  entered.push_back(function);
  for (Operation &op : block.without_terminator()) {
    if (isCollective(&op)) {
      operations += static_cast<int64_t>(frames.size());
      if (std::optional<std::string> why =
              evaluateCollective<Real>(&op, mesh, frames, memory))
        return errorAt(&op) << *why;
    } else {
      for (Frame<Real> &frame : frames)
        if (failed(runOp(op, frame)))
          return failure();
    }
    bury(&op);
  }
  entered.pop_back();
  SmallVector<SmallVector<Tensor>> results;
  for (Frame<Real> &frame : frames) {
    SmallVector<Handle> returned;
    for (Value value : block.getTerminator()->getOperands())
      returned.push_back(frame.handle(value));
    results.push_back(exportAll(function, returned));
  }
  return results;
}

template <typename Real>
FailureOr<SmallVector<Handle>>
Run<Real>::call(func::FuncOp function, MutableArrayRef<Handle> arguments) {
  if (failed(checkBody(function)))
    return failure();
  entered.push_back(function);
  Block &block = function.getBody().front();
  Frame<Real> frame(memory);
  for (auto [argument, handle] :
       llvm::zip_equal(block.getArguments(), arguments))
    frame.set(argument, std::move(handle)); // freed after its last use in here
  if (failed(runBody(block, frame)))
    return failure();
  entered.pop_back();
  SmallVector<Handle> returned;
  for (Value value : block.getTerminator()->getOperands())
    returned.push_back(frame.handle(value));
  return returned;
}

template <typename Real>
LogicalResult Run<Real>::runBody(Block &block, Frame<Real> &frame) {
  auto deaths = deathsIn(block);
  auto bury = [&](Operation *op) {
    for (Value value : deaths.lookup(op))
      frame.erase(value);
  };
  bury(nullptr);
  for (Operation &op : block.without_terminator()) {
    if (failed(runOp(op, frame)))
      return failure();
    bury(&op);
  }
  return success();
}

template <typename Real>
LogicalResult Run<Real>::runOp(Operation &op, Frame<Real> &frame) {
  ++operations;
  if (auto param = dyn_cast<ParamOp>(op))
    return runParam(param, frame);
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return runConstant(constant, frame);
  if (auto called = dyn_cast<func::CallOp>(op))
    return runCall(called, frame);
  if (auto group = dyn_cast<qkern::GroupOp>(op))
    return runGroup(group, frame);
  if (auto seed = dyn_cast<qdist::ShardConstraintOp>(op)) {
    frame.set(seed.getY(), frame.handle(seed.getX()));
    return success();
  }
  if (auto wait = dyn_cast<qdist::WaitOp>(op)) { // Nothing is in flight here.
    for (auto [from, to] : llvm::zip_equal(wait.getInputs(), wait.getOutputs()))
      frame.set(to, frame.handle(from));
    return success();
  }
  auto evaluator =
      EvaluatorTable::get().find<Real>(op.getName().getStringRef());
  if (!evaluator) {
    InFlightDiagnostic error = errorAt(&op) << "no evaluator";
    if (isa<qkern::ViewOp, qkern::JoinOp, qkern::DispatchOp>(op))
      error << "; kernels are run by the runtime, interpret what "
               "--qwen35-to-kernels starts from";
    if (isCollective(&op))
      error << "; it takes all ranks of the mesh, interpret the function of "
               "stage S3 on them";
    return error;
  }
  for (Type type : op.getResultTypes())
    if (std::optional<std::string> why = unsupported(type))
      return errorAt(&op) << *why;
  absl::Status status = frame.finish(evaluator(&op, frame));
  if (!status.ok())
    return errorAt(&op) << messageOf(status);
  return success();
}

template <typename Real>
LogicalResult Run<Real>::runParam(ParamOp op, Frame<Real> &frame) {
  auto found = params.find(op.getName());
  if (found == params.end())
    return errorAt(op) << "no parameter is named \"" << op.getName()
                       << "\" among the " << params.size() << " given";
  auto handle = import(found->second, op.getResult().getType(), [&] {
    return errorAt(op) << "parameter \"" << op.getName() << "\": ";
  });
  if (failed(handle))
    return failure();
  frame.set(op.getResult(), *handle);
  return success();
}

template <typename Real>
LogicalResult Run<Real>::runConstant(arith::ConstantOp op, Frame<Real> &frame) {
  if (std::optional<std::string> why = unsupported(op.getType()))
    return errorAt(op) << *why;
  auto literal = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!literal)
    return errorAt(op) << "got " << op.getValue() << ", expected dense<...>";
  Tensor tensor;
  llvm::append_range(tensor.shape, literal.getType().getShape());
  if (isInteger(op.getType())) {
    std::vector<int32_t> elements;
    llvm::append_range(elements, literal.getValues<int32_t>());
    tensor.elements = std::move(elements);
  } else {
    std::vector<double> elements;
    for (const APFloat &element : literal.getValues<APFloat>())
      elements.push_back(element.convertToDouble());
    tensor.elements = std::move(elements);
  }
  auto handle = import(tensor, op.getType(), [&] { return errorAt(op); });
  if (failed(handle))
    return failure();
  // What was not converted still refers to the local tensor.
  if (handle->get() == &tensor.elements)
    handle = Handle(memory.own(std::move(tensor.elements)));
  frame.set(op.getResult(), *handle);
  return success();
}

template <typename Real>
LogicalResult Run<Real>::runCall(func::CallOp op, Frame<Real> &frame) {
  auto callee =
      SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, op.getCalleeAttr());
  if (!callee)
    return errorAt(op) << "no function @" << op.getCallee();
  SmallVector<Handle> arguments;
  for (Value operand : op.getOperands())
    arguments.push_back(frame.handle(operand));
  auto returned = call(callee, arguments);
  if (failed(returned))
    return failure();
  for (auto [result, handle] : llvm::zip_equal(op.getResults(), *returned))
    frame.set(result, handle);
  return success();
}

template <typename Real>
LogicalResult Run<Real>::runGroup(qkern::GroupOp op, Frame<Real> &frame) {
  Block &body = op.getBody().front();
  if (failed(runBody(body, frame)))
    return failure();
  Operation *yield = body.getTerminator();
  for (auto [result, value] :
       llvm::zip_equal(op.getResults(), yield->getOperands()))
    frame.set(result, frame.handle(value));
  for (Operation &inner : body)
    for (Value value : inner.getResults())
      frame.erase(value);
  return success();
}

template <typename Real>
FailureOr<SmallVector<Tensor>> runIn(func::FuncOp function,
                                     ArrayRef<Tensor> arguments,
                                     const ParamMap &params, Stats *stats) {
  Run<Real> run(params);
  auto results = run.run(function, arguments);
  if (stats)
    *stats = run.stats();
  return results;
}

} // namespace

FailureOr<SmallVector<Tensor>> interpret(func::FuncOp function,
                                         ArrayRef<Tensor> arguments,
                                         const ParamMap &params,
                                         const Options &options) {
  return options.fp64
             ? runIn<double>(function, arguments, params, options.stats)
             : runIn<float>(function, arguments, params, options.stats);
}

FailureOr<SmallVector<SmallVector<Tensor>>>
interpretRanks(func::FuncOp function,
               ArrayRef<SmallVector<Tensor>> arguments,
               const Options &options) {
  std::optional<Mesh> mesh = qdist::meshOf(function);
  auto error = [&] {
    return function.emitError("interpreting @") << function.getName() << ": ";
  };
  if (!mesh)
    return error() << "its module has no '" << qdist::kMeshAttr << "'";
  if (static_cast<int64_t>(arguments.size()) != mesh->ranks())
    return error() << "got arguments for " << arguments.size()
                   << " ranks, expected " << mesh->ranks();
  auto runIn = [&](auto run) {
    auto results = run.runRanks(function, *mesh, arguments);
    if (options.stats)
      *options.stats = run.stats();
    return results;
  };
  ParamMap none;
  return options.fp64 ? runIn(Run<double>(none)) : runIn(Run<float>(none));
}

bool hasEvaluator(OperationName name) {
  // Those that runOp knows by themselves, and the terminator of a function.
  static const StringRef others[] = {
      ParamOp::getOperationName(), arith::ConstantOp::getOperationName(),
      func::CallOp::getOperationName(), func::ReturnOp::getOperationName(),
      qkern::GroupOp::getOperationName(),
      qdist::ShardConstraintOp::getOperationName(),
      qdist::WaitOp::getOperationName()};
  if (isCollective(name))
    return true;
  return EvaluatorTable::get().contains(name.getStringRef()) ||
         llvm::is_contained(others, name.getStringRef());
}

std::optional<Tensor> documentTable(SeqType type, ArrayRef<int64_t> lengths) {
  SeqTable shape{type.getTokens(), type.getMaxDocs()};
  std::vector<int32_t> table(shape.words());
  if (!fillSeqTable(shape, lengths.data(), lengths.size(), table.data()))
    return std::nullopt;
  return Tensor{{shape.words()}, std::move(table)};
}

} // namespace qwen35::interpreter
