#include "runtime/recipe/recipe.h"

#include "runtime/recipe/RecipeKeys.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

// A parse error is a value, not an exception, and formatting is our own.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/impl/preprocessor.h>
// toml++ 3.3 asserts, and with NDEBUG assumes, things that malformed text such
// as "[:x]" breaks, ahead of the code that would report them.
#undef TOML_ASSERT
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_ASSERT_ASSUME(expr) static_assert(true)
#include <toml++/toml.h>

namespace qwen35 {

using impl::RecipeKey;

/// Parses TOML. Keys and values of a recipe are ASCII, so other characters have
/// a place in comments only; elsewhere the '?' that stands for them makes the
/// error. toml++ 3.3 must not see them: its tables of letters run into
/// unreachable code.
static toml::parse_result parseToml(std::string text) {
  if (text.compare(0, 3, "\xef\xbb\xbf") == 0) // a byte order mark
    text.erase(0, 3);
  for (char &c : text)
    if (static_cast<unsigned char>(c) >= 0x80)
      c = '?';
  return toml::parse(text);
}

/// A value as a reader would call it: `"abc" (a string)`.
static std::string describe(const toml::node &node) {
  if (auto text = node.value_exact<std::string>())
    return absl::StrCat("\"", text->substr(0, 64), "\" (a string)");
  if (auto integer = node.value_exact<int64_t>())
    return absl::StrCat(*integer, " (an integer)");
  if (auto number = node.value_exact<double>())
    return absl::StrCat(*number, " (a float)");
  if (auto truth = node.value_exact<bool>())
    return *truth ? "true (a boolean)" : "false (a boolean)";
  if (const toml::array *array = node.as_array())
    return absl::StrCat("a list of ", array->size());
  if (node.is_table())
    return "a table";
  return "a date or time";
}

static bool readNumber(const toml::node &node, const impl::Range &range,
                       double &out) {
  if (auto integer = node.value_exact<int64_t>())
    out = static_cast<double>(*integer);
  else if (auto number = node.value_exact<double>())
    out = *number;
  else
    return false;
  return range.contains(out);
}

/// Checks type and range, then stores. `where` starts the message.
static absl::Status assign(const RecipeKey &key, const toml::node &node,
                           const std::string &where, Recipe &recipe) {
  impl::Slot slot = key.slot(recipe);
  bool ok = false;
  if (auto *number = std::get_if<double *>(&slot)) {
    double value;
    if ((ok = readNumber(node, key.range, value)))
      **number = value;
  } else if (auto *integer = std::get_if<int64_t *>(&slot)) {
    auto value = node.value_exact<int64_t>();
    if ((ok = value && key.range.contains(static_cast<double>(*value))))
      **integer = *value;
  } else if (auto *text = std::get_if<std::string *>(&slot)) {
    auto value = node.value_exact<std::string>();
    ok = value && std::find(key.choices.begin(), key.choices.end(), *value) !=
                      key.choices.end();
    if (ok)
      **text = *value;
  } else {
    auto &pair = **std::get_if<std::array<double, 2> *>(&slot);
    const toml::array *list = node.as_array();
    std::array<double, 2> value;
    ok = list && list->size() == 2 &&
         readNumber((*list)[0], key.range, value[0]) &&
         readNumber((*list)[1], key.range, value[1]);
    if (ok)
      pair = value;
  }
  if (!ok)
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", key.fullName(),
                                                   " must be ", key.rule(),
                                                   "; found ", describe(node)));
  return absl::OkStatus();
}

static absl::Status unknownKey(const std::string &where,
                               const std::string &name) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": unknown key ", name.substr(0, 64),
                   "; did you mean ", impl::nearestRecipeKey(name), "?"));
}

absl::Status applyRecipeText(const std::string &text,
                             const std::string &fileName, Recipe &recipe) {
  toml::parse_result parsed = parseToml(text);
  auto where = [&](const toml::source_region &source) {
    return absl::StrCat(fileName, ":", source.begin.line);
  };
  if (!parsed) {
    const toml::parse_error &error = parsed.error();
    return absl::InvalidArgumentError(
        absl::StrCat(where(error.source()),
                     ": not valid TOML: ", std::string(error.description())));
  }

  // Tables iterate in name order; messages come in the order of the file.
  struct Entry {
    std::string name;
    const toml::key *key;
    const toml::node *node;
  };
  std::vector<Entry> entries;
  for (auto &&[section, node] : parsed.table()) {
    std::string name(section.str());
    const toml::table *keys = node.as_table();
    if (!keys || keys->empty()) {
      // An empty [section] is harmless if it exists.
      if (keys &&
          std::any_of(
              impl::recipeKeyTable().begin(), impl::recipeKeyTable().end(),
              [&](const RecipeKey &key) { return name == key.section; }))
        continue;
      entries.push_back({name, &section, &node});
      continue;
    }
    for (auto &&[key, value] : *keys)
      entries.push_back(
          {absl::StrCat(name, ".", std::string(key.str())), &key, &value});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return a.key->source().begin < b.key->source().begin;
  });

  Recipe result = recipe;
  for (const Entry &entry : entries) {
    std::string at = where(entry.key->source());
    const RecipeKey *key = impl::findRecipeKey(entry.name);
    if (!key)
      return unknownKey(at, entry.name);
    absl::Status status = assign(*key, *entry.node, at, result);
    if (!status.ok())
      return status;
    result.origin[entry.name] = at;
  }
  recipe = std::move(result);
  return absl::OkStatus();
}

absl::Status applyRecipeFile(const std::string &path, Recipe &recipe) {
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"),
                                              std::fclose);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("cannot open recipe ", path, ": ", std::strerror(errno)));
  static constexpr size_t kMaxBytes = 1 << 20; // far beyond any real recipe
  std::string text(kMaxBytes + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()))
    return absl::UnavailableError(
        absl::StrCat("cannot read recipe ", path, ": ", std::strerror(errno)));
  if (text.size() > kMaxBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("recipe ", path, " has more than ", kMaxBytes, " bytes"));
  return applyRecipeText(text, path, recipe);
}

absl::Status applyRecipeSet(const std::string &assignment, Recipe &recipe,
                            const std::string &origin) {
  size_t equals = assignment.find('=');
  if (equals == std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(
        origin, ": expected section.key=value, found \"", assignment, "\""));
  std::string name(absl::StripAsciiWhitespace(
      absl::string_view(assignment).substr(0, equals)));
  std::string value(absl::StripAsciiWhitespace(
      absl::string_view(assignment).substr(equals + 1)));
  const RecipeKey *key = impl::findRecipeKey(name);
  if (!key)
    return unknownKey(origin, name);

  Recipe result = recipe;
  impl::Slot slot = key->slot(result);
  absl::Status status;
  bool isText = std::holds_alternative<std::string *>(slot);
  if (isText && (value.empty() || (value[0] != '"' && value[0] != '\''))) {
    status = assign(*key, toml::value<std::string>(value), origin, result);
  } else {
    if (std::holds_alternative<std::array<double, 2> *>(slot) &&
        (value.empty() || value[0] != '['))
      value = absl::StrCat("[", value, "]");
    toml::parse_result parsed = parseToml(absl::StrCat("v = ", value));
    // A line break in the value could smuggle in a second key.
    if (!parsed || parsed.table().size() != 1)
      return absl::InvalidArgumentError(
          absl::StrCat(origin, ": ", name, " must be ", key->rule(), "; found ",
                       value.empty() ? "nothing" : value));
    status = assign(*key, *parsed.table().get("v"), origin, result);
  }
  if (!status.ok())
    return status;
  result.origin[name] = origin;
  recipe = std::move(result);
  return absl::OkStatus();
}

/// " (run.toml:3)", or nothing for a default.
static std::string setBy(const Recipe &recipe, const std::string &name) {
  auto found = recipe.origin.find(name);
  return found == recipe.origin.end() ? ""
                                      : absl::StrCat(" (", found->second, ")");
}

absl::Status validateRecipe(const Recipe &recipe) {
  if (recipe.schedule.minLr > recipe.optim.lr)
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule.min_lr is ", recipe.schedule.minLr,
        setBy(recipe, "schedule.min_lr"), ", above optim.lr, which is ",
        recipe.optim.lr, setBy(recipe, "optim.lr")));
  const ParallelRecipe &mesh = recipe.parallel;
  int64_t dataRanks = mesh.dpr * mesh.dps;
  if (recipe.train.rows % dataRanks != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("train.rows is ", recipe.train.rows,
                     setBy(recipe, "train.rows"), ", not a multiple of the ",
                     dataRanks, " data ranks (parallel.dpr x parallel.dps)"));
  int64_t experts = mesh.dps * mesh.cp * mesh.tp; // at most 2^48
  if (experts % mesh.ep != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("parallel.ep is ", mesh.ep, setBy(recipe, "parallel.ep"),
                     ", which does not divide dps x cp x tp = ", experts));
  return absl::OkStatus();
}

std::string printRecipe(const Recipe &recipe) {
  std::string text;
  const char *section = "";
  for (const RecipeKey &key : impl::recipeKeyTable()) {
    if (std::strcmp(section, key.section) != 0) {
      absl::StrAppend(&text, text.empty() ? "" : "\n", "[", key.section, "]\n");
      section = key.section;
    }
    absl::StrAppend(&text, key.name, " = ", key.print(recipe), "\n");
  }
  return text;
}

absl::StatusOr<std::string> recipeValue(const Recipe &recipe,
                                        const std::string &name) {
  const RecipeKey *key = impl::findRecipeKey(name);
  if (!key)
    return unknownKey("recipe", name);
  return key->print(recipe);
}

std::vector<RecipeKeyInfo> recipeKeys() {
  std::vector<RecipeKeyInfo> keys;
  Recipe defaults;
  for (const RecipeKey &key : impl::recipeKeyTable())
    keys.push_back(
        {key.fullName(), key.rule(), key.print(defaults), key.help, key.baked});
  return keys;
}

absl::Status checkBakedKeys(const Recipe &bundle, const Recipe &run) {
  for (const RecipeKey &key : impl::recipeKeyTable()) {
    if (!key.baked || key.print(bundle) == key.print(run))
      continue;
    std::string name = key.fullName();
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is built into the bundle as ", key.print(bundle),
                     "; the run asks for ", key.print(run), setBy(run, name),
                     ". Compile again with qwen35c --set ", name, "=",
                     key.print(run), ", or leave it out"));
  }
  return absl::OkStatus();
}

} // namespace qwen35
