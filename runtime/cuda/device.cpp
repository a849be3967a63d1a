#include "runtime/cuda/device.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"

#include <vector>

#include <unistd.h>

namespace qwen35::cuda {
namespace {

/// "sm_90a": capability 90, exact. "emulated", of tests, is a device of that
/// name.
struct Arch {
  int sm = 0;
  bool exact = false;
  bool emulated = false;
};

constexpr char kEmulated[] = "emulated";

absl::StatusOr<Arch> parseArch(const std::string &text) {
  Arch arch;
  if (absl::StartsWith(text, kEmulated)) {
    arch.emulated = true;
    return arch;
  }
  size_t at = 3;
  if (absl::StartsWith(text, "sm_"))
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && at < 7;
         ++at)
      arch.sm = arch.sm * 10 + (text[at] - '0');
  arch.exact = at < text.size() && text[at] == 'a';
  bool suffix = at < text.size() && (text[at] == 'a' || text[at] == 'f');
  if (arch.sm < 10 || at + suffix != text.size())
    return absl::InvalidArgumentError(absl::StrCat(
        "the architecture is ", quoted(text), ", expected sm_90a or the like"));
  return arch;
}

struct Found {
  const Driver *driver;
  Device device;
  std::string name;
};

absl::StatusOr<Found> findDevice(const std::string &archText, int index) {
  absl::StatusOr<Arch> arch = parseArch(archText);
  QWEN35_RETURN_IF_ERROR(arch.status());
  absl::StatusOr<const Driver *> loaded = Driver::load();
  QWEN35_RETURN_IF_ERROR(loaded.status());
  const Driver &driver = **loaded;
  int count = 0;
  QWEN35_RETURN_IF_ERROR(
      driver.check(driver.deviceGetCount(&count), "cuDeviceGetCount"));
  std::vector<std::string> others;
  int fitting = 0;
  for (int i = 0; i < count; ++i) {
    Device device = 0;
    char name[256] = "";
    int major = 0, minor = 0;
    QWEN35_RETURN_IF_ERROR(
        driver.check(driver.deviceGet(&device, i), "cuDeviceGet"));
    QWEN35_RETURN_IF_ERROR(driver.check(
        driver.deviceGetName(name, sizeof name, device), "cuDeviceGetName"));
    for (auto [attribute, value] : {std::pair(kDeviceCapabilityMajor, &major),
                                    std::pair(kDeviceCapabilityMinor, &minor)})
      QWEN35_RETURN_IF_ERROR(
          driver.check(driver.deviceGetAttribute(value, attribute, device),
                       "cuDeviceGetAttribute"));
    bool fits = arch->emulated ? absl::StartsWith(name, kEmulated)
                : arch->exact
                    ? major * 10 + minor == arch->sm
                    : major == arch->sm / 10 && minor >= arch->sm % 10;
    if (fits && fitting++ == index)
      return Found{&driver, device, name};
    if (!fits)
      others.push_back(absl::StrCat(name, " (sm_", major, minor, ")"));
  }
  if (fitting > 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "GPU number ", index, " is asked for (counted from 0), this machine has ",
        fitting, " that this process may use and that run code for ", archText,
        "; more ranks than GPUs share them as virtual ranks"));
  return absl::FailedPreconditionError(absl::StrCat(
      "the bundle's kernels are for ", archText, ", this machine has ",
      others.empty() ? std::string("no GPU that this process may use")
                     : absl::StrJoin(others, ", ")));
}

} // namespace

absl::Status GpuDevice::find(const std::string &arch) {
  return findDevice(arch, 0).status();
}

absl::StatusOr<std::shared_ptr<GpuDevice>>
GpuDevice::open(const std::string &arch, int index) {
  absl::StatusOr<Found> found = findDevice(arch, index);
  QWEN35_RETURN_IF_ERROR(found.status());
  std::shared_ptr<GpuDevice> result(new GpuDevice);
  result->api = found->driver;
  result->device = found->device;
  result->deviceName = found->name;
  const Driver &driver = *found->driver;
  int shared = 0;
  for (auto [attribute, value] :
       {std::pair(kDeviceMultiprocessors, &result->processors),
        std::pair(kDeviceSharedOptin, &shared)})
    QWEN35_RETURN_IF_ERROR(
        driver.check(driver.deviceGetAttribute(value, attribute, found->device),
                     "cuDeviceGetAttribute"));
  result->shared = static_cast<uint64_t>(shared);
  QWEN35_RETURN_IF_ERROR(
      driver.check(driver.primaryCtxRetain(&result->context, found->device),
                   absl::StrCat("cuDevicePrimaryCtxRetain of ", found->name)));
  QWEN35_RETURN_IF_ERROR(result->use());
  return result;
}

GpuDevice::~GpuDevice() {
  if (context)
    api->primaryCtxRelease(device);
}

std::string GpuDevice::place() const {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0)
    host[0] = 0;
  return absl::StrCat(host, " GPU ", device);
}

absl::Status GpuDevice::use() const {
  return api->check(api->ctxSetCurrent(context), "cuCtxSetCurrent");
}

absl::Status GpuDevice::memory(uint64_t &free, uint64_t &total) const {
  size_t freeBytes = 0, totalBytes = 0;
  QWEN35_RETURN_IF_ERROR(
      api->check(api->memGetInfo(&freeBytes, &totalBytes), "cuMemGetInfo_v2"));
  free = freeBytes;
  total = totalBytes;
  return absl::OkStatus();
}

DevicePeaks GpuDevice::peaksOf(absl::string_view name) {
  // The first entry whose words are all in the name. NVIDIA data sheets, dense
  // (without sparsity). A slice of a device has a part of it, by its profile.
  if (absl::StrContains(name, "MIG"))
    return {};
  struct Known {
    absl::string_view word, other;
    DevicePeaks peaks;
  };
  static constexpr Known kKnown[] = {
      {"GB200", "", {2500e12, 8.0e12}},
      {"B200", "", {2250e12, 8.0e12}},
      {"H200", "NVL", {835e12, 4.8e12}},
      {"GH200", "", {989.4e12, 4.0e12}},
      {"H200", "", {989.4e12, 4.8e12}},
      {"H100", "PCIe", {756e12, 2.0e12}},
      {"H100", "NVL", {835e12, 3.9e12}},
      {"H100", "", {989.4e12, 3.35e12}},
      {"A100", "80GB", {312e12, 2.039e12}},
      {"A100", "", {312e12, 1.555e12}},
  };
  for (const Known &known : kKnown)
    if (absl::StrContains(name, known.word) &&
        absl::StrContains(name, known.other))
      return known.peaks;
  return {};
}

double GpuDevice::peakFlops() const { return peaksOf(deviceName).flops; }

double GpuDevice::peakBandwidth() const {
  return peaksOf(deviceName).bandwidth;
}

} // namespace qwen35::cuda
