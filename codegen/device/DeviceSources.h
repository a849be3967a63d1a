#ifndef QWEN35_CODEGEN_DEVICE_DEVICESOURCES_H
#define QWEN35_CODEGEN_DEVICE_DEVICESOURCES_H

#include <string_view>
#include <vector>

namespace qwen35::codegen {

/// A header of codegen/device as kernels include it.
struct DeviceSource {
  const char *name; // "q35/base.cuh"
  const char *text;
};

/// All of them, sorted by name.
std::vector<DeviceSource> deviceSources();

} // namespace qwen35::codegen

#endif // QWEN35_CODEGEN_DEVICE_DEVICESOURCES_H
