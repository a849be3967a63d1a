#include "test/unit/cpu/KernelTest.h"
#include "test/unit/support/DeltaCase.h"

namespace qwen35::codegen::cpu {
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
