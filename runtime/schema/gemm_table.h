#ifndef QWEN35_RUNTIME_SCHEMA_GEMM_TABLE_H
#define QWEN35_RUNTIME_SCHEMA_GEMM_TABLE_H

#include "runtime/schema/bundle.pb.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>

namespace qwen35 {

/// The table of tuned products: `qwen35-run --tune` writes it, qwen35c has one
/// built in.
///
/// Layout  Text. A line that begins with # is a comment. Any other is seven
///         words: architecture, device, version of cuBLASLt, product, the
///         algorithm's 64 bytes as 128 hex digits, its time, and the time of
///         the library's first answer. Lines are sorted by the first four.
/// Units   Times are microseconds.
struct GemmTable {
  struct Entry {
    std::string device; // "NVIDIA_H200"
    uint64_t version = 0;
    std::array<uint64_t, 8> words{};
    double time = 0, firstTime = 0;
  };
  /// By architecture and product, "sm_90a m8192...".
  std::map<std::string, Entry> entries;

  /// All that an algorithm is chosen for, as one word. Operands begin at
  /// multiples of 16 bytes.
  static std::string product(const bundle::Gemm &gemm) {
    auto type = [](bundle::DType type) {
      return type == bundle::BF16  ? "bf16"
             : type == bundle::F16 ? "f16"
                                   : "f32";
    };
    std::ostringstream text;
    text << 'm' << gemm.m() << ",n" << gemm.n() << ",k" << gemm.k() << ','
         << (gemm.trans_a() ? 't' : 'n') << (gemm.trans_b() ? 't' : 'n')
         << ",ld" << gemm.lda() << '/' << gemm.ldb() << '/' << gemm.ldd() << ','
         << type(gemm.a_type()) << '*' << type(gemm.b_type()) << '>'
         << type(gemm.d_type()) << (gemm.accumulate() ? ",add" : ",set")
         << ",ws" << gemm.workspace_bytes();
    return text.str();
  }

  /// Adds the lines of `text`, which replace what is there. Returns "" or what
  /// is wrong: "line 3: found 4 words, expected 7".
  std::string parse(const std::string &text) {
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      if (line.empty() || line[0] == '#')
        continue;
      std::istringstream words(line);
      std::string arch, key, hex, extra;
      Entry entry;
      if (!(words >> arch >> entry.device >> entry.version >> key >> hex >>
            entry.time >> entry.firstTime) ||
          words >> extra)
        return "line " + std::to_string(number) +
               ": expected architecture, device, version, product, algorithm "
               "and two times";
      if (hex.size() != 128 ||
          hex.find_first_not_of("0123456789abcdef") != std::string::npos)
        return "line " + std::to_string(number) +
               ": expected an algorithm of 128 hex digits, found " + hex;
      for (size_t i = 0; i < 8; ++i)
        entry.words[i] = std::stoull(hex.substr(16 * i, 16), nullptr, 16);
      entries[arch + " " + key] = entry;
    }
    return "";
  }

  std::string print() const {
    std::string text =
        "# Algorithms of cuBLASLt by qwen35-run --tune: architecture, device, "
        "version,\n# product, algorithm, microseconds, microseconds of the "
        "library's first answer.\n";
    for (const auto &[key, entry] : entries) {
      size_t space = key.find(' ');
      text += key.substr(0, space) + " " + entry.device + " " +
              std::to_string(entry.version) + key.substr(space) + " ";
      char number[64];
      for (uint64_t word : entry.words) {
        std::snprintf(number, sizeof number, "%016llx",
                      static_cast<unsigned long long>(word));
        text += number;
      }
      std::snprintf(number, sizeof number, " %.2f %.2f\n", entry.time,
                    entry.firstTime);
      text += number;
    }
    return text;
  }

  /// Puts the algorithm for `arch` into the product, if there is one.
  bool apply(const std::string &arch, bundle::Gemm &gemm) const {
    auto found = entries.find(arch + " " + product(gemm));
    if (found == entries.end())
      return false;
    bundle::GemmAlgo *algo = gemm.mutable_algo();
    for (uint64_t word : found->second.words)
      algo->add_words(word);
    algo->set_version(found->second.version);
    return true;
  }
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_SCHEMA_GEMM_TABLE_H
