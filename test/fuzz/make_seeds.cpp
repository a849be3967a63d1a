// Writes the seeds of the corpus: one of each kind of input, from the tiny bundle.
//   bundle_fuzzer_seeds DIR

#include "test/unit/bundle/tiny_bundle.h"

#include <fstream>
#include <string>

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  auto write = [&](const char *name, char kind, const std::string &bytes) {
    std::ofstream(std::string(argv[1]) + "/" + name, std::ios::binary)
        << kind << bytes;
  };
  std::string file = qwen35::tinyBundle();
  std::vector<uint8_t> elf = qwen35::tinyKernels();
  write("bundle", 0, file);
  write("message", 1, qwen35::messageOf(file));
  write("elf", 2, std::string(elf.begin(), elf.end()));
  return 0;
}
