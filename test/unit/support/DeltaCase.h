#ifndef QWEN35_TEST_UNIT_SUPPORT_DELTACASE_H
#define QWEN35_TEST_UNIT_SUPPORT_DELTACASE_H

#include "dialect/Qwen35/Reference/DeltaChunk.h"
#include "test/unit/support/SequenceCase.h"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace qwen35::codegen {

using reference::DeltaDims;

/// How the gates and keys of a case are made.
enum class Inputs {
  Mild,     // decay of a few percent a token
  Strong,   // log decays down to -50
  NoDecay,  // g = 0, beta = 1
  AllOrNothing, // log decays of 0 to -0.01 or of -5000
  OneKey,   // all keys of a head equal, beta close to 1
  ZeroKeys, // k = 0: its norm is that of eps
  Poisoned, // mild, but the second document is NaN
};

/// Operands of every op of the chunked delta rule; what an op has produced
/// comes from the reference in double, rounded to the type of its array. What
/// no op may read holds NaN: chunks that are not used.
struct DeltaCase {
  SequenceCase sequence;
  DeltaDims dims;
  double scale, eps = 1e-6;
  Array seq, q, k, v, g, beta, dO;
  Array qn, kn, qr, kr, gamma, tinv, states, vnew, dstates, z;

  static Array poisoned(const std::vector<int64_t> &shape,
                        Kind kind = Kind::F32) {
    Array array = zeros(kind, shape);
    for (int64_t i = 0; i < array.size(); ++i)
      array.set(i, std::numeric_limits<double>::quiet_NaN());
    return array;
  }

  /// `kind` is the type of activations and of what stands for them.
  DeltaCase(const SequenceCase &sequence, const DeltaDims &d, Inputs inputs,
            Kind kind = Kind::F32)
      : sequence(sequence), dims(d), scale(1 / std::sqrt(double(d.keyDim))),
        seq(sequence.table()),
        // Slices of one wider tensor, as behind the convolution.
        q(random(kind, keys(), 1, 1, strided(d.keyHeads, d.keyDim))),
        k(random(kind, keys(), 2, 1, strided(d.keyHeads, d.keyDim))),
        v(random(kind, values(), 3, 1, strided(d.valueHeads, d.valueDim))),
        g(random(gates(), 4, 1)), beta(random(gates(), 5, 1)),
        dO(random(kind, values(), 6)), qn(zeros(kind, keys())),
        kn(zeros(kind, keys())),
        qr(f32({sequence.tokens, d.keyHeads})), kr(qr),
        gamma(poisoned({chunks(), d.valueHeads, 64})),
        tinv(poisoned({chunks(), d.valueHeads, 64, 64}, kind)),
        states(poisoned({chunks(), d.valueHeads, d.keyDim, d.valueDim}, kind)),
        vnew(poisoned({chunks(), d.valueHeads, 64, d.valueDim}, kind)),
        dstates(states), z(vnew) {
    for (int64_t i = 0; i < g.size(); ++i) {
      double unit = (g[i] + 1) / 2, strength = (beta[i] + 1) / 2;
      bool decays = inputs != Inputs::NoDecay;
      g.set(i, decays ? -unit * (inputs == Inputs::Strong ? 50 : 0.1) : 0);
      if (inputs == Inputs::NoDecay)
        strength = 1;
      if (inputs == Inputs::AllOrNothing)
        g.set(i, unit < 0.3 ? -5000 : unit / -100);
      if (inputs == Inputs::OneKey)
        strength = 0.999;
      beta.set(i, strength);
    }
    for (int64_t i = 0; i < k.size(); ++i) {
      if (inputs == Inputs::ZeroKeys)
        k.set(i, 0);
      if (inputs == Inputs::OneKey)
        k.set(i, k[i % (d.keyHeads * d.keyDim)]);
    }
    if (inputs == Inputs::Poisoned)
      for (Array *array : {&q, &k, &v, &g, &beta, &dO}) {
        int64_t columns = array->size() / sequence.tokens;
        for (int64_t i = 0; i < array->size(); ++i)
          if (documentOf(i / columns) == kPoisonedDocument)
            array->set(i, std::numeric_limits<double>::quiet_NaN());
      }
    fillProduced();
  }

  static constexpr int64_t kPoisonedDocument = 1;
  int64_t documentOf(int64_t token) const {
    int64_t document = 0, end = 0;
    for (int64_t length : sequence.documents) {
      if (token < (end += length))
        break;
      ++document;
    }
    return document;
  }
  /// Document of a token, or of a chunk; -1 for a chunk that is not used.
  int64_t documentOf(int64_t number, bool isChunk) const {
    if (!isChunk)
      return documentOf(number);
    if (number >= seq[SeqTable::kNumChunks])
      return -1;
    return static_cast<int64_t>(seq[sequence.shape().chunkDoc() + number]);
  }

  int64_t chunks() const { return sequence.shape().chunks(); }
  std::vector<int64_t> keys() const {
    return {sequence.tokens, dims.keyHeads, dims.keyDim};
  }
  std::vector<int64_t> values() const {
    return {sequence.tokens, dims.valueHeads, dims.valueDim};
  }
  std::vector<int64_t> gates() const {
    return {sequence.tokens, dims.valueHeads};
  }
  static std::vector<int64_t> strided(int64_t heads, int64_t columns) {
    return {heads * columns + 24, columns, 1};
  }
  std::string attrs(const std::string &more = "") const {
    return "{" + sequence.attrs() + more + "}";
  }
  std::string withScale() const {
    return attrs(", scale = " + std::to_string(scale) + " : f64");
  }

  // The reference on the float operands: each returns its results in order.
  using Results = std::vector<std::vector<double>>;
  Results outputs(std::initializer_list<const Array *> like) const {
    Results results;
    for (const Array *array : like)
      results.push_back(valuesOf(*array));
    return results;
  }
  Results prep() const {
    Results r = outputs({&qn, &kn, &qr, &kr, &gamma, &tinv});
    expectOk(reference::gdnPrep<double>(
        valuesOf(q), valuesOf(k), valuesOf(g), valuesOf(beta),
        sequence.shape(), valuesOf<int32_t>(seq), dims, eps,
        absl::MakeSpan(r[0]), absl::MakeSpan(r[1]), absl::MakeSpan(r[2]),
        absl::MakeSpan(r[3]), absl::MakeSpan(r[4]), absl::MakeSpan(r[5])));
    return r;
  }
  Results scan() const {
    Results r = outputs({&states, &vnew});
    expectOk(reference::gdnScan<double>(
        valuesOf(kn), valuesOf(v), valuesOf(beta), valuesOf(gamma),
        valuesOf(tinv), sequence.shape(), valuesOf<int32_t>(seq), dims,
        absl::MakeSpan(r[0]), absl::MakeSpan(r[1])));
    return r;
  }
  Results out() const {
    Results r = outputs({&v});
    expectOk(reference::gdnOut<double>(
        valuesOf(qn), valuesOf(kn), valuesOf(gamma), valuesOf(states),
        valuesOf(vnew), sequence.shape(), valuesOf<int32_t>(seq), dims,
        scaleAsWritten(), absl::MakeSpan(r[0])));
    return r;
  }
  Results scanBwd() const {
    Results r = outputs({&dstates, &z});
    expectOk(reference::gdnScanBwd<double>(
        valuesOf(qn), valuesOf(kn), valuesOf(dO), valuesOf(beta),
        valuesOf(gamma), valuesOf(tinv), sequence.shape(),
        valuesOf<int32_t>(seq), dims, scaleAsWritten(), absl::MakeSpan(r[0]),
        absl::MakeSpan(r[1])));
    return r;
  }
  Results localBwd() const {
    Results r = outputs({&q, &k, &v, &g, &beta});
    expectOk(reference::gdnLocalBwd<double>(
        valuesOf(qn), valuesOf(kn), valuesOf(qr), valuesOf(kr), valuesOf(v),
        valuesOf(dO), valuesOf(beta), valuesOf(gamma), valuesOf(states),
        valuesOf(dstates), valuesOf(vnew), valuesOf(z), sequence.shape(),
        valuesOf<int32_t>(seq), dims, scaleAsWritten(), absl::MakeSpan(r[0]),
        absl::MakeSpan(r[1]), absl::MakeSpan(r[2]), absl::MakeSpan(r[3]),
        absl::MakeSpan(r[4])));
    return r;
  }
  /// `scale` with the digits that the attribute has.
  double scaleAsWritten() const { return std::stod(std::to_string(scale)); }

  void fillProduced() {
    Results r = prep();
    Array *prepared[] = {&qn, &kn, &qr, &kr, &gamma, &tinv};
    for (size_t i = 0; i < r.size(); ++i)
      setValues(*prepared[i], r[i]);
    r = scan();
    setValues(states, r[0]);
    setValues(vnew, r[1]);
    r = scanBwd();
    setValues(dstates, r[0]);
    setValues(z, r[1]);
  }
};

} // namespace qwen35::codegen

#endif // QWEN35_TEST_UNIT_SUPPORT_DELTACASE_H
