#include "runtime/train/rank_world.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "runtime/bundle/ranks.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/environment.h"
#include "runtime/comm/start.h"
#include "runtime/comm/virtual.h"
#include "runtime/train/rank_store.h"

namespace qwen35 {
namespace {

std::string count(int64_t ranks) {
  return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks");
}

/// What every rank says of what it starts with; equal on all, or they stop.
std::vector<std::pair<std::string, std::string>>
agreement(const RunOptions &options, const absl::StatusOr<RunSetup> &setup) {
  std::string bundle = setup.ok() ? setup->bundle->digest().substr(0, 12)
                                  : std::string(setup.status().message());
  std::vector<std::pair<std::string, std::string>> all = {
      {"bundle", bundle},
      {"--init", options.initSeed ? absl::StrCat(*options.initSeed) : "none"},
      {"--export-hf", options.exportHf},
      {"--eval-loss", options.evalLoss ? "yes" : "no"},
      {"--no-save", options.noSave ? "yes" : "no"},
      {"--max-skipped", absl::StrCat(options.maxSkipped)},
      {"--batch", options.batch},
      {"--steps", options.steps ? absl::StrCat(*options.steps) : "none"}};
  if (setup.ok())
    for (const RecipeKeyInfo &key : recipeKeys())
      all.emplace_back(key.name,
                       recipeValue(setup->recipe, key.name).value_or(""));
  return all;
}

absl::StatusOr<int> ranksOnMachine(comm::World &world) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  absl::StatusOr<std::vector<std::string>> hosts =
      world.exchange("machines", host);
  QWEN35_RETURN_IF_ERROR(hosts.status());
  return static_cast<int>(std::count(hosts->begin(), hosts->end(), host));
}

absl::Status
runProcess(const RunOptions &options, const comm::Launch &launch,
           const absl::StatusOr<RunSetup> &setup, int64_t ranks,
           absl::FunctionRef<absl::Status(const RankPlace &)> body) {
  comm::StartOptions start;
  start.agree = agreement(options, setup);
  start.silenceSeconds = options.rankSilence;
  start.callSeconds = options.rankWait;
  start.ranks = setup.ok() ? static_cast<int>(ranks) : 0;
  absl::StatusOr<std::unique_ptr<comm::World>> world =
      comm::start(start, launch);
  QWEN35_RETURN_IF_ERROR(world.status());
  RankPlace place;
  place.world = world->get();
  place.onDevice = launch.localRank;
  place.how = launch.kind == comm::Launch::kMpi ? "MPI" : "TCP";
  absl::Status status = setup.status();
  bool together = !status.ok(); // they compared what they say of it
  if (status.ok()) {
    absl::StatusOr<int> neighbours = ranksOnMachine(**world);
    QWEN35_RETURN_IF_ERROR(neighbours.status());
    place.onMachine = *neighbours;
    status = body(place);
    together = isOfAllRanks(status);
  }
  if (!status.ok() && !together) {
    (*world)->abort(status);
    return status;
  }
  absl::Status finished = (*world)->finish();
  return status.ok() ? finished : status;
}

} // namespace

absl::StatusOr<LoaderOptions> rankLoader(const RunSetup &setup,
                                         const RankPlace &place) {
  const bundle::Bundle &message = setup.bundle->message();
  LoaderOptions result;
  // As one rank has it; a rank of several may get a part.
  result.shape = {setup.recipe.data.tokens, setup.recipe.data.maxDocs + 1};
  result.rows = setup.recipe.train.rows;
  result.seed = static_cast<uint64_t>(setup.recipe.train.seed);
  if (!place.world)
    return result;
  absl::StatusOr<Mesh> mesh = meshOf(message);
  QWEN35_RETURN_IF_ERROR(mesh.status());
  MeshAxes data = mesh->axes("data").value_or(0);
  result.dataRank = mesh->coordinate(place.world->rank(), data);
  result.dataRanks = mesh->size(data);
  for (const bundle::IoBuffer &input : message.io().inputs())
    if (input.name() == "stripes") {
      MeshAxes cp = mesh->axes("cp").value_or(0);
      result.stripeRank = mesh->coordinate(place.world->rank(), cp);
      result.stripeRanks = mesh->size(cp);
      result.stripeMultiple = 1; // the compiler has seen to it
    }
  return result;
}

StepOptions stepOptionsOf(const RunOptions &options, const RankPlace &place) {
  StepOptions result = stepOptionsOf(options);
  result.world = place.world;
  result.device = place.onDevice;
  result.overHost = place.together || options.overHost;
  if (place.world && result.threads == 0)
    result.threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()) /
                        place.onMachine);
  return result;
}

absl::Status runRanks(const RunOptions &options,
                      const absl::StatusOr<RunSetup> &setup,
                      absl::FunctionRef<absl::Status(const RankPlace &)> body) {
  int64_t ranks = 1;
  std::string mesh;
  if (setup.ok()) {
    absl::StatusOr<Mesh> found = meshOf(setup->bundle->message());
    QWEN35_RETURN_IF_ERROR(found.status());
    ranks = found->ranks();
    mesh = printMeshShape(found->shape());
  }
  if (options.virtualRanks > 0) {
    QWEN35_RETURN_IF_ERROR(setup.status());
    if (options.virtualRanks != ranks)
      return absl::FailedPreconditionError(absl::StrCat(
          "--virtual-ranks ", options.virtualRanks, ", but the bundle is for ",
          count(ranks), " (", mesh, ")"));
    if (ranks == 1)
      return body({});
    int n = static_cast<int>(ranks);
    comm::VirtualOptions limits;
    limits.limitSeconds = options.rankWait;
    return comm::runVirtualRanks(
        n,
        [&](comm::World &world) {
          return body({&world, n, 0, true, "threads of this process"});
        },
        limits);
  }
  absl::StatusOr<comm::Launch> launch = comm::readEnvironment();
  QWEN35_RETURN_IF_ERROR(launch.status());
  if (launch->kind != comm::Launch::kSingle)
    return runProcess(options, *launch, setup, ranks, body);
  QWEN35_RETURN_IF_ERROR(setup.status());
  if (ranks > 1)
    return absl::FailedPreconditionError(absl::StrCat(
        "the bundle is for ", count(ranks), " (", mesh,
        ") and this process was started alone; start it with mpirun -np ",
        ranks, ", with torchrun --nproc-per-node, or with --virtual-ranks ",
        ranks));
  return body({});
}

} // namespace qwen35
