#ifndef QWEN35_RUNTIME_COMM_REDUCER_H
#define QWEN35_RUNTIME_COMM_REDUCER_H

#include "absl/status/statusor.h"
#include "runtime/comm/types.h"

namespace qwen35::comm {

/// Elementwise reduction of buffers in an order that the caller chooses:
///
///     start(x0); add(x1); ...; finish()
///
/// Every element sees exactly these operations in this order, so equal calls
/// give equal bits.
///
/// Types   element: in memory; wire: in messages, as the element or bf16 for an
///         f32; accumulate: of the running sum, f32 or f64 for floats, the
///         element's own for integers.
/// Rounds  to nearest even, where a type is narrower than the one before it.
/// NaN     wins in max and min; integer sums wrap.
class Reducer {
public:
  /// Errors  InvalidArgument for a combination that is not above, bytes
  ///         included, which cannot be added.
  static absl::StatusOr<Reducer> make(Type element, Type wire, Type accumulate,
                                      Reduction reduction);

  Type wire() const { return wireType; }
  Type accumulate() const { return sumType; }
  /// Whether wire and element differ, so that pack and unpack do something.
  bool packs() const { return wireType != elementType; }

  /// elements -> wire
  void pack(const void *elements, int64_t count, void *wire) const;
  /// wire -> elements
  void unpack(const void *wire, int64_t count, void *elements) const;
  /// sum = wire
  void start(const void *wire, int64_t count, void *sum) const;
  /// sum = sum (reduction) wire
  void add(const void *wire, int64_t count, void *sum) const;
  /// elements = sum
  void finish(const void *sum, int64_t count, void *elements) const;

private:
  Reducer(Type element, Type wire, Type sum, Reduction reduction)
      : elementType(element), wireType(wire), sumType(sum),
        reduction(reduction) {}

  Type elementType, wireType, sumType;
  Reduction reduction;
};

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_REDUCER_H
