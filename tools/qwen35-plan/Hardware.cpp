#include "tools/qwen35-plan/Hardware.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

// As runtime/recipe/Recipe.cpp reads it.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/impl/preprocessor.h>
#undef TOML_ASSERT
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_ASSERT_ASSUME(expr) static_assert(true)
#include <toml++/toml.h>

namespace qwen35::plan {
namespace {

/// One table of the file: takes what it is asked for, then refuses the rest.
class Section {
public:
  Section(const toml::table &table, std::string name, const std::string &file)
      : table(table), name(std::move(name)), file(file) {}

  void number(const char *key, double &into, bool optional = false,
              double least = 0, bool positive = true) {
    const toml::node *node = take(key, "a number", optional);
    if (!node)
      return;
    std::optional<double> value = node->value<double>();
    if (!node->is_number() || !value || !std::isfinite(*value) ||
        (positive ? *value <= least : *value < least))
      return fail(*node, key,
                  positive ? "a number greater than 0"
                           : "a number, at least 0");
    into = *value;
  }

  void text(const char *key, std::string &into) {
    if (const toml::node *node = take(key, "a string", false)) {
      auto value = node->value_exact<std::string>();
      if (!value)
        return fail(*node, key, "a string");
      into = *value;
    }
  }

  void list(const char *key, std::vector<std::string> &into) {
    const toml::node *node = take(key, "a list of kernels", false);
    if (!node)
      return;
    const toml::array *array = node->as_array();
    if (!array)
      return fail(*node, key, "a list of kernels");
    for (const toml::node &one : *array) {
      auto value = one.value_exact<std::string>();
      if (!value || value->empty())
        return fail(one, key, "a list of kernels");
      into.push_back(*value);
    }
  }

  const toml::table *section(const char *key) {
    const toml::node *node = take(key, "a table", false);
    if (node && !node->as_table()) {
      fail(*node, key, "a table");
      return nullptr;
    }
    return node ? node->as_table() : nullptr;
  }

  absl::Status done() {
    if (!status.ok())
      return status;
    for (auto &&[key, node] : table)
      if (!asked.count(std::string(key.str())))
        return absl::InvalidArgumentError(absl::StrCat(
            at(key.source()), ": unknown key ", path(std::string(key.str())),
            ", expected ", absl::StrJoin(asked, ", ")));
    return status;
  }

private:
  const toml::node *take(const char *key, const char *what, bool optional) {
    asked.insert(key);
    const toml::node *node = table.get(key);
    if (!node && !optional && status.ok())
      status = absl::InvalidArgumentError(absl::StrCat(
          at(table.source()), ": ", path(key), " is missing, expected ", what));
    return status.ok() ? node : nullptr;
  }
  void fail(const toml::node &node, const char *key, const char *expected) {
    if (!status.ok())
      return;
    std::string found = "another type";
    if (auto value = node.value<double>(); value && node.is_number())
      found = absl::StrCat(*value);
    else if (auto value = node.value_exact<std::string>())
      found = absl::StrCat("\"", value->substr(0, 64), "\"");
    status = absl::InvalidArgumentError(absl::StrCat(at(node.source()), ": ",
                                                     path(key), " is ", found,
                                                     ", expected ", expected));
  }
  std::string at(const toml::source_region &source) const {
    return absl::StrCat(file, ":", source.begin.line);
  }
  std::string path(const std::string &key) const {
    return name.empty() ? key : name + "." + key;
  }

  const toml::table &table;
  std::string name;
  const std::string &file;
  std::set<std::string> asked;
  absl::Status status;
};

/// How many characters of the pattern match, or nothing.
std::optional<size_t> match(const std::string &pattern, const std::string &op,
                            const std::string &stage) {
  if (pattern == op || pattern == stage)
    return pattern.size() + 1;
  if (pattern.back() == '*' &&
      stage.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0)
    return pattern.size() - 1;
  return std::nullopt;
}

} // namespace

const OpClass &Hardware::classOf(const std::string &op,
                                 const std::string &function) const {
  std::string stage = op + "/" + function;
  const OpClass *best = &classes.front();
  size_t length = 0;
  for (const OpClass &candidate : classes)
    for (const std::string &pattern : candidate.ops)
      if (auto found = match(pattern, op, stage); found && *found > length) {
        best = &candidate;
        length = *found;
      }
  return *best;
}

absl::StatusOr<Hardware> parseHardware(const std::string &text,
                                       const std::string &fileName) {
  std::string ascii = text; // see Recipe.cpp
  for (char &c : ascii)
    if (static_cast<unsigned char>(c) >= 0x80)
      c = '?';
  toml::parse_result parsed = toml::parse(ascii);
  if (!parsed)
    return absl::InvalidArgumentError(absl::StrCat(
        fileName, ":", parsed.error().source().begin.line,
        ": not valid TOML: ", std::string(parsed.error().description())));
  Hardware result;
  Section file(parsed.table(), "", fileName);
  file.text("name", result.name);
  const toml::table *gpu = file.section("gpu");
  const toml::table *network = file.section("network");
  const toml::table *classes = file.section("class");
  if (absl::Status status = file.done(); !status.ok())
    return status;

  Section g(*gpu, "gpu", fileName);
  g.number("peak_tflops", result.peakTflops);
  g.number("memory_gb", result.memoryGb);
  g.number("planned_gb", result.plannedGb);
  g.number("fp32_factor", result.fp32Factor);
  if (absl::Status status = g.done(); !status.ok())
    return status;
  if (result.plannedGb > result.memoryGb)
    return absl::InvalidArgumentError(
        absl::StrCat(fileName, ": gpu.planned_gb is ", result.plannedGb,
                     ", expected at most gpu.memory_gb, ", result.memoryGb));

  Section n(*network, "network", fileName);
  double perNode = 0;
  n.number("gpus_per_node", perNode);
  n.number("nvlink_gbs", result.nvlinkGbs);
  n.number("nvlink_us", result.nvlinkUs);
  n.number("nic_gbs", result.nicGbs);
  n.number("nic_us", result.nicUs);
  if (absl::Status status = n.done(); !status.ok())
    return status;
  if (perNode != std::floor(perNode) || perNode > 4096)
    return absl::InvalidArgumentError(
        absl::StrCat(fileName, ": network.gpus_per_node is ", perNode,
                     ", expected a whole number, at most 4096"));
  result.gpusPerNode = static_cast<int>(perNode);

  for (auto &&[key, node] : *classes) {
    std::string name(key.str());
    const toml::table *table = node.as_table();
    if (!table)
      return absl::InvalidArgumentError(
          absl::StrCat(fileName, ":", key.source().begin.line, ": class.", name,
                       " is not a table, expected [class.", name, "]"));
    OpClass one;
    one.name = name;
    Section c(*table, "class." + name, fileName);
    c.list("ops", one.ops);
    c.number("tflops", one.tflops);
    c.number("tbs", one.tbs);
    c.number("us", one.us, /*optional=*/true, 0, /*positive=*/false);
    c.number("serial_us", one.serialUs, /*optional=*/true, 0,
             /*positive=*/false);
    if (absl::Status status = c.done(); !status.ok())
      return status;
    bool rest = name == "rest";
    result.classes.insert(rest ? result.classes.begin() : result.classes.end(),
                          std::move(one));
  }
  if (result.classes.empty() || result.classes.front().name != "rest")
    return absl::InvalidArgumentError(absl::StrCat(
        fileName, ": class.rest is missing, expected the figures of kernels "
                  "that no other class names"));
  return result;
}

absl::StatusOr<Hardware> loadHardware(const std::string &nameOrPath) {
  auto builtIn = builtInHardware().find(nameOrPath);
  if (builtIn != builtInHardware().end())
    return parseHardware(builtIn->second, nameOrPath + ".toml");
  std::unique_ptr<FILE, int (*)(FILE *)> file(
      std::fopen(nameOrPath.c_str(), "rb"), std::fclose);
  if (!file) {
    std::vector<std::string> names;
    for (const auto &[name, text] : builtInHardware())
      names.push_back(name);
    return absl::NotFoundError(absl::StrCat(
        "--hardware is \"", nameOrPath, "\" (", std::strerror(errno),
        "), expected ", absl::StrJoin(names, ", "), ", or a TOML file"));
  }
  static constexpr size_t kMaxBytes = 1 << 20;
  std::string text(kMaxBytes + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()))
    return absl::UnavailableError(absl::StrCat(
        "cannot read hardware ", nameOrPath, ": ", std::strerror(errno)));
  if (text.size() > kMaxBytes)
    return absl::InvalidArgumentError(absl::StrCat(
        "hardware ", nameOrPath, " has more than ", kMaxBytes, " bytes"));
  return parseHardware(text, nameOrPath);
}

} // namespace qwen35::plan
