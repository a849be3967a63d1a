#include "runtime/crc/crc32c.h"

#include <array>
#include <cstring>

namespace qwen35 {

namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

/// tables[k][b]: effect of byte b with k zero bytes after it, so that eight
/// bytes are eight independent look-ups.
constexpr Tables makeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b)
      tables[k][b] =
          (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}

constexpr Tables kTables = makeTables();

} // namespace

uint32_t crc32c(const void *data, size_t bytes, uint32_t before) {
  const auto *p = static_cast<const uint8_t *>(data);
  uint32_t crc = ~before;
  for (; bytes >= 8; p += 8, bytes -= 8) {
    uint32_t low = crc ^ (p[0] | p[1] << 8 | p[2] << 16 |
                          static_cast<uint32_t>(p[3]) << 24);
    crc = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^
          kTables[5][(low >> 16) & 0xff] ^ kTables[4][low >> 24] ^
          kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^
          kTables[0][p[7]];
  }
  for (; bytes; ++p, --bytes)
    crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

uint32_t maskedCrc32c(const void *data, size_t bytes) {
  uint32_t crc = crc32c(data, bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

} // namespace qwen35
