#include "runtime/step/device_exchange.h"

#include <algorithm>

namespace qwen35 {
namespace {

constexpr uint64_t kAlign = 256;

uint64_t imageBytes(const bundle::Arg &arg) {
  return (arg.bytes() + kAlign - 1) / kAlign * kAlign;
}

/// Calls `of(arg, received)` for everything that a collective touches; stages
/// are memory of the exchange alone.
void forArgs(const bundle::Collective &collective,
             absl::FunctionRef<void(const bundle::Arg &, bool)> of) {
  for (const bundle::Collective::Part &part : collective.parts()) {
    of(part.send(), false);
    of(part.receive(), true);
  }
}

uint64_t imageBytes(const bundle::Collective &collective) {
  uint64_t bytes = 0;
  forArgs(collective,
          [&](const bundle::Arg &arg, bool) { bytes += imageBytes(arg); });
  if (collective.has_send_stage())
    bytes += imageBytes(collective.send_stage());
  if (collective.has_receive_stage())
    bytes += imageBytes(collective.receive_stage());
  return bytes;
}

bool startsAny(const bundle::Bundle &plan) {
  for (const bundle::Program &program : plan.programs())
    for (const bundle::PlanEntry &entry : program.entries())
      if (entry.has_collective() && entry.collective().async())
        return true;
  return false;
}

} // namespace

absl::Status DeviceExchanges::init(const cuda::Driver &driver,
                                   const bundle::Bundle &plan,
                                   comm::World *world, cuda::Stream on,
                                   std::shared_ptr<cuda::GpuDevice> gpu) {
  api = &driver;
  stream = copies = on;
  if (gpu && world && plan.communicators_size() != 0) {
    if (startsAny(plan))
      QWEN35_RETURN_IF_ERROR(
          api->check(api->streamCreate(&ownStream, cuda::kStreamNonBlocking),
                     "cuStreamCreate"));
    nccl::NcclOptions options;
    options.stream = ownStream ? ownStream : stream;
    options.device = gpu->place();
    options.use = [gpu = std::move(gpu)] { return gpu->use(); };
    absl::StatusOr<std::unique_ptr<nccl::NcclWorld>> made =
        nccl::NcclWorld::make(*world, driver, options);
    QWEN35_RETURN_IF_ERROR(made.status());
    nccl = *std::move(made);
    exchanges.copyBy(
        [this](const Exchanges::Copy &copy) { return copyOnDevice(copy); });
    return exchanges.init(plan, nccl.get());
  }
  QWEN35_RETURN_IF_ERROR(exchanges.init(plan, world));
  uint64_t most = 0;
  for (const bundle::Program &program : plan.programs())
    for (const bundle::PlanEntry &entry : program.entries())
      if (entry.has_collective())
        most = std::max(most, imageBytes(entry.collective()));
  return images.allocateHost(driver, most, "collectives");
}

uint32_t DeviceExchanges::add(const bundle::Collective &collective,
                              Address address) {
  if (nccl)
    return exchanges.add(collective, [&](const bundle::Arg &arg) {
      return reinterpret_cast<uint8_t *>(address(arg));
    });
  std::vector<Image> list;
  std::vector<std::pair<const bundle::Arg *, uint8_t *>> places;
  uint8_t *next = images.host();
  // In place stays in place: one image for equal bytes.
  auto place = [&](const bundle::Arg &arg) {
    for (const auto &[other, at] : places)
      if (other->buffer() == arg.buffer() && other->offset() == arg.offset() &&
          other->bytes() == arg.bytes())
        return at;
    places.emplace_back(&arg, next);
    next += imageBytes(arg);
    return places.back().second;
  };
  forArgs(collective, [&](const bundle::Arg &arg, bool received) {
    uint8_t *at = place(arg);
    for (Image &image : list)
      if (image.host == at) {
        image.received |= received;
        return;
      }
    list.push_back({address(arg), at, arg.bytes(), received});
  });
  uint32_t index = exchanges.add(collective, place);
  collectives.resize(index + 1);
  collectives[index] = std::move(list);
  return index;
}

absl::Status DeviceExchanges::copyOnDevice(const Exchanges::Copy &copy) {
  cuda::Copy2D lines;
  lines.from.memoryType = lines.to.memoryType = cuda::kMemoryDevice;
  lines.from.device = reinterpret_cast<cuda::DevicePtr>(copy.from);
  lines.to.device = reinterpret_cast<cuda::DevicePtr>(copy.to);
  lines.from.pitch = static_cast<size_t>(copy.fromStride);
  lines.to.pitch = static_cast<size_t>(copy.toStride);
  lines.widthBytes = static_cast<size_t>(copy.width);
  lines.height = static_cast<size_t>(copy.rows);
  return api->check(api->memcpy2DAsync(&lines, copies),
                    "cuMemcpy2DAsync_v2 of a collective");
}

absl::Status DeviceExchanges::record(cuda::Event &event, cuda::Stream on) {
  if (!event)
    QWEN35_RETURN_IF_ERROR(
        api->check(api->eventCreate(&event, cuda::kEventDisableTiming),
                   "cuEventCreate of a collective"));
  return api->check(api->eventRecord(event, on),
                    "cuEventRecord of a collective");
}

absl::Status DeviceExchanges::wait(uint32_t index) {
  if (index >= flying.size() || !flying[index])
    return absl::OkStatus();
  flying[index] = false;
  return api->check(api->streamWaitEvent(stream, ended[index], 0),
                    "cuStreamWaitEvent for a collective");
}

void DeviceExchanges::close() {
  if (ownStream)
    api->streamSynchronize(ownStream);
  exchanges = Exchanges();
  nccl.reset();
  ended.push_back(ready);
  for (cuda::Event event : ended)
    if (event)
      api->eventDestroy(event);
  ended.clear();
  ready = nullptr;
  if (ownStream)
    api->streamDestroy(ownStream);
  ownStream = nullptr;
}

absl::Status DeviceExchanges::start(uint32_t index) {
  if (nccl && (!ownStream || exchanges.onlyCopies(index)))
    return exchanges.run(index);
  if (nccl) {
    if (index >= ended.size()) {
      ended.resize(index + 1);
      flying.resize(index + 1);
    }
    QWEN35_RETURN_IF_ERROR(record(ready, stream));
    QWEN35_RETURN_IF_ERROR(
        api->check(api->streamWaitEvent(ownStream, ready, 0),
                   "cuStreamWaitEvent of a collective"));
    copies = ownStream;
    absl::Status ran = exchanges.run(index);
    copies = stream;
    QWEN35_RETURN_IF_ERROR(ran);
    QWEN35_RETURN_IF_ERROR(record(ended[index], ownStream));
    flying[index] = true;
    return absl::OkStatus();
  }
  // Also of what is received: a collective need not write all of it.
  for (const Image &image : collectives[index])
    QWEN35_RETURN_IF_ERROR(api->check(
        api->memcpyDtoHAsync(image.host, image.device, image.bytes, stream),
        "cuMemcpyDtoHAsync_v2 of a collective"));
  QWEN35_RETURN_IF_ERROR(
      api->check(api->streamSynchronize(stream),
                 "waiting for the operands of a collective"));
  QWEN35_RETURN_IF_ERROR(exchanges.run(index));
  for (const Image &image : collectives[index])
    if (image.received)
      QWEN35_RETURN_IF_ERROR(api->check(
          api->memcpyHtoDAsync(image.device, image.host, image.bytes, stream),
          "cuMemcpyHtoDAsync_v2 of a collective"));
  return absl::OkStatus();
}

} // namespace qwen35
