#include "runtime/init/counter_random.h"

#include <cmath>
#include <cstring>
#include <string>

#include <sodium/crypto_hash_sha256.h>

namespace qwen35 {
namespace {

double horner(const double *coefficients, int degree, double x) {
  double value = coefficients[degree];
  for (int i = degree - 1; i >= 0; --i)
    value = value * x + coefficients[i];
  return value;
}

// AS 241: numerators and denominators near the middle, and in two tails.
constexpr double kA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                         1.9715909503065514427e+3, 1.3731693765509461125e+4,
                         4.5921953931549871457e+4, 6.7265770927008700853e+4,
                         3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kB[] = {1.0,                      4.2313330701600911252e+1,
                         6.8718700749205790830e+2, 5.3941960214247511077e+3,
                         2.1213794301586595867e+4, 3.9307895800092710610e+4,
                         2.8729085735721942674e+4, 5.2264952788528545610e+3};
constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                         5.76949722146069140550e0,  3.64784832476320460504e0,
                         1.27045825245236838258e0,  2.41780725177450611770e-1,
                         2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kD[] = {1.0,                       2.05319162663775882187e0,
                         1.67638483018380384940e0,  6.89767334985100004550e-1,
                         1.48103976427480074590e-1, 1.51986665636164571966e-2,
                         5.47593808499534494600e-4, 1.05075007164441684324e-9};
constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                         1.78482653991729133580e0,  2.96560571828504891230e-1,
                         2.65321895265761230930e-2, 1.24266094738807843860e-3,
                         2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kF[] = {1.0,                       5.99832206555887937690e-1,
                         1.36929880922735805310e-1, 1.48753612908506148525e-2,
                         7.86869131145613259100e-4, 1.84631831751005468180e-5,
                         1.42151175831644588870e-7, 2.04426310338993978564e-15};

uint32_t word(const unsigned char *bytes) {
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16 |
         static_cast<uint32_t>(bytes[3]) << 24;
}

} // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c,
                                   std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t first = uint64_t{0xD2511F53} * c[0];
    uint64_t second = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(second >> 32) ^ c[1] ^ key[0],
         static_cast<uint32_t>(second),
         static_cast<uint32_t>(first >> 32) ^ c[3] ^ key[1],
         static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

CounterRandom::CounterRandom(uint64_t seed, absl::string_view name) {
  // Names differ in a digit or two; the digest spreads that over all bits.
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  unsigned char bytes[8];
  for (int i = 0; i < 8; ++i)
    bytes[i] = static_cast<unsigned char>(seed >> (8 * i));
  crypto_hash_sha256_update(&state, bytes, sizeof bytes);
  crypto_hash_sha256_update(
      &state, reinterpret_cast<const unsigned char *>(name.data()),
      name.size());
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(&state, digest);
  key = {word(digest), word(digest + 4)};
  stream = {word(digest + 8), word(digest + 12)};
}

std::array<double, 2> CounterRandom::uniformPair(uint64_t pair) const {
  std::array<uint32_t, 4> bits =
      philox4x32({static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32),
                  stream[0], stream[1]},
                 key);
  auto uniform = [](uint32_t high, uint32_t low) {
    uint64_t k = (static_cast<uint64_t>(high) << 32 | low) >> 12; // 52 bits
    return (static_cast<double>(k) + 0.5) * 0x1p-52;
  };
  return {uniform(bits[0], bits[1]), uniform(bits[2], bits[3])};
}

double inverseNormal(double p) {
  double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    double r = 0.180625 - q * q;
    return q * horner(kA, 7, r) / horner(kB, 7, r);
  }
  double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  double x = r <= 5 ? horner(kC, 7, r - 1.6) / horner(kD, 7, r - 1.6)
                    : horner(kE, 7, r - 5) / horner(kF, 7, r - 5);
  return q < 0 ? -x : x;
}

} // namespace qwen35
