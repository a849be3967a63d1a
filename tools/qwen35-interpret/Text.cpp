#include "tools/qwen35-interpret/Text.h"

#include <charconv>

using namespace llvm;

namespace qwen35::interpret {

template <typename Number>
static void printNumber(raw_ostream &out, Number number) {
  char text[32];
  auto end = std::to_chars(text, text + sizeof(text), number);
  out << StringRef(text, end.ptr - text);
}

/// The elements of dims, which start at `next`.
template <typename Number>
static void printNested(raw_ostream &out, ArrayRef<int64_t> dims,
                        const Number *&next) {
  if (dims.empty())
    return printNumber(out, *next++);
  out << "[";
  for (int64_t i = 0; i < dims.front(); ++i) {
    if (i > 0)
      out << ", ";
    printNested(out, dims.drop_front(), next);
  }
  out << "]";
}

void print(raw_ostream &out, StringRef name,
           const interpreter::Tensor &tensor) {
  out << name << " = ";
  std::visit(
      [&](const auto &elements) {
        auto *next = elements.data();
        printNested(out, tensor.shape, next);
      },
      tensor.elements);
  out << "\n";
}

} // namespace qwen35::interpret
