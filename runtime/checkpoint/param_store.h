#ifndef QWEN35_RUNTIME_CHECKPOINT_PARAM_STORE_H
#define QWEN35_RUNTIME_CHECKPOINT_PARAM_STORE_H

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qwen35 {

/// The arrays of a parameter.
enum class ParamRole { Weight, M, V, Gradient };

/// Where parameters live: the memory of this process, or a device's. Whoever
/// reads or writes them does it through spans of at most kPiece elements; where
/// they are host memory, those are the very elements and nothing is copied.
///
/// Shapes  Elements are float32, row-major, counted over the whole parameter.
class ParamStore {
public:
  static constexpr int64_t kPiece = int64_t(4) << 20;

  virtual ~ParamStore() = default;

  virtual size_t params() const = 0;
  virtual int64_t elements(ParamRole role, size_t param) const = 0;
  /// The elements themselves, or nothing (null data) if they are elsewhere.
  virtual absl::Span<float> view(ParamRole role, size_t param) const = 0;
  /// Whether any of elements [first, first + count) are kept: what is written
  /// elsewhere is not looked at.
  virtual bool holds(ParamRole, size_t, int64_t, int64_t) const { return true; }
  /// For what has no view: elements [first, first + size of the span).
  virtual absl::Status copyOut(ParamRole role, size_t param, int64_t first,
                               absl::Span<float> values) const = 0;
  virtual absl::Status copyIn(ParamRole role, size_t param, int64_t first,
                              absl::Span<const float> values) const = 0;

  /// Hands elements [first, first + count) to `use` in order, in pieces.
  absl::Status
  read(ParamRole role, size_t param, int64_t first, int64_t count,
       absl::FunctionRef<absl::Status(absl::Span<const float>)> use) const {
    absl::Span<float> living = view(role, param);
    std::vector<float> copy(
        living.data() ? 0 : static_cast<size_t>(std::min(count, kPiece)));
    for (int64_t at = 0; at < count; at += kPiece) {
      size_t piece = static_cast<size_t>(std::min(kPiece, count - at));
      absl::Span<float> values =
          living.data() ? living.subspan(static_cast<size_t>(first + at), piece)
                        : absl::MakeSpan(copy.data(), piece);
      if (!living.data())
        if (absl::Status status = copyOut(role, param, first + at, values);
            !status.ok())
          return status;
      if (absl::Status status = use(values); !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  /// Sets elements [first, first + count): `make(at, values)` fills those from
  /// element `first + at` on. It is not called for what is not kept.
  absl::Status
  write(ParamRole role, size_t param, int64_t first, int64_t count,
        absl::FunctionRef<void(int64_t at, absl::Span<float>)> make) const {
    absl::Span<float> living = view(role, param);
    if (living.data()) {
      make(0, living.subspan(static_cast<size_t>(first),
                             static_cast<size_t>(count)));
      return absl::OkStatus();
    }
    std::vector<float> copy(static_cast<size_t>(std::min(count, kPiece)));
    for (int64_t at = 0; at < count; at += kPiece) {
      absl::Span<float> values = absl::MakeSpan(
          copy.data(), static_cast<size_t>(std::min(kPiece, count - at)));
      if (!holds(role, param, first + at, static_cast<int64_t>(values.size())))
        continue;
      make(at, values);
      if (absl::Status status = copyIn(role, param, first + at, values);
          !status.ok())
        return status;
    }
    return absl::OkStatus();
  }
};

/// Arrays that live in this process, by role; a role may be absent (empty).
class SpanStore final : public ParamStore {
public:
  using Arrays = std::vector<absl::Span<float>>;

  SpanStore() = default;
  explicit SpanStore(Arrays weights) { roles[0] = std::move(weights); }
  SpanStore(Arrays weights, Arrays m, Arrays v, Arrays gradients = {})
      : roles{std::move(weights), std::move(m), std::move(v),
              std::move(gradients)} {}
  /// Of arrays that will only be read.
  static SpanStore ofWeights(absl::Span<const absl::Span<const float>> arrays) {
    Arrays weights;
    for (absl::Span<const float> array : arrays)
      weights.emplace_back(const_cast<float *>(array.data()), array.size());
    return SpanStore(std::move(weights));
  }

  size_t params() const override { return roles[0].size(); }
  int64_t elements(ParamRole role, size_t param) const override {
    return static_cast<int64_t>(view(role, param).size());
  }
  absl::Span<float> view(ParamRole role, size_t param) const override {
    return roles[static_cast<int>(role)][param];
  }
  absl::Status copyOut(ParamRole, size_t, int64_t,
                       absl::Span<float>) const override {
    return absl::InternalError("an array of this process has a view");
  }
  absl::Status copyIn(ParamRole, size_t, int64_t,
                      absl::Span<const float>) const override {
    return absl::InternalError("an array of this process has a view");
  }

private:
  Arrays roles[4];
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_PARAM_STORE_H
