#ifndef QWEN35_TEST_SUPPORT_FAKE_CUDA_DRIVER_H
#define QWEN35_TEST_SUPPORT_FAKE_CUDA_DRIVER_H

#include "runtime/cuda/driver_api.h"

#include <functional>
#include <mutex>

#define QWEN35_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace qwen35::fake {

/// The number that QWEN35_FAKE_CUDA gives this key.
int setting(const char *key, int otherwise);

/// Held by every call.
std::recursive_mutex &lock();

/// Result of the call that QWEN35_FAKE_CUDA wants to fail, or success.
cuda::Result injected(const char *function);

/// Work in the order of the stream: part of the graph while it is captured,
/// else done when somebody waits for it.
cuda::Result enqueue(cuda::Stream stream, int nodeType,
                     std::function<void()> work);
bool capturing(cuda::Stream stream);

/// Whether the bytes lie in one allocation of the device.
bool onDevice(cuda::DevicePtr address, size_t bytes);

/// One more thing that somebody has to give back, or one less.
void own(const char *what, int count);

} // namespace qwen35::fake

#endif // QWEN35_TEST_SUPPORT_FAKE_CUDA_DRIVER_H
