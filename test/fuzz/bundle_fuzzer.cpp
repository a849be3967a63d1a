// libFuzzer target over the bundle reader and its checks. The first byte of an
// input says what the rest is:
//   0  a bundle file
//   1  a bundle's message: the digest around it is made right, or the fuzzer
//      would never get past it
//   2  a kernels' ELF image
// Nothing may crash, hang or read out of bounds; what is accepted is only
// checked, never loaded.

#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/elf_image.h"
#include "test/unit/bundle/tiny_bundle.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  // A copy of the exact size: reading past it is an error that ASan sees.
  std::vector<uint8_t> rest(data + 1, data + size);
  switch (data[0]) {
  case 0:
    (void)qwen35::BundleFile::parse(rest);
    break;
  case 1: {
    static const std::string tiny = qwen35::tinyBundle();
    std::string file = qwen35::withMessage(
        tiny, std::string(rest.begin(), rest.end()));
    (void)qwen35::BundleFile::parse(qwen35::asBytes(file));
    break;
  }
  case 2: {
    static const std::vector<std::string> symbols = {"tiny_loss"};
    (void)qwen35::checkElfImage(rest, symbols);
    break;
  }
  }
  return 0;
}
