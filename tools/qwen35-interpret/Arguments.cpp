#include "tools/qwen35-interpret/Arguments.h"

#include "dialect/Interpreter/Names.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "tools/qwen35-interpret/TensorFiles.h"

#include "llvm/Support/InterleavedRange.h"
#include "llvm/Support/WithColor.h"

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::interpret {

namespace {

llvm::raw_ostream &error() { return llvm::WithColor::error(); }

LogicalResult check(const absl::Status &status) {
  if (status.ok())
    return success();
  absl::string_view message = status.message();
  error() << StringRef(message.data(), message.size()) << "\n";
  return failure();
}

/// The parameter that an argument holds, itself or its working copy, or "".
StringRef parameterRead(func::FuncOp function, unsigned index) {
  StringRef role = interpreter::argumentRole(function, index);
  auto name = function.getArgAttrOfType<StringAttr>(index, kNameAttr);
  return name && (role == "weight" || role == "work") ? name.getValue() : "";
}

/// Parameters that the module reads, and weight arguments of the function.
std::vector<ParamSpec> wantedParams(func::FuncOp function) {
  std::vector<ParamSpec> params;
  auto add = [&](StringRef name, Type type) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
    for (const ParamSpec &param : params)
      if (param.name == name)
        return;
    ParamSpec param;
    param.name = name.str();
    param.shape.assign(shape.begin(), shape.end());
    params.push_back(std::move(param));
  };
  function->getParentOfType<ModuleOp>().walk(
      [&](ParamOp op) { add(op.getName(), op.getResult().getType()); });
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (StringRef param = parameterRead(function, i); !param.empty())
      add(param, function.getArgumentTypes()[i]);
  return params;
}

/// The value that --scalar gives to `name`, if it does.
FailureOr<std::optional<double>> scalarNamed(StringRef name,
                                             ArrayRef<std::string> scalars) {
  for (StringRef scalar : scalars) {
    auto [key, text] = scalar.split('=');
    if (key != name)
      continue;
    double value = 0;
    if (text.getAsDouble(value)) {
      error() << "--scalar " << scalar << ": \"" << text
              << "\" is no number, expected NAME=VALUE\n";
      return failure();
    }
    return std::optional<double>(value);
  }
  return std::optional<double>();
}

} // namespace

FailureOr<Inputs> collectInputs(func::FuncOp function, const Sources &sources) {
  std::map<std::string, Tensor> given;
  if (!sources.inputs.empty()) {
    auto tensors = readTensors(sources.inputs);
    if (failed(check(tensors.status())))
      return failure();
    given = *std::move(tensors);
  }
  Inputs inputs;
  if (!sources.weights.empty()) {
    auto weights = readWeights(sources.weights, wantedParams(function));
    if (failed(check(weights.status())))
      return failure();
    inputs.params = *std::move(weights);
  }

  std::vector<std::string> missing;
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    std::string name = interpreter::argumentName(function, i);
    StringRef role = interpreter::argumentRole(function, i);
    auto tensor = dyn_cast<RankedTensorType>(type);
    auto scalar = scalarNamed(name, sources.scalars);
    if (failed(scalar))
      return failure();
    if (*scalar) {
      inputs.arguments.push_back(Tensor{{}, std::vector<double>{**scalar}});
    } else if (auto found = given.find(name); found != given.end()) {
      inputs.arguments.push_back(found->second);
    } else if (auto seq = dyn_cast<SeqType>(type);
               seq && !sources.documents.empty()) {
      auto table = interpreter::documentTable(seq, sources.documents);
      if (!table) {
        error() << "--documents " << llvm::interleaved(sources.documents, ",")
                << ": lengths must be positive and fit " << type
                << ", padding counting as a document\n";
        return failure();
      }
      inputs.arguments.push_back(*std::move(table));
    } else if (inputs.params.contains(parameterRead(function, i))) {
      inputs.arguments.push_back(
          inputs.params.lookup(parameterRead(function, i)));
    } else if (sources.zeroState && tensor &&
               (role == "m" || role == "v" || role == "grad" ||
                role == "sum")) {
      inputs.arguments.push_back(
          Tensor{{tensor.getShape().begin(), tensor.getShape().end()},
                 std::vector<double>(tensor.getNumElements())});
    } else {
      missing.push_back(name);
    }
  }
  if (!missing.empty()) {
    error() << "@" << function.getName() << " needs "
            << llvm::interleaved(missing, ", ")
            << ": give --inputs, --weights, --documents, --scalar or "
               "--zero-state\n";
    return failure();
  }
  return inputs;
}

} // namespace qwen35::interpret
