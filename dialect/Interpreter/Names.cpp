#include "dialect/Interpreter/Names.h"

#include "dialect/Qwen35/IR/StepAttrs.h"

using namespace mlir;

namespace qwen35::interpreter {

StringRef argumentRole(func::FuncOp function, unsigned index) {
  auto role = function.getArgAttrOfType<StringAttr>(index, kRoleAttr);
  return role ? role.getValue() : StringRef();
}

std::string argumentName(func::FuncOp function, unsigned index) {
  auto name = function.getArgAttrOfType<StringAttr>(index, kNameAttr);
  if (!name)
    return "arg" + std::to_string(index);
  StringRef role = argumentRole(function, index);
  if (role == "grad" || role == "m" || role == "v" || role == "sum" ||
      role == "work")
    return (role + "." + name.getValue()).str();
  return name.getValue().str();
}

std::string resultName(func::FuncOp function, unsigned index) {
  auto alias = function.getResultAttrOfType<IntegerAttr>(index, kAliasAttr);
  if (alias && alias.getInt() >= 0 &&
      alias.getInt() < static_cast<int64_t>(function.getNumArguments()))
    return argumentName(function, static_cast<unsigned>(alias.getInt()));
  if (auto of = function.getResultAttrOfType<StringAttr>(index, kGradientAttr))
    return "grad." + of.getValue().str();
  if (auto name = function.getResultAttrOfType<StringAttr>(index, kNameAttr))
    return name.getValue().str();
  return "result" + std::to_string(index);
}

} // namespace qwen35::interpreter
