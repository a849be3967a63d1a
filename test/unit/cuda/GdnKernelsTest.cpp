#include "test/unit/cuda/CudaKernelTest.h"
#include "test/unit/support/DeltaCase.h"

namespace qwen35::codegen::cuda {
namespace {

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
          {rows[2], {1, 1, 16, 48}, Inputs::Strong},
          {rows[3], {1, 1, 128, 128}, Inputs::Mild},
          // More blocks of 32 columns than the emulated GPU has
          // multiprocessors.
          {rows[3], {1, 3, 48, 64}, Inputs::OneKey},
          {rows[4], {1, 2, 16, 80}, Inputs::ZeroKeys},
          // More documents than blocks for them.
          {{{1, 2, 3, 4, 5, 6, 7, 8, 9, 70, 11}, 128, 12},
           {1, 1, 16, 16},
           Inputs::Mild}};
}

struct Expected {
  std::string name;
  double single; ///< Per element, for f32.
  double half = 8e-3; ///< ||got - want|| / ||want||, for bf16.
};

class CudaGdnTest : public CudaKernelTest {
protected:
  /// Compares every output with `want`, apart from chunks that are not used and
  /// a document that is poisoned.
  void compare(const std::string &op, const std::string &attrs,
               const DeltaCase &c, Inputs inputs, Arrays operands,
               Arrays outputs, const std::vector<std::vector<double>> &want,
               const std::vector<Expected> &expected) {
    std::vector<std::vector<int64_t>> shapes;
    for (const Array &output : outputs)
      shapes.push_back(output.shape());
    auto documentOf = [&](size_t output, int64_t element) {
      const std::vector<int64_t> &shape = shapes[output];
      int64_t columns = 1;
      for (size_t d = 1; d < shape.size(); ++d)
        columns *= shape[d];
      return c.documentOf(element / columns, shape[0] != c.sequence.tokens);
    };
    unspecified = [&](size_t output, int64_t element) {
      return documentOf(output, element) < 0;
    };
    deviceBounds.clear();
    for (const Expected &e : expected)
      deviceBounds.push_back(
          {c.q.kind() == Kind::F32 ? std::max(2e-5, e.single) : e.half, 0});
    run(op, attrs, std::move(operands), std::move(outputs),
        [&](const Arrays &, const Arrays &out) {
          for (size_t i = 0; i < out.size(); ++i) {
            bool single = out[i].kind() == Kind::F32 &&
                          c.q.kind() == Kind::F32;
            std::vector<double> got, reference;
            double error = 0, norm = 0;
            for (int64_t j = 0; j < out[i].size(); ++j) {
              int64_t document = documentOf(i, j);
              if (document < 0 || (inputs == Inputs::Poisoned &&
                                   document == DeltaCase::kPoisonedDocument))
                continue;
              got.push_back(out[i][j]);
              reference.push_back(want[i][j]);
              error += (got.back() - want[i][j]) * (got.back() - want[i][j]);
              norm += want[i][j] * want[i][j];
            }
            if (single) {
              Array compared = f32({static_cast<int64_t>(got.size())});
              setValues(compared, got);
              expectNear(compared, reference, expected[i].single,
                         expected[i].name);
            } else {
              EXPECT_LE(std::sqrt(error), expected[i].half * std::sqrt(norm))
                  << expected[i].name << " of norm " << std::sqrt(norm);
            }
          }
        });
    unspecified = nullptr;
  }

  /// body(case, inputs, kind) for all of them.
  template <typename Body> void forCases(Body body) {
    for (const NamedCase &n : deltaCases())
      for (Kind kind : kFloatKinds)
        body(DeltaCase(n.sequence, n.dims, n.inputs, kind), n.inputs, kind);
  }
};

TEST_F(CudaGdnTest, PrepMatchesTheReference) {
  forCases([&](const DeltaCase &c, Inputs inputs, Kind kind) {
    // gamma of 3000 has an ulp of 2.4e-4 (KERNELS.md 1.2).
    bool strong = inputs == Inputs::Strong;
    compare("gdn_prep", c.attrs(", eps = 1.0e-6"), c, inputs,
            {c.q, c.k, c.g, c.beta, c.seq},
            {zeros(kind, c.keys()), zeros(kind, c.keys()), f32(c.qr.shape()),
             f32(c.kr.shape()), f32(c.gamma.shape()),
             zeros(kind, c.tinv.shape())},
            c.prep(),
            {{"qn", 1e-6, 3e-3},
             {"kn", 1e-6, 3e-3},
             {"qr", 1e-6, 1e-6},
             {"kr", 1e-6, 1e-6},
             {"gamma", 2e-6, 2e-6},
             {"tinv", strong ? 1e-3 : 2e-5,
              inputs == Inputs::OneKey ? 6e-2 : 4e-3}});
  });
}

// A11: tokens between decays to nothing are as exact as if those were of -104,
// of which gamma has an ulp of 4.9e-4 at most; at -5000 it would be 1.6e-2.
TEST_F(CudaGdnTest, DecaysToNothingLeaveDigitsToOthers) {
  for (Kind kind : kFloatKinds) {
    DeltaCase c({{130, 7, 64}, 210, 4}, {1, 2, 32, 32}, Inputs::AllOrNothing,
                kind);
    constexpr double kAny = 1e9; // gamma itself is not that of -5000
    compare("gdn_prep", c.attrs(", eps = 1.0e-6"), c, Inputs::AllOrNothing,
            {c.q, c.k, c.g, c.beta, c.seq},
            {zeros(kind, c.keys()), zeros(kind, c.keys()), f32(c.qr.shape()),
             f32(c.kr.shape()), f32(c.gamma.shape()),
             zeros(kind, c.tinv.shape())},
            c.prep(),
            {{"qn", 1e-6, 3e-3},
             {"kn", 1e-6, 3e-3},
             {"qr", 1e-6, 1e-6},
             {"kr", 1e-6, 1e-6},
             {"gamma", kAny, kAny},
             {"tinv", 5e-4, 4e-3}});
  }
}

TEST_F(CudaGdnTest, ScanMatchesTheReference) {
  forCases([&](const DeltaCase &c, Inputs inputs, Kind kind) {
    compare("gdn_scan", c.attrs(), c, inputs,
            {c.kn, c.v, c.beta, c.gamma, c.tinv, c.seq},
            {zeros(kind, c.states.shape()), zeros(kind, c.vnew.shape())},
            c.scan(), {{"states", 1e-5}, {"vnew", 1e-5}});
  });
}

TEST_F(CudaGdnTest, OutMatchesTheReference) {
  forCases([&](const DeltaCase &c, Inputs inputs, Kind kind) {
    compare("gdn_out", c.withScale(), c, inputs,
            {c.qn, c.kn, c.gamma, c.states, c.vnew, c.seq},
            {zeros(kind, c.values())}, c.out(), {{"o", 1e-5}});
  });
}

TEST_F(CudaGdnTest, ScanBwdMatchesTheReference) {
  forCases([&](const DeltaCase &c, Inputs inputs, Kind kind) {
    bool oneKey = inputs == Inputs::OneKey; // Terms of Z cancel.
    compare("gdn_scan_bwd", c.withScale(), c, inputs,
            {c.qn, c.kn, c.dO, c.beta, c.gamma, c.tinv, c.seq},
            {zeros(kind, c.dstates.shape()), zeros(kind, c.z.shape())},
            c.scanBwd(),
            {{"dstates", 1e-5},
             {"z", oneKey ? 5e-5 : 1e-5, oneKey ? 2e-2 : 8e-3}});
  });
}

TEST_F(CudaGdnTest, LocalBwdMatchesTheReference) {
  forCases([&](const DeltaCase &c, Inputs inputs, Kind kind) {
    // With equal keys the terms of dg cancel to almost nothing.
    bool oneKey = inputs == Inputs::OneKey;
    compare("gdn_local_bwd", c.withScale(), c, inputs,
            {c.qn, c.kn, c.qr, c.kr, c.v, c.dO, c.beta, c.gamma, c.states,
             c.dstates, c.vnew, c.z, c.seq},
            {zeros(kind, c.keys(), DeltaCase::strided(c.dims.keyHeads,
                                                      c.dims.keyDim)),
             zeros(kind, c.keys(), DeltaCase::strided(c.dims.keyHeads,
                                                      c.dims.keyDim)),
             zeros(kind, c.values(), DeltaCase::strided(c.dims.valueHeads,
                                                        c.dims.valueDim)),
             f32(c.gates()), f32(c.gates())},
            c.localBwd(),
            {{"dq", 2e-5},
             {"dk", 2e-5},
             {"dv", 2e-6, 3e-3},
             {"dg", oneKey ? 5e-2 : 1e-4, oneKey ? 1 : 1.2e-2},
             {"dbeta", 2e-5}});
  });
}

TEST_F(CudaGdnTest, RefusesWhatItHasNoKernelFor) {
  auto prep = [](std::vector<int64_t> heads, int64_t valueHeads) {
    return std::make_pair(
        Arrays{f32(heads), f32(heads), f32({8, valueHeads}),
               f32({8, valueHeads}), i32({32})},
        Arrays{f32(heads), f32(heads), f32({8, heads[1]}), f32({8, heads[1]}),
               f32({1, valueHeads, 64}), f32({1, valueHeads, 64, 64})});
  };
  std::string attrs = "{tokens = 8, max_docs = 1, eps = 1.0e-6}";
  auto [in, out] = prep({8, 2, 16}, 3);
  expectRefused("gdn_prep", attrs, in, out,
                "gdn_prep: 2 key heads do not divide 3 value heads");
  std::tie(in, out) = prep({8, 2, 20}, 2);
  expectRefused("gdn_prep", attrs, in, out,
                "gdn_prep: heads of 20 elements, expected a multiple of 16 up "
                "to 128");
}

} // namespace
} // namespace qwen35::codegen::cuda
