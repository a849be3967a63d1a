#include "dialect/Qwen35/Reference/DeltaChunk.h"
#include "test/unit/cpu/SequenceCase.h"

#include <functional>
#include <limits>

namespace qwen35::codegen::cpu {
namespace {

using reference::DeltaDims;

/// How the gates and keys of a case are made.
enum class Inputs {
  Mild,     // decay of a few percent a token
  Strong,   // log decays down to -50
  NoDecay,  // g = 0, beta = 1
  OneKey,   // all keys of a head equal, beta close to 1
  ZeroKeys, // k = 0: its norm is that of eps
  Poisoned, // mild, but the second document is NaN
};

/// Operands of every op of the chunked delta rule; what an op has produced
/// comes from the reference in double, rounded to float. What no op may read
/// holds NaN: chunks that are not used.
struct DeltaCase {
  SequenceCase sequence;
  DeltaDims dims;
  double scale, eps = 1e-6;
  Array seq, q, k, v, g, beta, dO;
  Array qn, kn, qr, kr, gamma, tinv, states, vnew, dstates, z;

  static Array poisoned(const std::vector<int64_t> &shape) {
    Array array = f32(shape);
    for (int64_t i = 0; i < array.size(); ++i)
      array.set(i, std::numeric_limits<double>::quiet_NaN());
    return array;
  }

  DeltaCase(const SequenceCase &sequence, const DeltaDims &d, Inputs inputs)
      : sequence(sequence), dims(d), scale(1 / std::sqrt(double(d.keyDim))),
        seq(sequence.table()),
        // Slices of one wider tensor, as behind the convolution.
        q(random(keys(), 1, 1, strided(d.keyHeads, d.keyDim))),
        k(random(keys(), 2, 1, strided(d.keyHeads, d.keyDim))),
        v(random(values(), 3, 1, strided(d.valueHeads, d.valueDim))),
        g(random(gates(), 4, 1)), beta(random(gates(), 5, 1)),
        dO(random(values(), 6)), qn(f32(keys())), kn(f32(keys())),
        qr(f32({sequence.tokens, d.keyHeads})), kr(qr),
        gamma(poisoned({chunks(), d.valueHeads, 64})),
        tinv(poisoned({chunks(), d.valueHeads, 64, 64})),
        states(poisoned({chunks(), d.valueHeads, d.keyDim, d.valueDim})),
        vnew(poisoned({chunks(), d.valueHeads, 64, d.valueDim})),
        dstates(states), z(vnew) {
    for (int64_t i = 0; i < g.size(); ++i) {
      double unit = (g[i] + 1) / 2, strength = (beta[i] + 1) / 2;
      bool decays = inputs != Inputs::NoDecay;
      g.set(i, decays ? -unit * (inputs == Inputs::Strong ? 50 : 0.1) : 0);
      if (inputs == Inputs::NoDecay)
        strength = 1;
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

struct NamedCase {
  SequenceCase sequence;
  DeltaDims dims;
  Inputs inputs;
};

/// G = 1, 2 and 3; heads of every size class; all documents of sequenceCases.
/// None has as many tokens as chunks (unless one of both): `compare` tells
/// tensors apart by that.
std::vector<NamedCase> deltaCases() {
  std::vector<SequenceCase> rows = sequenceCases();
  SequenceCase neighbours{{5, 70, 3}, 80, 5};
  return {{rows[0], {1, 1, 16, 16}, Inputs::Mild},
          {neighbours, {1, 2, 32, 32}, Inputs::Poisoned},
          {rows[1], {2, 4, 32, 32}, Inputs::NoDecay},
          {rows[2], {1, 2, 32, 64}, Inputs::Mild},
          {rows[2], {1, 1, 20, 24}, Inputs::Strong},
          {rows[3], {1, 1, 128, 128}, Inputs::Mild},
          {rows[3], {1, 3, 24, 16}, Inputs::OneKey},
          {rows[4], {1, 2, 16, 40}, Inputs::ZeroKeys}};
}

class GdnKernelTest : public KernelTest {
protected:
  /// Compares every output with `want`, apart from chunks that are not used and
  /// a document that is poisoned.
  void compare(const std::string &op, const std::string &attrs,
               const DeltaCase &c, Inputs kind, Arrays inputs, Arrays outputs,
               const std::vector<std::vector<double>> &want,
               const std::vector<std::pair<std::string, double>> &tolerances) {
    run(op, attrs, std::move(inputs), std::move(outputs),
        [&](const Arrays &, const Arrays &out) {
          for (size_t i = 0; i < out.size(); ++i) {
            bool isChunk = out[i].shape()[0] != c.sequence.tokens;
            int64_t columns = out[i].size() / out[i].shape()[0];
            std::vector<double> got, expected;
            for (int64_t j = 0; j < out[i].size(); ++j) {
              int64_t document = c.documentOf(j / columns, isChunk);
              if (document < 0 || (kind == Inputs::Poisoned &&
                                   document == DeltaCase::kPoisonedDocument))
                continue;
              got.push_back(out[i][j]);
              expected.push_back(want[i][j]);
            }
            Array compared = f32({static_cast<int64_t>(got.size())});
            setValues(compared, got);
            expectNear(compared, expected, tolerances[i].second,
                       tolerances[i].first);
          }
        });
  }
};

TEST_F(GdnKernelTest, PrepMatchesTheReference) {
  for (const NamedCase &n : deltaCases()) {
    DeltaCase c(n.sequence, n.dims, n.inputs);
    compare("gdn_prep", c.attrs(", eps = 1.0e-6"), c, n.inputs,
            {c.q, c.k, c.g, c.beta, c.seq},
            {f32(c.keys()), f32(c.keys()), f32(c.qr.shape()),
             f32(c.kr.shape()), f32(c.gamma.shape()), f32(c.tinv.shape())},
            c.prep(),
            {{"qn", 1e-6},
             {"kn", 1e-6},
             {"qr", 1e-6},
             {"kr", 1e-6},
             {"gamma", 2e-6},
             // gamma of 3000 has an ulp of 2.4e-4 (KERNELS.md 1.2).
             {"tinv", n.inputs == Inputs::Strong ? 1e-3 : 2e-5}});
  }
}

TEST_F(GdnKernelTest, ScanMatchesTheReference) {
  for (const NamedCase &n : deltaCases()) {
    DeltaCase c(n.sequence, n.dims, n.inputs);
    compare("gdn_scan", c.attrs(), c, n.inputs,
            {c.kn, c.v, c.beta, c.gamma, c.tinv, c.seq},
            {f32(c.states.shape()), f32(c.vnew.shape())}, c.scan(),
            {{"states", 1e-5}, {"vnew", 1e-5}});
  }
}

TEST_F(GdnKernelTest, OutMatchesTheReference) {
  for (const NamedCase &n : deltaCases()) {
    DeltaCase c(n.sequence, n.dims, n.inputs);
    compare("gdn_out", c.withScale(), c, n.inputs,
            {c.qn, c.kn, c.gamma, c.states, c.vnew, c.seq}, {f32(c.values())},
            c.out(), {{"o", 1e-5}});
  }
}

TEST_F(GdnKernelTest, ScanBwdMatchesTheReference) {
  for (const NamedCase &n : deltaCases()) {
    DeltaCase c(n.sequence, n.dims, n.inputs);
    compare("gdn_scan_bwd", c.withScale(), c, n.inputs,
            {c.qn, c.kn, c.dO, c.beta, c.gamma, c.tinv, c.seq},
            {f32(c.dstates.shape()), f32(c.z.shape())}, c.scanBwd(),
            {{"dstates", 1e-5}, {"z", 1e-5}});
  }
}

TEST_F(GdnKernelTest, LocalBwdMatchesTheReference) {
  for (const NamedCase &n : deltaCases()) {
    DeltaCase c(n.sequence, n.dims, n.inputs);
    compare("gdn_local_bwd", c.withScale(), c, n.inputs,
            {c.qn, c.kn, c.qr, c.kr, c.v, c.dO, c.beta, c.gamma, c.states,
             c.dstates, c.vnew, c.z, c.seq},
            {f32(c.keys()), f32(c.keys()), f32(c.values()), f32(c.gates()),
             f32(c.gates())},
            c.localBwd(),
            {{"dq", 2e-5},
             {"dk", 2e-5},
             {"dv", 2e-6},
             // With equal keys the terms of dg cancel to almost nothing.
             {"dg", n.inputs == Inputs::OneKey ? 5e-2 : 1e-4},
             {"dbeta", 2e-5}});
  }
}

TEST_F(GdnKernelTest, PrepRefusesHeadsThatDoNotDivide) {
  expectRefused("gdn_prep", "{tokens = 8, max_docs = 1, eps = 1.0e-6}",
                {f32({8, 2, 4}), f32({8, 2, 4}), f32({8, 3}), f32({8, 3}),
                 i32({32})},
                {f32({8, 2, 4}), f32({8, 2, 4}), f32({8, 2}), f32({8, 2}),
                 f32({1, 3, 64}), f32({1, 3, 64, 64})},
                "gdn_prep: 2 key heads do not divide 3 value heads");
}

} // namespace
} // namespace qwen35::codegen::cpu
