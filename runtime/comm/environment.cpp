#include "runtime/comm/environment.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"

#include <cstdlib>

namespace qwen35::comm {
namespace {

using Get = std::function<const char *(const char *)>;

bool isSet(const Get &get, const char *name) {
  const char *value = get(name);
  return value && *value;
}

absl::Status readNumber(const Get &get, const char *name, int low, int high,
                        int &number) {
  if (!isSet(get, name))
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not set; expected ", low, " to ", high));
  std::string value = get(name);
  if (!absl::SimpleAtoi(value, &number) || number < low || number > high)
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is ", quoted(value), "; expected ", low, " to ", high));
  return absl::OkStatus();
}

constexpr int kMaxRanks = 1 << 20;

absl::Status readPair(const Get &get, const char *rank, const char *size,
                      Launch &launch) {
  launch.from = absl::StrCat(rank, " and ", size);
  if (!isSet(get, size))
    return absl::InvalidArgumentError(absl::StrCat(
        rank, " is set (", quoted(get(rank)), ") and ", size, " is not"));
  QWEN35_RETURN_IF_ERROR(readNumber(get, size, 1, kMaxRanks, launch.size));
  return readNumber(get, rank, 0, launch.size - 1, launch.rank);
}

} // namespace

absl::StatusOr<Launch> readEnvironment(const Get &get) {
  Launch launch;
  const char *local = nullptr;
  if (isSet(get, "OMPI_COMM_WORLD_RANK")) {
    launch.kind = Launch::kMpi;
    local = "OMPI_COMM_WORLD_LOCAL_RANK";
    QWEN35_RETURN_IF_ERROR(
        readPair(get, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", launch));
  } else if (isSet(get, "PMI_RANK")) {
    launch.kind = Launch::kMpi;
    local = "MPI_LOCALRANKID";
    QWEN35_RETURN_IF_ERROR(readPair(get, "PMI_RANK", "PMI_SIZE", launch));
  } else if (isSet(get, "PMIX_RANK") && isSet(get, "SLURM_NTASKS")) {
    launch.kind = Launch::kMpi;
    local = "SLURM_LOCALID";
    QWEN35_RETURN_IF_ERROR(readPair(get, "PMIX_RANK", "SLURM_NTASKS", launch));
  } else if (isSet(get, "RANK")) {
    launch.kind = Launch::kEnv;
    local = "LOCAL_RANK";
    QWEN35_RETURN_IF_ERROR(readPair(get, "RANK", "WORLD_SIZE", launch));
    if (launch.size > 1) {
      if (!isSet(get, "MASTER_ADDR"))
        return absl::InvalidArgumentError(
            absl::StrCat("MASTER_ADDR is not set; expected the name or address "
                         "of the machine of rank 0, for ",
                         launch.size, " ranks"));
      launch.masterAddress = get("MASTER_ADDR");
      QWEN35_RETURN_IF_ERROR(
          readNumber(get, "MASTER_PORT", 1, 65534, launch.masterPort));
      if (isSet(get, "TORCHELASTIC_USE_AGENT_STORE") &&
          std::string(get("TORCHELASTIC_USE_AGENT_STORE")) == "True")
        ++launch.masterPort;
    }
  } else if (isSet(get, "WORLD_SIZE")) {
    int size = 1;
    QWEN35_RETURN_IF_ERROR(readNumber(get, "WORLD_SIZE", 1, kMaxRanks, size));
    if (size > 1)
      return absl::InvalidArgumentError(
          absl::StrCat("WORLD_SIZE is ", size,
                       " and RANK is not set; expected 0 to ", size - 1));
  }
  if (local && isSet(get, local))
    QWEN35_RETURN_IF_ERROR(
        readNumber(get, local, 0, launch.size - 1, launch.localRank));
  if (launch.size == 1)
    launch.kind = Launch::kSingle;
  return launch;
}

absl::StatusOr<Launch> readEnvironment() {
  return readEnvironment([](const char *name) { return std::getenv(name); });
}

} // namespace qwen35::comm
