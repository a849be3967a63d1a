#ifndef QWEN35_RUNTIME_RECIPE_RECIPEKEYS_H
#define QWEN35_RUNTIME_RECIPE_RECIPEKEYS_H

#include "runtime/recipe/recipe.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

namespace qwen35::impl {

/// What a number may be. Bounds are inclusive unless said.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool aboveLow = false;  // low itself is refused
  bool belowHigh = false; // high itself is refused

  bool contains(double value) const; // false for NaN and infinities
  std::string text() const;          // "greater than 0", "from 0 to below 1"
};

using Slot =
    std::variant<double *, int64_t *, std::string *, std::array<double, 2> *>;

/// One row of the table that reading, checking and printing share.
struct RecipeKey {
  const char *section;
  const char *name;
  bool baked;
  Slot (*slot)(Recipe &recipe);
  Range range;                       // numbers
  std::vector<const char *> choices; // strings
  const char *help;

  std::string fullName() const;
  std::string rule() const; // "an integer, at least 1"
  /// The value in `recipe` as TOML.
  std::string print(const Recipe &recipe) const;
};

/// In printing order; keys of a section are neighbours.
const std::vector<RecipeKey> &recipeKeyTable();

/// nullptr when there is none.
const RecipeKey *findRecipeKey(const std::string &fullName);

/// The known key most like `name` by edit distance; a name without a section
/// is compared with the keys' own names.
std::string nearestRecipeKey(const std::string &name);

} // namespace qwen35::impl

#endif // QWEN35_RUNTIME_RECIPE_RECIPEKEYS_H
