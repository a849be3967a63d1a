#ifndef QWEN35_TOOLS_QWEN35_PLAN_HARDWARE_H
#define QWEN35_TOOLS_QWEN35_PLAN_HARDWARE_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include <map>
#include <string>
#include <vector>

namespace qwen35::plan {

/// What a class of kernels sustains inside of a step.
struct OpClass {
  std::string name;
  /// Kernels of the class: "linear", "attention_bwd", a prefix as "gdn_*", or
  /// one stage of a kernel as "moe_experts/moe_up". The longest match wins.
  std::vector<std::string> ops;
  double tflops = 0;   ///< 1e12 operations per second, of bf16
  double tbs = 0;      ///< 1e12 bytes per second
  double us = 0;       ///< of every launch, whatever its size
  double serialUs = 0; ///< per chunk of 64 tokens that has to follow another
};

/// One kind of GPU and how many of them are connected.
///
/// Units   In the file as the names say: tflops and tbs are 1e12 per second,
///         gb is 1e9 bytes, gbs 1e9 bytes per second, us microseconds.
/// Source  DESIGN.md 11; the files say where each figure comes from.
struct Hardware {
  std::string name;
  double peakTflops = 0; ///< bf16 of the data sheet: what MFU divides by
  double memoryGb = 0;   ///< what the device has
  double plannedGb = 0;  ///< what a plan may use of it
  double fp32Factor = 0; ///< rate of f32 products over that of bf16
  int gpusPerNode = 0;
  double nvlinkGbs = 0, nvlinkUs = 0; ///< per GPU and direction; per collective
  double nicGbs = 0, nicUs = 0;       ///< per GPU; per doubling of the nodes
  std::vector<OpClass> classes; ///< the first is that of kernels in no other

  /// The class of a stage; `function` may be empty.
  const OpClass &classOf(const std::string &op,
                         const std::string &function) const;
};

/// Reads a description; every key must be there once.
///
/// Errors  InvalidArgument "FILE:LINE: ..." that names what was found and what
///         was expected.
absl::StatusOr<Hardware> parseHardware(const std::string &text,
                                       const std::string &fileName);

/// The built-in description of that name (h200, h100), or else a file.
absl::StatusOr<Hardware> loadHardware(const std::string &nameOrPath);

/// Name and text of the files that are built in.
const std::map<std::string, std::string> &builtInHardware();

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_HARDWARE_H
