#ifndef QWEN35_RUNTIME_BUNDLE_ELF_IMAGE_H
#define QWEN35_RUNTIME_BUNDLE_ELF_IMAGE_H

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>
#include <string>

namespace qwen35 {

/// Judges a shared object of kernels before the dynamic loader sees it.
///
/// Accepted is what a linker makes of code that needs nothing: ELF64 for
/// x86-64, ET_DYN, no interpreter, no needed libraries, no initialisers, no
/// thread-local storage, no symbol versions, no segment both writable and
/// executable; plain relocations inside the writable segments; undefined
/// symbols only from {memset, memcpy, memmove}; and each of `symbols` defined
/// as a function inside an executable segment. Every offset is checked against
/// the image.
///
/// This narrows what a broken or hostile file can do to the loader. It does not
/// make the code itself harmless: running a bundle is running its code.
///
/// Errors  InvalidArgument, one sentence naming what was found and expected.
absl::Status checkElfImage(absl::Span<const uint8_t> image,
                           absl::Span<const std::string> symbols);

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_ELF_IMAGE_H
