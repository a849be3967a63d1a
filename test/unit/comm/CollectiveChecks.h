#ifndef QWEN35_TEST_UNIT_COMM_COLLECTIVE_CHECKS_H
#define QWEN35_TEST_UNIT_COMM_COLLECTIVE_CHECKS_H

#include "runtime/comm/communicator.h"

namespace qwen35::comm {

/// Every collective on every type, on the world and on splits of it, in and out
/// of place, against what this rank works out by itself from the data that it
/// knows every rank to have. Comparisons are of bits.
absl::Status checkCollectives(World &world);

/// What sums in the order of ranks must give, where other orders differ.
absl::Status checkOrder(World &world);

} // namespace qwen35::comm

#endif // QWEN35_TEST_UNIT_COMM_COLLECTIVE_CHECKS_H
