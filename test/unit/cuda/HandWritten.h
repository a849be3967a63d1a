#ifndef QWEN35_TEST_UNIT_CUDA_HANDWRITTEN_H
#define QWEN35_TEST_UNIT_CUDA_HANDWRITTEN_H

#include "codegen/cuda/Kernel.h"
#include "test/unit/cuda/EmulatedUnit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qwen35::codegen::cuda {

/// A kernel written in a test: `k(Out *out, const float *in)`, of this body.
template <typename Out> class HandWritten {
public:
  HandWritten(const std::string &out, const std::string &body,
              const std::string &before = "") {
    source = "#include \"q35/mma.cuh\"\nusing namespace q35;\n" + before +
             "extern \"C\" __global__ void k(" + out +
             " *out, const float *in) {\n" + body + "\n}\n";
    auto loaded = EmulatedUnit::load(
        source + printLauncher("k", {out + " *", "const float *"}), "k");
    EXPECT_TRUE(static_cast<bool>(loaded))
        << (loaded ? "" : llvm::toString(loaded.takeError()));
    if (loaded)
      unit = *loaded;
  }

  HandWritten &threads(int count) { return blockThreads = count, *this; }
  HandWritten &blocks(int count) { return gridBlocks = count, *this; }
  HandWritten &shared(int64_t bytes) { return sharedBytes = bytes, *this; }
  HandWritten &in(const std::vector<float> &values) {
    return input = values, *this;
  }

  /// What it leaves in `size` elements that are 0xFF.. at first.
  std::vector<Out> run(int64_t size, int order = 0) const {
    GuardedMemory out("out", size * sizeof(Out), 0xFFFF);
    GuardedMemory in("in", input.size() * sizeof(float), 0xFFC5);
    std::copy(input.begin(), input.end(),
              reinterpret_cast<float *>(in.pointer()));
    EXPECT_TRUE(unit && unit->launch("k", {out.pointer(), in.pointer()},
                                     gridBlocks, blockThreads, sharedBytes,
                                     order));
    EXPECT_TRUE(out.frameIntact());
    auto *first = reinterpret_cast<Out *>(out.pointer());
    return std::vector<Out>(first, first + size);
  }

  /// And NVRTC takes it.
  void compileForGpus() const {
    for (const char *arch : {"sm_80", "sm_90a"})
      EXPECT_EQ(checkWithNvrtc(source, "k", arch), "");
  }

private:
  std::string source;
  std::shared_ptr<EmulatedUnit> unit;
  int blockThreads = 32, gridBlocks = 1;
  int64_t sharedBytes = 0;
  std::vector<float> input = std::vector<float>(64, 0);
};

} // namespace qwen35::codegen::cuda

#endif // QWEN35_TEST_UNIT_CUDA_HANDWRITTEN_H
