#include "tools/qwen35-plan/Ranking.h"

#include "frontend/config/Parameters.h"
#include "tools/qwen35-plan/Report.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

namespace qwen35::plan {

/// Elements of the experts of all layers.
static double expertElements(const ModelConfig &c) {
  return c.moe ? 3.0 * double(c.numExperts) * double(c.hiddenSize) *
                     double(c.moeIntermediateSize) * double(c.numLayers())
               : 0;
}

void estimateMesh(const ModelConfig &config, const PlanRequest &request,
                  const Hardware &hardware, int64_t rows, RankedMesh &mesh) {
  const MeshShape &s = mesh.shape;
  double ranks = double(s.ranks()), data = double(s.dpr * s.dps);
  double microbatches = double(rows) / data;
  double rowTokens = double(request.recipe.data.tokens);
  double D = double(config.hiddenSize), layers = double(config.numLayers());
  double experts = expertElements(config);
  double dense = double(countParameters(config).total) - experts;

  // State. Dense weights are split over tp, experts over ep; what zero splits
  // goes over dps and cp, for experts over what ep leaves of dps, cp and tp.
  double denseLocal = dense / double(s.tp),
         expertLocal = experts / double(s.ep);
  double denseSplit = double(s.dps * s.cp);
  double expertSplit = double(s.dps * s.cp * s.tp) / double(s.ep);
  auto bytes = [&](double local, double split) {
    auto part = [&](int64_t from) { return mesh.zero >= from ? split : 1.0; };
    return local * (12 / part(1) + 4 / part(2) + 2 / part(3));
  };
  // A layer keeps its input for backward at the very least.
  double tokens = mesh.tokens = rowTokens / double(s.cp * s.tp);
  mesh.leastBytes = bytes(denseLocal, denseSplit) +
                    bytes(expertLocal, expertSplit) + layers * tokens * D * 2;

  double flops = trainingFlops(config, request.recipe.data.tokens,
                               DeltaRuleCount::Useful) *
                 rowTokens * double(rows) / ranks;
  mesh.leastSeconds = flops / (hardware.peakTflops * 1e12);

  // Collectives, all of them in a queue.
  std::string error;
  std::optional<Mesh> made = Mesh::make(s, error);
  double seconds = 0;
  auto add = [&](const char *kind, double fullBytes, MeshAxes axes,
                 double times) {
    if (int64_t n = made->size(axes); n > 1)
      seconds +=
          times * collectiveCost(kind, fullBytes, n,
                                 nodesOf(*made, axes, hardware.gpusPerNode),
                                 hardware)
                      .seconds;
  };
  auto axes = [&](const char *name) { return made->axes(name).value_or(0); };
  double stream = rowTokens / double(s.cp) * D * 2; // of a tp group
  // Sequence parallelism: two gathers and two scatters a layer, and as many in
  // backward with the gathers again.
  add("all_gather", stream, axes("tp"), 6 * layers * microbatches);
  add("reduce_scatter", stream, axes("tp"), 4 * layers * microbatches);
  if (config.moe) {
    double group = double(made->size(axes("ep"))), all = tokens * group * D * 2;
    add("all_gather", all, axes("ep"), 3 * layers * microbatches);
    add("reduce_scatter", all, axes("ep"), 2 * layers * microbatches);
  }
  MeshAxes fsdp = axes("fsdp"), edp = axes("edp"), replicas = axes("dpr");
  double passes = mesh.zero >= 3 ? 2 * microbatches : 1;
  double sums = mesh.zero >= 2 ? microbatches : 1;
  for (auto [local, over] :
       {std::pair(denseLocal, fsdp), std::pair(expertLocal, edp)}) {
    add("all_gather", local * 2, over, passes);
    add("reduce_scatter", local * 4, over, sums);
    add("all_reduce", local * 4 / double(made->size(over)), replicas, 1);
  }
  // Dense products reach about 0.6 of the peak, and half of the communication
  // hides. Full remat is one more forward.
  double again = mesh.remat == "full"   ? 4.0 / 3
                 : mesh.remat == "none" ? 1
                                        : 1.05;
  mesh.roughSeconds = mesh.leastSeconds * again / 0.6 + seconds / 2;
}

/// The number of layers after which kinds of layers repeat.
static int64_t periodOf(const ModelConfig &config) {
  const std::vector<LayerType> &types = config.layerTypes;
  for (size_t period = 1; period < types.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < types.size() && repeats; ++i)
      repeats = types[i] == types[i - period];
    if (repeats)
      return static_cast<int64_t>(period);
  }
  return config.numLayers();
}

/// Fills in what plans say.
static void predictRanked(const ModelConfig &config, const PlanRequest &request,
                          const Hardware &hardware, int64_t rows,
                          RankedMesh &mesh) {
  int64_t period = periodOf(config), layers = config.numLayers();
  auto compiled = [&](int64_t count, std::string &error) {
    ModelConfig part = config;
    part.layerTypes.resize(static_cast<size_t>(count));
    PlanRequest own = request;
    own.recipe.memory.remat = mesh.remat;
    return predictMesh(part, own, hardware, mesh.shape, mesh.zero, rows,
                       /*keepEntries=*/false, error);
  };
  bool whole = 2 * period >= layers;
  std::optional<PlannedMesh> two =
      compiled(whole ? layers : 2 * period, mesh.limit);
  if (!two)
    return;
  double more = 0; // periods
  std::optional<PlannedMesh> one;
  if (!whole) {
    if (one = compiled(period, mesh.limit); !one)
      return;
    more = double(layers - 2 * period) / double(period);
  }
  auto extend = [&](auto of) {
    return of(*two) + (one ? more * (of(*two) - of(*one)) : 0);
  };
  mesh.bytes = extend([](auto &m) { return m.step.totalBytes; });
  mesh.activations =
      extend([](auto &m) { return m.step.totalBytes - m.step.stateBytes; });
  mesh.seconds = extend([](auto &m) { return m.timeline.seconds; });
  mesh.exposed = extend([](auto &m) { return m.timeline.exposed; });
  mesh.fits = mesh.bytes <= hardware.plannedGb * 1e9;
  mesh.limit = limitOf(*two);
}

std::optional<Ranking> rankMeshes(const ModelConfig &config,
                                  const PlanRequest &request,
                                  const Hardware &hardware,
                                  std::string &error) {
  auto started = std::chrono::steady_clock::now();
  Ranking ranking;
  ranking.rows = request.rows ? request.rows : request.gpus;
  std::vector<int64_t> zeros = {1, 2, 3};
  if (request.zero >= 0)
    zeros = {request.zero};
  std::vector<std::string> remats = {request.recipe.memory.remat};
  if (request.anyRemat)
    remats = {"none", "selective", "full"};
  std::vector<RankedMesh> candidates;
  for (const MeshShape &shape : legalMeshes(
           request.gpus, meshLimits(config, request.recipe.data.tokens))) {
    if (ranking.rows % (shape.dpr * shape.dps) != 0)
      continue;
    for (int64_t zero : zeros)
      for (const std::string &remat : remats) {
        ++ranking.legal;
        RankedMesh mesh{.shape = shape, .zero = zero, .remat = remat};
        estimateMesh(config, request, hardware, ranking.rows, mesh);
        if (mesh.leastBytes > hardware.plannedGb * 1e9)
          ++ranking.tooLarge;
        else
          candidates.push_back(mesh);
      }
  }
  if (ranking.legal == 0) {
    error = llvm::formatv("no mesh of {0} GPUs that {1} rows a step and the "
                          "model can be split over: expected another number "
                          "of GPUs, or --rows",
                          request.gpus, ranking.rows)
                .str();
    return std::nullopt;
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const RankedMesh &a, const RankedMesh &b) {
              return a.roughSeconds < b.roughSeconds;
            });

  auto predictAll = [&](std::vector<RankedMesh *> meshes) {
    std::atomic<size_t> next = 0;
    auto work = [&] {
      for (size_t i; (i = next++) < meshes.size();)
        predictRanked(config, request, hardware, ranking.rows, *meshes[i]);
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
      threads.emplace_back(work);
    work();
    for (std::thread &thread : threads)
      thread.join();
  };
  std::vector<RankedMesh *> first;
  for (const std::string &remat : remats)
    for (RankedMesh &mesh : candidates)
      if (mesh.remat == remat) {
        first.push_back(&mesh);
        break;
      }
  predictAll(first);
  // Rounds, until some fit.
  constexpr int kRounds = 6, kEnough = 4;
  double layers = double(config.numLayers());
  std::vector<RankedMesh> tried;
  auto isTried = [](const RankedMesh &mesh) {
    return mesh.seconds > 0 || !mesh.limit.empty();
  };
  for (int round = 0; round < kRounds; ++round) {
    std::map<std::string, double> kept; // bytes of a token of a layer, at least
    for (const std::vector<RankedMesh> *meshes : {&tried, &candidates})
      for (const RankedMesh &mesh : *meshes)
        if (mesh.seconds > 0) {
          double bytes = 0.95 * mesh.activations / mesh.tokens / layers;
          auto [at, isNew] = kept.try_emplace(mesh.remat, bytes);
          at->second = std::min(at->second, bytes);
        }
    std::vector<RankedMesh> untried;
    for (RankedMesh &mesh : candidates) {
      double least = mesh.leastBytes + layers * mesh.tokens * kept[mesh.remat];
      if (isTried(mesh))
        tried.push_back(mesh);
      else if (least > hardware.plannedGb * 1e9)
        ++ranking.tooLarge;
      else
        untried.push_back(mesh);
    }
    candidates = std::move(untried);
    auto fitting = std::count_if(tried.begin(), tried.end(),
                                 [](auto &mesh) { return mesh.fits; });
    if (candidates.empty() || (round > 0 && fitting >= kEnough))
      break;
    std::vector<RankedMesh *> more;
    for (RankedMesh &mesh : candidates)
      if (more.size() < static_cast<size_t>(request.candidates))
        more.push_back(&mesh);
    predictAll(more);
  }
  for (RankedMesh &mesh : candidates)
    if (isTried(mesh))
      tried.push_back(mesh);
  candidates = std::move(tried);

  ranking.compiled = static_cast<int64_t>(candidates.size());
  std::sort(candidates.begin(), candidates.end(),
            [](const RankedMesh &a, const RankedMesh &b) {
              auto key = [](const RankedMesh &m) {
                return std::pair(m.seconds == 0 ? 2
                                 : m.fits       ? 0
                                                : 1,
                                 m.fits ? m.seconds : m.bytes);
              };
              return key(a) < key(b);
            });
  ranking.meshes = std::move(candidates);
  ranking.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started)
          .count();
  return ranking;
}

void printRanking(const ModelConfig &config, const PlanRequest &request,
                  const Hardware &hardware, const Ranking &ranking,
                  llvm::raw_ostream &out) {
  out << llvm::formatv(
      "{0} GPUs, {1} rows of {2} tokens a step: {3} meshes (with "
      "zero and remat) are legal, {4} of them cannot fit; the {5} most "
      "promising were compiled, in {6}\n\n",
      request.gpus, ranking.rows, request.recipe.data.tokens, ranking.legal,
      ranking.tooLarge, ranking.compiled, formatSeconds(ranking.seconds));
  out << llvm::format("  %-42s %4s %-9s %10s %10s %9s %12s %6s  %s\n", "mesh",
                      "zero", "remat", "memory", "step", "exposed",
                      "tokens/s/GPU", "MFU", "limited by");
  double perToken =
      trainingFlops(config, request.recipe.data.tokens, DeltaRuleCount::Useful);
  double tokens = double(ranking.rows) * double(request.recipe.data.tokens);
  int64_t shown = 0;
  for (const RankedMesh &mesh : ranking.meshes) {
    if (++shown > request.top)
      break;
    out << llvm::format("  %-42s %4lld %-9s ",
                        printMeshShape(mesh.shape).c_str(),
                        static_cast<long long>(mesh.zero), mesh.remat.c_str());
    if (mesh.seconds == 0) {
      out << " refused: " << mesh.limit << "\n";
      continue;
    }
    double perGpu = tokens / mesh.seconds / double(request.gpus);
    out << llvm::format(
        "%10s %10s %7.0f %% %12.0f %4.1f %%  ", formatGb(mesh.bytes).c_str(),
        formatSeconds(mesh.seconds).c_str(), 100 * mesh.exposed / mesh.seconds,
        perGpu, 100 * perToken * perGpu / (hardware.peakTflops * 1e12));
    if (mesh.fits)
      out << mesh.limit << "\n";
    else
      out << llvm::format("does not fit into %.0f GB\n", hardware.plannedGb);
  }
  out << "\n";
}

} // namespace qwen35::plan
