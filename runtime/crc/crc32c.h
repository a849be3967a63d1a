#ifndef QWEN35_RUNTIME_CRC_CRC32C_H
#define QWEN35_RUNTIME_CRC_CRC32C_H

#include <cstddef>
#include <cstdint>

namespace qwen35 {

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of `bytes` bytes.
/// `before` is the CRC of what precedes them: crc32c(b, crc32c(a)) is that of
/// a then b.
///
/// Source  RFC 3720 appendix B.4 has the test vectors.
uint32_t crc32c(const void *data, size_t bytes, uint32_t before = 0);

/// The CRC as TFRecord stores it: rotated and offset, so that a CRC of data
/// that holds CRCs is no fixed point.
/// Source  tensorflow/core/lib/hash/crc32c.h, Mask().
uint32_t maskedCrc32c(const void *data, size_t bytes);

} // namespace qwen35

#endif // QWEN35_RUNTIME_CRC_CRC32C_H
