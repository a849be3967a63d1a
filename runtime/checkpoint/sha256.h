#ifndef QWEN35_RUNTIME_CHECKPOINT_SHA256_H
#define QWEN35_RUNTIME_CHECKPOINT_SHA256_H

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include <sodium/crypto_hash_sha256.h>

namespace qwen35 {

/// A running SHA-256 (FIPS 180-4, libsodium's implementation).
class Sha256 {
public:
  Sha256();
  void add(const char *bytes, size_t size);
  /// 64 lower-case hexadecimal digits. Call once.
  std::string hex();

private:
  crypto_hash_sha256_state state;
};

std::string sha256Hex(absl::string_view bytes);

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_SHA256_H
