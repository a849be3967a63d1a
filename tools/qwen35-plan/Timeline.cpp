#include "tools/qwen35-plan/Timeline.h"

#include "tools/qwen35-plan/Walk.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace qwen35::plan {

const char *boundName(Bound bound) {
  switch (bound) {
  case Bound::Tensor:
    return "tensor cores";
  case Bound::Memory:
    return "HBM";
  case Bound::Launch:
    return "launch";
  case Bound::Chain:
    return "chain";
  case Bound::Nvlink:
    return "NVLink";
  case Bound::Nic:
    return "NIC";
  case Bound::Latency:
    return "latency";
  }
  return "";
}

Cost kernelCost(const PlannedOp &entry, double chunks,
                const Hardware &hardware) {
  if (entry.kind == PlannedOp::Kind::Wait)
    return {0, Bound::Launch, "wait"};
  const OpClass &c = hardware.classOf(entry.op, entry.function);
  double rate = c.tflops * 1e12 * (entry.fp32 ? hardware.fp32Factor : 1);
  double tensor = entry.flops / rate, memory = entry.bytes / (c.tbs * 1e12),
         chain = chunks * c.serialUs * 1e-6, launch = c.us * 1e-6;
  Cost cost;
  cost.opClass = c.name;
  double most = std::max({tensor, memory, chain});
  cost.seconds = most + launch;
  cost.bound = launch >= most   ? Bound::Launch
               : most == chain  ? Bound::Chain
               : most == tensor ? Bound::Tensor
                                : Bound::Memory;
  return cost;
}

Cost collectiveCost(const std::string &kind, double bytes, int64_t ranks,
                    int64_t nodes, const Hardware &hardware) {
  Cost cost;
  cost.opClass = kind;
  double n = double(ranks), N = double(nodes), perNode = n / N;
  double nvlink = hardware.nvlinkGbs * 1e9, nic = hardware.nicGbs * 1e9;
  double inside = bytes * (n - 1) / n / nvlink;
  double between = bytes * (N - 1) / N / (perNode * nic);
  double latency = hardware.nvlinkUs * 1e-6 +
                   (nodes > 1 ? hardware.nicUs * 1e-6 * std::log2(N) : 0);
  if (kind == "all_to_all") {
    inside = bytes * (perNode - 1) / n / nvlink;
    between = bytes * (N - 1) / N / nic;
  } else if (kind == "shift") {
    inside = nodes > 1 ? 0 : bytes / nvlink;
    between = nodes > 1 ? bytes / nic : 0;
  } else if (kind == "all_slice") { // no rank hears of it
    inside = 2 * bytes / (hardware.classes.front().tbs * 1e12);
    between = 0;
    latency = hardware.classes.front().us * 1e-6;
  } else if (kind == "all_reduce") { // reduce_scatter and all_gather
    inside *= 2;
    between *= 2;
    latency *= 2;
  }
  double most = std::max(inside, between);
  cost.seconds = most + latency;
  cost.bound = latency >= most    ? Bound::Latency
               : between > inside ? Bound::Nic
                                  : Bound::Nvlink;
  return cost;
}

int64_t nodesOf(const Mesh &mesh, MeshAxes axes, int gpusPerNode) {
  std::set<int64_t> nodes;
  for (int64_t rank : mesh.group(0, axes))
    nodes.insert(rank / gpusPerNode);
  return static_cast<int64_t>(nodes.size());
}

std::vector<std::string> stepPrograms(const LocalStep &step,
                                      int64_t microbatches) {
  auto has = [&](const char *name) { return step.programs.count(name) > 0; };
  if (microbatches == 1 && has("only"))
    return {"only"};
  std::vector<std::string> order;
  if (microbatches == 1) {
    order = {"begin", "finish"};
  } else {
    int64_t middle = microbatches - 2;
    if (has("first"))
      order = {"first"};
    else
      order = {"begin", "accumulate"};
    order.insert(order.end(), middle, "accumulate");
    order.push_back("finish");
  }
  return order;
}

CostedStep::CostedStep(const LocalStep &step, int64_t microbatches,
                       const Hardware &hardware, const Overlap &overlap) {
  std::string error;
  std::optional<Mesh> mesh = Mesh::make(step.mesh, error);
  std::map<std::string, int> index;
  auto classOf = [&](const std::string &name) {
    auto [at, isNew] = index.emplace(name, static_cast<int>(classes.size()));
    if (isNew)
      classes.push_back(name);
    return at->second;
  };
  for (const std::string &name : stepPrograms(step, microbatches)) {
    auto found = step.programs.find(name);
    if (found == step.programs.end())
      continue;
    auto [at, isNew] = programs.try_emplace(name);
    CostedProgram &program = at->second;
    if (isNew) {
      program.name = name;
      std::vector<int> runs; // first entries of runs of one layer
      int layer = -2;
      for (const PlannedOp &op : found->second) {
        int number = static_cast<int>(program.entries.size());
        if (op.layer != layer) {
          runs.push_back(number);
          layer = op.layer;
        }
        CostedProgram::Entry entry;
        entry.op = &op;
        entry.collective = op.kind == PlannedOp::Kind::Collective;
        Cost cost;
        if (entry.collective) {
          MeshAxes axes = 0;
          for (const std::string &axis : op.axes)
            axes |= mesh->axes(axis).value_or(0);
          cost = collectiveCost(op.op, op.fullBytes, op.ranks,
                                nodesOf(*mesh, axes, hardware.gpusPerNode),
                                hardware);
          std::string over;
          for (const std::string &axis : op.axes)
            over += (over.empty() ? "" : ",") + axis;
          entry.opClass = classOf(op.op + " over " + over);
        } else {
          cost = kernelCost(op, step.chunks(), hardware);
          entry.opClass = classOf(cost.opClass);
        }
        entry.seconds = cost.seconds;
        entry.bound = cost.bound;
        size_t ahead = static_cast<size_t>(std::max(0, overlap.prefetch));
        entry.issueAfter =
            runs[runs.size() > ahead ? runs.size() - 1 - ahead : 0];
        program.entries.push_back(entry);
      }
    }
    order.push_back(&program);
  }
}

void Walker::enter() {
  // A program's first entry follows the last of the one before on both streams.
  compute = comm = std::max(compute, comm);
  index = 0;
  size_t entries =
      program < step.order.size() ? step.order[program]->entries.size() : 0;
  done.assign(entries, 0);
  started.assign(entries, 0);
}

double Walker::ready(const CostedProgram::Entry &entry, int &last) const {
  double when = 0;
  last = -1;
  for (int before : entry.op->after)
    if (done[before] > when) {
      when = done[before];
      last = before;
    }
  return when;
}

bool Walker::run() {
  for (; program < step.order.size(); ++program, enter()) {
    const std::vector<CostedProgram::Entry> &entries =
        step.order[program]->entries;
    for (; index < entries.size(); ++index) {
      const CostedProgram::Entry &entry = entries[index];
      int last;
      double inputs = ready(entry, last);
      if (entry.collective) {
        started[index] = compute; // where kernels are when they pass it
        arrivalTime = twoStreams
                          ? std::max({comm, inputs, started[entry.issueAfter]})
                          : std::max(comm, compute);
        return true;
      }
      double start = std::max(compute, inputs);
      double seconds = entry.seconds * slowdown;
      if (factor)
        seconds *= factor(entry);
      if (observe)
        observe(entry, start, start + seconds, start - compute,
                last >= 0 && start > compute ? &entries[last] : nullptr);
      started[index] = start;
      compute = done[index] = start + seconds;
    }
  }
  return false;
}

void Walker::finish(double start, double end) {
  const CostedProgram::Entry &now = entry();
  if (observe)
    observe(now, start, end, twoStreams ? 0 : end - compute, nullptr);
  comm = done[index] = end;
  if (!twoStreams)
    compute = end;
  ++index;
}

Timeline predictStep(const LocalStep &step, int64_t microbatches,
                     const Hardware &hardware, const Overlap &overlap,
                     bool keepEntries) {
  CostedStep costed(step, microbatches, hardware, overlap);
  std::vector<ClassTime> classes(costed.classes.size());
  for (size_t i = 0; i < classes.size(); ++i)
    classes[i].name = costed.classes[i];
  std::set<int> collective;
  Timeline result;
  Walker walker(costed, overlap.twoStreams);
  walker.observe = [&](const CostedProgram::Entry &entry, double start,
                       double end, double waited,
                       const CostedProgram::Entry *awaited) {
    ClassTime &c = classes[entry.opClass];
    double seconds = end - start;
    ++c.count;
    c.seconds += seconds;
    c.bySeconds[entry.bound] += seconds;
    c.flops += entry.op->flops;
    c.bytes += entry.collective ? entry.op->fullBytes : entry.op->bytes;
    if (entry.collective) {
      collective.insert(entry.opClass);
      result.communication += seconds;
      c.exposed += waited;
      result.exposed += waited;
      if (entry.bound == Bound::Nic)
        result.nicSeconds += seconds;
    } else {
      result.compute += seconds;
      if (awaited && awaited->collective) {
        classes[awaited->opClass].exposed += waited;
        result.exposed += waited;
      }
    }
    if (entry.op->layer >= 0)
      result.perLayer[entry.op->layer][c.name] += seconds / microbatches;
    if (keepEntries)
      result.entries.push_back({start, end, entry.collective, c.name,
                                entry.op->layer, entry.op->liveBytes});
  };
  while (walker.run())
    walker.finish(walker.arrival(), walker.arrival() + walker.entry().seconds);
  result.seconds = walker.seconds();
  for (size_t i = 0; i < classes.size(); ++i)
    (collective.count(static_cast<int>(i)) ? result.collectives
                                           : result.kernels)
        .push_back(classes[i]);
  auto more = [](const ClassTime &a, const ClassTime &b) {
    return std::pair(b.seconds, a.name) < std::pair(a.seconds, b.name);
  };
  std::sort(result.kernels.begin(), result.kernels.end(), more);
  std::sort(result.collectives.begin(), result.collectives.end(), more);
  return result;
}

} // namespace qwen35::plan
