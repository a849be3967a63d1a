// qwen35-verify FILE [--json]: is this bundle whole, in bounds, and is its plan
// one that can run? Loads no code. Exit 0 if all is well, 1 if not.
#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/elf_image.h"
#include "tools/qwen35-verify/report.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

/// Which check an error comes from: the reader documents one code for each.
const char *checkName(absl::StatusCode code) {
  switch (code) {
  case absl::StatusCode::kDataLoss:
    return "integrity";
  case absl::StatusCode::kUnimplemented:
    return "version";
  case absl::StatusCode::kInvalidArgument:
    return "bounds";
  case absl::StatusCode::kFailedPrecondition:
    return "plan";
  default:
    return "file";
  }
}

absl::Status checkCode(const qwen35::BundleFile &file) {
  std::vector<std::string> symbols;
  for (const qwen35::bundle::Kernel &kernel : file.message().kernels())
    symbols.push_back(kernel.symbol());
  // Cubins are for the driver to judge.
  if (file.message().targets(0).kind() != "cpu")
    return absl::OkStatus();
  return qwen35::checkElfImage(file.blob(file.message().targets(0).blob()),
                               symbols);
}

int fail(const std::string &path, bool json, const char *check,
         const std::string &error) {
  if (json)
    std::fputs(qwen35::jsonFailure(path, check, error).c_str(), stdout);
  else
    std::fprintf(stderr, "qwen35-verify: %s\n", error.c_str());
  return 1;
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app{"Checks a bundle without running it: integrity (lengths and "
               "SHA-256), bounds (every index, offset, shape and count), plan "
               "(no read of bytes that are not there any more) and code (what "
               "the kernels import). Prints a summary."};
  std::string path;
  bool json = false;
  app.add_option("FILE", path, "the bundle, *.q35")->required();
  app.add_flag("--json", json, "print one JSON object");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : 1;
  }

  auto file = qwen35::BundleFile::open(path);
  if (!file.ok())
    return fail(path, json, checkName(file.status().code()),
                std::string(file.status().message()));
  if (absl::Status status = checkCode(**file); !status.ok())
    return fail(path, json, "code",
                path + ": " + std::string(status.message()));
  std::string report = json ? qwen35::jsonReport(path, **file)
                            : qwen35::textReport(path, **file);
  std::fputs(report.c_str(), stdout);
  return 0;
}
