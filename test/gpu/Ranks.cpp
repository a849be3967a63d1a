// Ranks on one GPU against the same ranks on the CPU, bit for bit: four that
// share it, and a world of one over NCCL, launch by launch and as one graph.
//
//   qwen35_gpu_ranks FOLDER      what qwen35_rank_bundles has written there

#include "runtime/api/step.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/virtual.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

using namespace qwen35;

namespace {

/// Gradients of every rank, in the order of the bundle's buffers.
using Gradients = std::vector<std::vector<float>>;

struct Run {
  StepOptions options;
  bool captured = false; // one step of a microbatch, else @accumulate alone
};

absl::Status runRank(const std::string &path, Run run, comm::World &world,
                     std::vector<float> &gradients, std::string &note) {
  absl::StatusOr<std::shared_ptr<const BundleFile>> file =
      BundleFile::open(path);
  QWEN35_RETURN_IF_ERROR(file.status());
  run.options.world = &world;
  absl::StatusOr<std::unique_ptr<Step>> step = Step::create(*file, run.options);
  QWEN35_RETURN_IF_ERROR(step.status());
  for (const std::string &each : (*step)->notes())
    if (each.rfind("ranks ", 0) == 0)
      note = each.substr(8);
  uint32_t state = 1 + static_cast<uint32_t>(world.rank());
  auto forBuffers = [&](auto body) -> absl::Status {
    const auto &buffers = (*file)->message().buffers();
    for (int i = 0; i < buffers.size(); ++i)
      for (const char *role : {"weight:", "grad:"})
        if (buffers[i].name().rfind(role, 0) == 0)
          QWEN35_RETURN_IF_ERROR(
              body(*(*step)->findBuffer(buffers[i].name()), role[0] == 'g'));
    return absl::OkStatus();
  };
  QWEN35_RETURN_IF_ERROR(forBuffers([&](uint32_t index, bool) {
    float values[32];
    for (float &value : values) {
      state = state * 1664525 + 1013904223;
      value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
    return (*step)->write(
        index, 0,
        absl::MakeSpan(reinterpret_cast<uint8_t *>(values), sizeof values));
  }));
  auto fill = [&](int64_t) -> absl::Status {
    absl::StatusOr<absl::Span<int32_t>> ids = (*step)->input("ids");
    QWEN35_RETURN_IF_ERROR(ids.status());
    for (size_t t = 0; t < ids->size(); ++t)
      (*ids)[t] = static_cast<int32_t>(
          4 * (world.rank() % 2) + (t + static_cast<size_t>(world.rank())) % 4);
    return (*step)->setScalar("inv_count", 0.25f * world.rank());
  };
  if (run.captured) {
    // Two microbatches: @accumulate and @finish.
    QWEN35_RETURN_IF_ERROR((*step)->runStep(2, fill));
    if (!run.options.eager && (*step)->graph().launches != 1 &&
        !(*step)->hostMemory())
      return absl::InternalError("the step was not one graph");
  } else {
    QWEN35_RETURN_IF_ERROR(fill(0));
    QWEN35_RETURN_IF_ERROR((*step)->run("accumulate"));
  }
  return forBuffers([&](uint32_t index, bool gradient) -> absl::Status {
    if (!gradient)
      return absl::OkStatus();
    size_t at = gradients.size();
    gradients.resize(at + 32);
    return (*step)->read(
        index, 0,
        absl::MakeSpan(reinterpret_cast<uint8_t *>(&gradients[at]), 32 * 4));
  });
}

absl::Status runAll(const std::string &path, const Run &run, int ranks,
                    Gradients &gradients, std::string &note) {
  gradients.assign(static_cast<size_t>(ranks), {});
  std::mutex mutex;
  return comm::runVirtualRanks(ranks, [&](comm::World &world) {
    std::string mine;
    absl::Status status = runRank(
        path, run, world, gradients[static_cast<size_t>(world.rank())], mine);
    std::lock_guard guard(mutex);
    note = mine;
    return status;
  });
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: qwen35_gpu_ranks FOLDER\n");
    return 2;
  }
  struct Trial {
    const char *name, *bundle;
    int ranks;
    bool overHost, eager, captured;
  };
  const Trial trials[] = {
      {"four ranks that share a GPU", "four", 4, true, true, false},
      {"a world of one over NCCL, launch by launch", "one", 1, false, true,
       true},
      {"a world of one over NCCL, one graph", "one", 1, false, false, true},
  };
  int failed = 0;
  for (const Trial &trial : trials) {
    Run cpu, gpu;
    cpu.options.target = "cpu";
    cpu.options.threads = 1;
    gpu.options.target = "cuda";
    gpu.options.overHost = trial.overHost;
    gpu.options.eager = trial.eager;
    cpu.captured = gpu.captured = trial.captured;
    std::string base = absl::StrCat(argv[1], "/ranks-", trial.bundle), note;
    Gradients expected, got;
    absl::Status status =
        runAll(base + "-cpu.q35", cpu, trial.ranks, expected, note);
    if (status.ok())
      status = runAll(base + "-gpu.q35", gpu, trial.ranks, got, note);
    int64_t differ = 0, all = 0;
    for (size_t rank = 0; status.ok() && rank < expected.size(); ++rank)
      for (size_t i = 0; i < expected[rank].size(); ++i, ++all)
        differ += std::memcmp(&expected[rank][i], &got[rank][i], 4) != 0;
    bool overNccl = note.find("NCCL") != std::string::npos;
    if (status.ok() && overNccl == trial.overHost)
      status = absl::InternalError("the exchanges went another way: " + note);
    bool good = status.ok() && all > 0 && differ == 0;
    failed += !good;
    std::printf(
        "%s: %s%s\n", trial.name,
        good ? absl::StrCat("the bits of the CPU in ", all, " numbers; ", note)
                   .c_str()
             : "FAILED: ",
        good ? ""
        : status.ok()
            ? absl::StrCat(differ, " of ", all, " numbers differ").c_str()
            : std::string(status.message()).c_str());
  }
  return failed != 0;
}
