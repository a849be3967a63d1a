#include "runtime/data/loader.h"

#include "absl/strings/str_cat.h"

#include <nlohmann/json.hpp>

namespace qwen35 {

using nlohmann::json;

std::string LoaderState::toJson() const {
  json pieces = json::array();
  for (const Piece &piece : window)
    pieces.push_back({piece.epoch, piece.document, piece.first, piece.length});
  json object = {{"version", 1},
                 {"epoch", epoch},
                 {"cursor", cursor},
                 {"offset", offset},
                 {"rows", rows},
                 {"window", pieces},
                 {"seed", seed},
                 {"tokens", tokens},
                 {"max_docs", maxDocs},
                 {"documents", documents},
                 {"fingerprint", fingerprint}};
  return object.dump();
}

/// Member `name` as an integer from 0 to `most`.
static absl::Status readMember(const json &object, const char *name,
                               uint64_t most, uint64_t &out) {
  auto found = object.find(name);
  if (found == object.end())
    return absl::InvalidArgumentError(
        absl::StrCat("loader state has no member ", name));
  if (!found->is_number_unsigned() || found->get<uint64_t>() > most)
    return absl::InvalidArgumentError(absl::StrCat(
        "loader state: ", name, " is ", found->dump().substr(0, 64),
        ", expected an integer from 0 to ", most));
  out = found->get<uint64_t>();
  return absl::OkStatus();
}

absl::StatusOr<LoaderState> LoaderState::fromJson(const std::string &text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded() || !object.is_object())
    return absl::InvalidArgumentError("loader state is not a JSON object");
  static constexpr uint64_t kMost = INT64_MAX;
  uint64_t version, fingerprint, seed;
  LoaderState state;
  struct Member {
    const char *name;
    int64_t &out;
  };
  absl::Status status = readMember(object, "version", 1, version);
  if (status.ok() && version != 1)
    status =
        absl::InvalidArgumentError("loader state: version is 0, expected 1");
  for (Member member :
       {Member{"epoch", state.epoch}, Member{"cursor", state.cursor},
        Member{"offset", state.offset}, Member{"rows", state.rows},
        Member{"tokens", state.tokens}, Member{"max_docs", state.maxDocs},
        Member{"documents", state.documents}}) {
    uint64_t value = 0;
    if (status.ok())
      status = readMember(object, member.name, kMost, value);
    member.out = static_cast<int64_t>(value);
  }
  if (status.ok())
    status = readMember(object, "seed", UINT64_MAX, seed);
  if (status.ok())
    status = readMember(object, "fingerprint", UINT32_MAX, fingerprint);
  if (!status.ok())
    return status;
  state.seed = seed;
  state.fingerprint = static_cast<uint32_t>(fingerprint);

  auto window = object.find("window");
  if (window == object.end() || !window->is_array() ||
      window->size() > static_cast<size_t>(Packer::kWindow))
    return absl::InvalidArgumentError(
        absl::StrCat("loader state: window is no list of at most ",
                     Packer::kWindow, " pieces"));
  for (const json &piece : *window) {
    bool ok = piece.is_array() && piece.size() == 4;
    for (size_t i = 0; ok && i < 4; ++i)
      ok = piece[i].is_number_unsigned() && piece[i].get<uint64_t>() <= kMost;
    if (!ok)
      return absl::InvalidArgumentError(
          absl::StrCat("loader state: ", piece.dump().substr(0, 64),
                       " is no piece [epoch, document, first, length]"));
    state.window.push_back({piece[0].get<int64_t>(), piece[1].get<int64_t>(),
                            piece[2].get<int64_t>(), piece[3].get<int64_t>()});
  }
  return state;
}

} // namespace qwen35
