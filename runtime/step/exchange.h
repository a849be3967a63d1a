#ifndef QWEN35_RUNTIME_STEP_EXCHANGE_H
#define QWEN35_RUNTIME_STEP_EXCHANGE_H

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace qwen35 {

/// The collectives of a plan: communicators, in the order of the bundle, and per
/// collective the call and the copies around it. On memory of the host, or of
/// whatever the world and copyBy() work on.
class Exchanges {
public:
  using Address = absl::FunctionRef<uint8_t *(const bundle::Arg &)>;
  /// `rows` rows of `width` bytes, from and to every so many bytes.
  struct Copy {
    const uint8_t *from;
    uint8_t *to;
    int64_t rows, width, fromStride, toStride;
  };

  /// Creates the communicators; collective over the world. A bundle of one rank
  /// needs no world.
  ///
  /// Errors  FailedPrecondition for a world of another size than the bundle's
  ///         mesh; those of World::split.
  absl::Status init(const bundle::Bundle &plan, comm::World *world);

  /// How copies are made; without it, by memcpy.
  void copyBy(std::function<absl::Status(const Copy &)> by) {
    copyOne = std::move(by);
  }

  /// The collective with its addresses resolved; its number in run().
  uint32_t add(const bundle::Collective &collective, Address address);
  /// Runs it to its end.
  /// Errors  those of Communicator, which name rank, number, kind and tag.
  absl::Status run(uint32_t index);

  /// Whether it has nothing to do with other ranks.
  bool onlyCopies(uint32_t index) const {
    return !exchanges[index]->communicator;
  }

  /// The number of this rank in its group of a communicator.
  int coordinate(uint32_t communicator) const {
    return communicators[communicator]->rank();
  }

private:
  struct Exchange {
    comm::Communicator *communicator = nullptr; // null: copies only
    comm::Call call;
    std::string label;
    std::vector<Copy> before, after;
  };
  absl::Status copy(const std::vector<Copy> &copies) const;

  std::function<absl::Status(const Copy &)> copyOne;
  std::vector<std::shared_ptr<comm::Communicator>> communicators;
  std::vector<std::unique_ptr<Exchange>> exchanges;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_EXCHANGE_H
