#include "tools/qwen35-plan/Svg.h"

#include "tools/qwen35-plan/Report.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>

namespace qwen35::plan {
namespace {

constexpr double kLeft = 110, kWidth = 1280, kLane = 44, kTop = 56;
constexpr double kMemoryTop = kTop + 2 * kLane + 40, kMemoryHeight = 220;
constexpr double kLegendTop = kMemoryTop + kMemoryHeight + 62;

// Distinguishable colours (Tableau 20), for classes by their share of time.
constexpr const char *kColors[] = {
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1",
    "#ff9da7", "#9c755f", "#499894", "#86bcb6", "#d37295", "#a0cbe8", "#ffbe7d",
    "#8cd17d", "#b6992d", "#f1ce63", "#fabfd2", "#d4a6c8", "#d7b5a6"};

std::string escape(const std::string &text) {
  std::string result;
  for (char c : text)
    result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return result;
}

/// 1, 2 or 5 times a power of ten, for about `count` ticks up to `most`.
double tickOf(double most, int count) {
  double rough = most / count,
         power = std::pow(10, std::floor(std::log10(rough)));
  for (double step : {1.0, 2.0, 5.0})
    if (step * power >= rough)
      return step * power;
  return 10 * power;
}

class Picture {
public:
  Picture(const PlannedMesh &mesh, llvm::raw_ostream &out)
      : mesh(mesh), out(out), seconds(mesh.timeline.seconds) {
    size_t number = 0;
    for (auto *classes : {&mesh.timeline.kernels, &mesh.timeline.collectives})
      for (const ClassTime &c : *classes)
        colors.emplace(c.name, kColors[number++ % std::size(kColors)]);
    rows = (colors.size() + 2) / 3;
  }

  void draw(const Hardware &hardware, const std::string &title) {
    double height = kLegendTop + 18 * double(rows) + 16;
    out << llvm::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" "
               "width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
               "font-size=\"12\">\n",
               kLeft + kWidth + 30, height)
        << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text(kLeft, 22, title, "start", 15);
    text(kLeft, 42,
         llvm::formatv("{0}, {1:F0} tokens/s per GPU, {2:F1} % MFU, {3} of "
                       "{4:F0} GB",
                       formatSeconds(seconds), mesh.perGpu(), 100 * mesh.mfu,
                       formatGb(mesh.step.totalBytes), hardware.plannedGb),
         "start");
    text(kLeft - 8, kTop + kLane / 2 + 4, "kernels", "end");
    text(kLeft - 8, kTop + kLane * 1.5 + 10, "collectives", "end");
    lane(false, kTop);
    lane(true, kTop + kLane + 6);
    double bottom = kMemoryTop + kMemoryHeight, tick = tickOf(seconds, 10);
    for (double t = 0; t <= seconds * 1.0001; t += tick) {
      line(x(t), kTop, x(t), bottom, "#dddddd");
      text(x(t), bottom + 16, formatSeconds(t), "middle");
    }
    text(kLeft + kWidth / 2, bottom + 34, "time of the step", "middle");
    memory(hardware, bottom);
    legend();
    out << "</svg>\n";
  }

private:
  double x(double time) const { return kLeft + time / seconds * kWidth; }

  void text(double atX, double atY, const std::string &what, const char *anchor,
            int size = 12) {
    out << llvm::format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" "
                        "font-size=\"%d\">",
                        atX, atY, anchor, size)
        << escape(what) << "</text>\n";
  }
  void line(double x0, double y0, double x1, double y1, const char *color,
            const char *more = "") {
    out << llvm::format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                        "stroke=\"%s\" %s/>\n",
                        x0, y0, x1, y1, color, more);
  }

  /// Neighbours of one class, and what is less than a third of a pixel wide,
  /// become one box.
  void lane(bool communication, double top) {
    double start = 0, end = -1;
    std::string name;
    auto flush = [&] {
      if (end > start)
        out << llvm::format("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" "
                            "height=\"%.0f\" fill=\"%s\"><title>",
                            x(start), top, x(end) - x(start), kLane,
                            colors[name].c_str())
            << escape(name) << " " << formatSeconds(end - start)
            << "</title></rect>\n";
      end = -1;
    };
    for (const TimelineEntry &entry : mesh.timeline.entries) {
      if (entry.communication != communication || entry.opClass == "wait")
        continue;
      double gap = (entry.start - end) / seconds * kWidth;
      bool small = (entry.end - entry.start) / seconds * kWidth < 0.33;
      if (end >= start && gap < 0.33 && (small || entry.opClass == name)) {
        end = std::max(end, entry.end);
        continue;
      }
      flush();
      start = entry.start;
      end = entry.end;
      name = entry.opClass;
    }
    flush();
  }

  void memory(const Hardware &hardware, double bottom) {
    double most = 0, fixed = mesh.step.totalBytes;
    for (const TimelineEntry &entry : mesh.timeline.entries)
      most = std::max(most, entry.liveBytes);
    fixed -= most; // Weights, moments, gradients, inputs.
    double top = std::max(mesh.step.totalBytes, 1.0) * 1.05;
    auto y = [&](double bytes) { return bottom - bytes / top * kMemoryHeight; };
    double tick = tickOf(top / 1e9, 5) * 1e9;
    for (double b = 0; b <= top; b += tick) {
      line(kLeft, y(b), kLeft + kWidth, y(b), "#dddddd");
      text(kLeft - 8, y(b) + 4, llvm::formatv("{0} GB", b / 1e9), "end");
    }
    out << llvm::format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                        "height=\"%.1f\" fill=\"#bab0ac\"/>\n",
                        kLeft, y(fixed), kWidth, bottom - y(fixed));
    text(kLeft + 6, y(fixed) - 5,
         "weights, moments, gradients: " + formatGb(fixed), "start");
    out << "<path fill=\"#4e79a7\" fill-opacity=\"0.55\" d=\"M"
        << llvm::format("%.1f %.1f", kLeft, y(fixed));
    double last = -1, level = 0;
    for (const TimelineEntry &entry : mesh.timeline.entries) {
      if (entry.communication)
        continue;
      // The highest level of a pixel counts.
      level = std::max(level, entry.liveBytes);
      if (x(entry.end) - last < 0.5)
        continue;
      last = x(entry.end);
      out << llvm::format("L%.1f %.1f", last, y(fixed + level));
      level = 0;
    }
    out << llvm::format("L%.1f %.1fZ\"/>\n", kLeft + kWidth, y(fixed));
    if (hardware.plannedGb * 1e9 <= top) {
      double limit = y(hardware.plannedGb * 1e9);
      line(kLeft, limit, kLeft + kWidth, limit, "#e15759",
           "stroke-dasharray=\"6 4\" ");
      text(kLeft + kWidth, limit - 5, "what a plan may use", "end");
    }
    text(kLeft, kMemoryTop - 8, "memory of the rank", "start");
  }

  void legend() {
    size_t number = 0;
    for (auto *classes : {&mesh.timeline.kernels, &mesh.timeline.collectives})
      for (const ClassTime &c : *classes) {
        if (c.name == "wait")
          continue;
        double atX = kLeft + double(number / rows) * (kWidth / 3);
        double atY = kLegendTop + 18 * double(number % rows);
        ++number;
        out << llvm::format("<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" "
                            "height=\"12\" fill=\"%s\"/>\n",
                            atX, atY - 10, colors[c.name].c_str());
        text(atX + 18, atY, c.name + ": " + formatSeconds(c.seconds), "start");
      }
  }

  const PlannedMesh &mesh;
  llvm::raw_ostream &out;
  double seconds;
  std::map<std::string, std::string> colors;
  size_t rows = 0;
};

} // namespace

void drawStep(const PlannedMesh &mesh, const Hardware &hardware,
              const std::string &title, llvm::raw_ostream &out) {
  Picture(mesh, out).draw(hardware, title);
}

} // namespace qwen35::plan
