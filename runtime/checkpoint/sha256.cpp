#include "runtime/checkpoint/sha256.h"

#include "absl/strings/escaping.h"

namespace qwen35 {

Sha256::Sha256() { crypto_hash_sha256_init(&state); }

void Sha256::add(const char *bytes, size_t size) {
  crypto_hash_sha256_update(
      &state, reinterpret_cast<const unsigned char *>(bytes), size);
}

std::string Sha256::hex() {
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state, digest);
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char *>(digest), sizeof digest));
}

std::string sha256Hex(absl::string_view bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

} // namespace qwen35
