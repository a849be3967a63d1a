#include "tools/qwen35-plan/Report.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

namespace qwen35::plan {

std::string formatSeconds(double seconds) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (seconds >= 1)
    out << llvm::format("%.2f s", seconds);
  else if (seconds >= 1e-3)
    out << llvm::format("%.1f ms", seconds * 1e3);
  else
    out << llvm::format("%.1f us", seconds * 1e6);
  return text;
}

std::string formatGb(double bytes) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.2f GB", bytes / 1e9);
  return text;
}

static std::string mostOf(const ClassTime &c) {
  auto most =
      std::max_element(c.bySeconds.begin(), c.bySeconds.end(),
                       [](auto &a, auto &b) { return a.second < b.second; });
  if (most == c.bySeconds.end())
    return "";
  return llvm::formatv("{0} ({1:F0} %)", boundName(most->first),
                       c.seconds > 0 ? 100 * most->second / c.seconds : 100)
      .str();
}

std::string limitOf(const PlannedMesh &mesh) {
  const Timeline &t = mesh.timeline;
  std::string worst;
  double exposed = 0;
  for (const ClassTime &c : t.collectives)
    if (c.exposed > exposed) {
      exposed = c.exposed;
      worst = c.name;
    }
  if (exposed > 0.1 * t.seconds)
    return llvm::formatv("{0}: {1:F0} % of the step exposed", worst,
                         100 * exposed / t.seconds)
        .str();
  if (t.kernels.empty())
    return "";
  const ClassTime &c = t.kernels.front();
  return llvm::formatv("{0}: {1:F0} % of the step, {2}", c.name,
                       100 * c.seconds / t.seconds, mostOf(c))
      .str();
}

static void printLine(llvm::raw_ostream &out, const ClassTime &c, double step,
                      bool collective) {
  out << llvm::format("  %-32s %7lld %11s %5.1f %%  ", c.name.c_str(),
                      static_cast<long long>(c.count),
                      formatSeconds(c.seconds).c_str(), 100 * c.seconds / step);
  if (collective)
    out << llvm::format("%10s exposed, %s a call, ",
                        formatSeconds(c.exposed).c_str(),
                        formatSeconds(c.seconds / double(c.count)).c_str());
  else
    out << llvm::format("%6.0f TFLOP/s %5.2f TB/s, ",
                        c.flops / c.seconds / 1e12, c.bytes / c.seconds / 1e12);
  out << mostOf(c) << "\n";
}

void printMesh(const PlannedMesh &mesh, const Hardware &hardware,
               llvm::raw_ostream &out) {
  const LocalStep &step = mesh.step;
  const Timeline &t = mesh.timeline;
  out << llvm::formatv(
      "mesh {0}, zero {1}: {2} ranks, {3} rows of {4} tokens a step, {5} "
      "microbatches; planned in {6}\n",
      printMeshShape(step.mesh), step.zero, step.mesh.ranks(), mesh.rows,
      step.rowTokens, mesh.microbatches, formatSeconds(step.compileSeconds));
  if (!step.missingKernels.empty()) {
    out << "  kernels that the target does not have yet, counted by what they "
           "touch:";
    for (const std::string &name : step.missingKernels)
      out << " " << name;
    out << "\n";
  }
  out << "\nmemory of a rank\n";
  for (const auto &[what, bytes] : step.memory)
    out << llvm::format("  %-32s %12s\n", what.c_str(),
                        formatGb(bytes).c_str());
  out << llvm::format("  %-32s %12s of %.0f GB%s\n", "total",
                      formatGb(step.totalBytes).c_str(), hardware.plannedGb,
                      mesh.fits ? "" : ": does not fit");
  out << "\nkernels of a step\n";
  for (const ClassTime &c : t.kernels)
    if (c.name != "wait")
      printLine(out, c, t.seconds, false);
  if (!t.collectives.empty()) {
    out << "\ncollectives of a step\n";
    for (const ClassTime &c : t.collectives)
      printLine(out, c, t.seconds, true);
  }
  out << "\nlayers, seconds per microbatch (equal ones together)\n";
  std::map<std::string, std::pair<int, int>> kinds; // text: first, count
  std::vector<std::string> order;
  for (const auto &[layer, classes] : t.perLayer) {
    std::vector<std::pair<double, std::string>> parts;
    double total = 0;
    for (const auto &[name, seconds] : classes) {
      parts.emplace_back(-seconds, name);
      total += seconds;
    }
    std::sort(parts.begin(), parts.end());
    std::string text = formatSeconds(total) + ":";
    for (size_t i = 0; i < std::min<size_t>(parts.size(), 6); ++i)
      text += (i ? ", " : " ") + parts[i].second + " " +
              formatSeconds(-parts[i].first);
    auto [at, isNew] = kinds.try_emplace(text, layer, 0);
    ++at->second.second;
    if (isNew)
      order.push_back(text);
  }
  for (const std::string &text : order)
    out << llvm::format("  %3d x, first %3d  ", kinds[text].second,
                        kinds[text].first)
        << text << "\n";

  out << "\nstep " << formatSeconds(t.seconds) << ": kernels "
      << formatSeconds(t.compute);
  if (!t.collectives.empty())
    out << ", communication " << formatSeconds(t.communication) << " of which "
        << formatSeconds(t.exposed) << " is exposed; on one stream "
        << formatSeconds(mesh.oneStream.seconds);
  out << llvm::formatv("\n{0:F0} tokens/s, {1:F0} per GPU, {2:F1} % MFU; "
                       "limited by {3}\n",
                       mesh.tokensPerSecond, mesh.perGpu(), 100 * mesh.mfu,
                       limitOf(mesh));
}

} // namespace qwen35::plan
