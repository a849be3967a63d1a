#include "dialect/Qwen35/Reference/Checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include <numeric>
#include <string>
#include <vector>

namespace qwen35::reference {

Checks &Checks::fail(absl::string_view message) {
  if (first.ok())
    first = absl::InvalidArgumentError(absl::StrCat(op, ": ", message));
  return *this;
}

Checks &Checks::shape(absl::string_view name, size_t elements,
                      absl::Span<const int64_t> dims) {
  if (!ok())
    return *this;
  int64_t product = 1;
  for (int64_t dim : dims) {
    if (dim < 0)
      return fail(absl::StrCat(name, " has a negative dimension: [",
                               absl::StrJoin(dims, ", "), "]"));
    if (__builtin_mul_overflow(product, dim, &product))
      return fail(absl::StrCat(name, " has more than 2^63 elements: [",
                               absl::StrJoin(dims, ", "), "]"));
  }
  if (static_cast<uint64_t>(product) != elements)
    return fail(absl::StrCat(name, " has ", elements, " elements, expected ",
                             product, " = [", absl::StrJoin(dims, ", "), "]"));
  return *this;
}

Checks &Checks::shape(absl::string_view name, size_t elements,
                      std::initializer_list<int64_t> dims) {
  return shape(name, elements,
               absl::Span<const int64_t>(dims.begin(), dims.size()));
}

Checks &Checks::optionalShape(absl::string_view name, size_t elements,
                              std::initializer_list<int64_t> dims) {
  return elements == 0 ? *this : shape(name, elements, dims);
}

Checks &Checks::positive(absl::string_view name, double value) {
  if (ok() && !(value > 0)) // Written so that NaN fails too.
    return fail(absl::StrCat(name, " must be greater than zero, got ", value));
  return *this;
}

Checks &Checks::notNegative(absl::string_view name, double value) {
  if (ok() && !(value >= 0))
    return fail(absl::StrCat(name, " must not be negative, got ", value));
  return *this;
}

Checks &Checks::fraction(absl::string_view name, double value) {
  if (ok() && !(value >= 0 && value < 1))
    return fail(
        absl::StrCat(name, " must be at least 0 and below 1, got ", value));
  return *this;
}

Checks &Checks::multiple(absl::string_view name, int64_t value,
                         absl::string_view factorName, int64_t factor) {
  if (ok() && (factor <= 0 || value < 0 || value % factor != 0))
    return fail(absl::StrCat(name, " = ", value, " is not a multiple of ",
                             factorName, " = ", factor));
  return *this;
}

Checks &Checks::range(absl::string_view name, int64_t value, int64_t lowest,
                      int64_t highest) {
  if (ok() && (value < lowest || value > highest))
    return fail(absl::StrCat(name, " = ", value, " is outside ", lowest, " to ",
                             highest));
  return *this;
}

Checks &Checks::require(bool condition, absl::string_view message) {
  return ok() && !condition ? fail(message) : *this;
}

Checks &Checks::ids(absl::string_view name, absl::Span<const int32_t> values,
                    int64_t limit) {
  for (size_t i = 0; ok() && i < values.size(); ++i)
    if (values[i] < 0 || values[i] >= limit)
      return fail(absl::StrCat(name, "[", i, "] is ", values[i],
                               ", expected 0 to ", limit - 1));
  return *this;
}

Checks &Checks::shardIds(absl::string_view name,
                         absl::Span<const int32_t> values, int64_t limit,
                         bool shard) {
  for (size_t i = 0; ok() && i < values.size(); ++i)
    if ((values[i] < 0 || values[i] >= limit) &&
        !(shard && values[i] == kElsewhere))
      return fail(absl::StrCat(name, "[", i, "] is ", values[i],
                               ", expected 0 to ", limit - 1,
                               shard ? " or -1" : ""));
  return *this;
}

Checks &Checks::shardLabels(absl::string_view name,
                            absl::Span<const int32_t> values, int64_t limit) {
  for (size_t i = 0; ok() && i < values.size(); ++i)
    if ((values[i] < kElsewhere || values[i] >= limit) &&
        values[i] != kIgnoredLabel)
      return fail(absl::StrCat(name, "[", i, "] is ", values[i],
                               ", expected -1 to ", limit - 1, " or ",
                               kIgnoredLabel));
  return *this;
}

Checks &Checks::labels(absl::string_view name, absl::Span<const int32_t> values,
                       int64_t limit) {
  for (size_t i = 0; ok() && i < values.size(); ++i)
    if ((values[i] < 0 || values[i] >= limit) && values[i] != kIgnoredLabel)
      return fail(absl::StrCat(name, "[", i, "] is ", values[i],
                               ", expected 0 to ", limit - 1, " or ",
                               kIgnoredLabel));
  return *this;
}

void Checks::failNotPositive(absl::string_view name, size_t index,
                             double value) {
  fail(absl::StrCat(name, "[", index, "] is ", value,
                    ", expected a log decay of at most 0"));
}

Checks &Checks::documents(const SeqTable &shape,
                          absl::Span<const int32_t> table) {
  if (!ok())
    return *this;
  if (shape.tokens < 0 || shape.maxDocs < 0 || shape.tokens > INT32_MAX)
    return fail(absl::StrCat("seq cannot hold ", shape.tokens, " tokens in ",
                             shape.maxDocs, " documents"));
  if (static_cast<int64_t>(table.size()) != shape.words())
    return fail(absl::StrCat("seq has ", table.size(), " words, expected ",
                             shape.words(), " for ", shape.tokens,
                             " tokens and ", shape.maxDocs, " documents"));
  int64_t count = table[SeqTable::kNumDocs];
  if (count < 0 || count > shape.maxDocs)
    return fail(absl::StrCat("seq has ", count, " documents, expected 0 to ",
                             shape.maxDocs));
  // The lengths determine every other word, so write the table again from them
  // and compare. Padding, the last documents, has lengths as well; which they
  // are is the one word that the lengths leave open.
  int64_t real = table[SeqTable::kRealTokens];
  std::vector<int64_t> lengths, padding;
  for (int64_t d = 0; d < count; ++d) {
    int64_t begin = table[shape.cuSeqlens() + d];
    (begin < real ? lengths : padding)
        .push_back(table[shape.cuSeqlens() + d + 1] - begin);
  }
  std::string text = absl::StrCat("[", absl::StrJoin(lengths, ", "), "]");
  int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t(0));
  lengths.insert(lengths.end(), padding.begin(), padding.end());
  std::vector<int32_t> expected(shape.words());
  if (total != real ||
      !fillSeqTable(shape, lengths.data(), lengths.size(), expected.data()))
    return fail(absl::StrCat("seq is not a document table: lengths ", text,
                             " do not fit ", real, " of ", shape.tokens,
                             " tokens"));
  expected[SeqTable::kRealTokens] = table[SeqTable::kRealTokens];
  for (int64_t i = 0; i < shape.words(); ++i)
    if (table[i] != expected[i])
      return fail(absl::StrCat("seq word ", i, " is ", table[i], ", expected ",
                               expected[i], " for documents of ", text,
                               " tokens"));
  return *this;
}

} // namespace qwen35::reference
