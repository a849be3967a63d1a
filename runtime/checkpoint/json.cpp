#include "runtime/checkpoint/json.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace qwen35 {
namespace {

using nlohmann::json;

/// Builds the document and stops at the first thing that is wrong with it.
class Builder : public nlohmann::json_sax<json> {
public:
  explicit Builder(const JsonLimits &limits) : limits(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t &) override {
    return add(value);
  }
  bool string(string_t &value) override { return add(std::move(value)); }
  bool binary(binary_t &) override { return false; }

  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t &name) override {
    for (unsigned char c : name)
      if (c < 0x20 || c == 0x7f)
        return fail(absl::StrCat("the key \"",
                                 absl::CHexEscape(name.substr(0, 200)),
                                 "\" has a control character"));
    auto [slot, fresh] = stack.back()->emplace(name, nullptr);
    if (!fresh)
      return fail(absl::StrCat("the key \"", name.substr(0, 200),
                               "\" appears twice in one object"));
    member = &*slot;
    return true;
  }

  bool parse_error(size_t position, const std::string &,
                   const nlohmann::detail::exception &) override {
    return fail(absl::StrCat("not valid JSON at byte ", position));
  }

  json root;
  std::string error;

private:
  bool fail(std::string message) {
    error = std::move(message);
    return false;
  }

  /// Puts a value where the document wants the next one.
  json *place(json value) {
    if (stack.empty())
      return &(root = std::move(value));
    if (stack.back()->is_array()) {
      stack.back()->push_back(std::move(value));
      return &stack.back()->back();
    }
    return &(*member = std::move(value));
  }

  bool hasRoom() {
    if (stack.empty() || !stack.back()->is_array() ||
        stack.back()->size() < limits.elements)
      return true;
    return fail(absl::StrCat("an array has more than ", limits.elements,
                             " elements"));
  }

  bool add(json value) {
    if (!hasRoom())
      return false;
    place(std::move(value));
    return true;
  }

  bool open(json value) {
    if (stack.size() >= limits.depth)
      return fail(absl::StrCat("nested deeper than ", limits.depth,
                               " levels"));
    if (!hasRoom())
      return false;
    stack.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    stack.pop_back();
    return true;
  }

  JsonLimits limits;
  std::vector<json *> stack; // open containers; children never move them
  json *member = nullptr;    // the value slot of the last key
};

} // namespace

absl::StatusOr<json> parseJson(absl::string_view text, absl::string_view what,
                               const JsonLimits &limits) {
  Builder builder(limits);
  if (!json::sax_parse(text.data(), text.data() + text.size(), &builder))
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", builder.error));
  return std::move(builder.root);
}

std::string jsonText(const json &value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false,
                    json::error_handler_t::replace);
}

} // namespace qwen35
