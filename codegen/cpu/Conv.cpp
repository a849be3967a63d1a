// causal_conv: a depthwise causal convolution inside each document, then SiLU.
// MODEL.md 4.3, gradients 13.10.
//
// A task owns 64 tokens of up to 256 channels; vectors run along the channels,
// so the taps of neighbouring tokens are rows that are still in the cache.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/KernelBuilder.h"

#include "runtime/schema/seq_table.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr int64_t kTokenBlock = 64, kChannelBlock = 256;

/// The blocks of a [tokens, channels] tensor that tasks own.
struct Blocks {
  int64_t tokens, channels;

  explicit Blocks(MemRefType x)
      : tokens(x.getDimSize(0)), channels(x.getDimSize(1)) {}
  int64_t channelBlock() const { return std::min(channels, kChannelBlock); }
  int64_t tokenBlocks() const { return llvm::divideCeil(tokens, kTokenBlock); }
  int64_t channelBlocks() const {
    return llvm::divideCeil(channels, channelBlock());
  }

  /// Channels of the block that starts at `first`.
  Ix channelCount(KernelBuilder &k, Val first) const {
    if (channels % channelBlock() == 0)
      return channelBlock();
    return min(k.index(channels) - first, k.index(channelBlock()));
  }
  /// One past the last token of the block that starts at `first`.
  Val tokenEnd(KernelBuilder &k, Val first) const {
    return min(first + double(kTokenBlock), k.index(tokens));
  }
};

/// x[token - distance], or 0 where that lies before the document; `available`
/// tokens of it come before `token`. Null: all that are asked for.
Val tapRow(View x, Val token, Val available, int64_t distance, Val channel,
           Lanes l) {
  if (distance == 0)
    return x.load({token, channel}, l);
  Val row = token - double(distance);
  if (!available)
    return x.load({row, channel}, l);
  Val inside = available >= double(distance);
  Val value = x.load({select(inside, row, token), channel}, l);
  return select(inside, value, value.like(0));
}

/// Weights of a block of channels as [taps, channels].
View transposedTaps(KernelBuilder &k, View weight, Val firstChannel, Ix count,
                    int64_t block) {
  int64_t taps = weight.size(2);
  View turned = k.scratch({taps, block}, k.f32());
  k.forLoop(0, count, 1, [&](Val c) {
    for (int64_t i = 0; i < taps; ++i)
      turned.store(weight.load({firstChannel + c, 0, i}), {i, c});
  });
  return turned;
}

/// Calls body(available) under a test whether all taps of `token` lie in its
/// document; null then, so that most tokens need no selection.
void byDistance(KernelBuilder &k, SeqView seq, Val token, int64_t taps,
                llvm::function_ref<void(Val)> body) {
  Val available = token - seq.docStart(token);
  k.ifThenElse(available >= double(taps - 1), [&] { body(Val()); },
               [&] { body(available); });
}

/// p[token] over the lanes.
Val convolve(View x, View taps, Val token, Val available, Val firstChannel,
             Lanes l) {
  int64_t width = taps.size(0);
  Val sum;
  for (int64_t i = 0; i < width; ++i) {
    Val value =
        tapRow(x, token, available, width - 1 - i, firstChannel + l.i, l);
    Val weight = taps.load({i, l.i}, l);
    sum = sum ? fma(weight, value, sum) : weight * value;
  }
  return sum;
}

LogicalResult checkConv(const KernelSpec &spec, MemRefType x, MemRefType weight,
                        MemRefType seq, EmitError emitError) {
  if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)))
    return failure();
  SeqTable table{spec.integer("tokens"), spec.integer("max_docs")};
  Type f32 = Float32Type::get(x.getContext());
  Type i32 = IntegerType::get(x.getContext(), 32);
  if (failed(requireType(spec, x, "x", {table.tokens, kAny}, f32, emitError)) ||
      failed(requireType(spec, weight, "weight", {x.getDimSize(1), 1, kAny},
                         f32, emitError)))
    return failure();
  return requireType(spec, seq, "seq", {table.words()}, i32, emitError);
}

class CausalConv : public KernelFamily {
public:
  StringRef op() const override { return "causal_conv"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 1, emitError)) ||
        failed(checkConv(spec, spec.inputs[0], spec.inputs[1], spec.inputs[2],
                         emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "x", spec.outputs[0], "y",
                                emitError)))
      return failure();
    Blocks blocks(spec.inputs[0]);
    KernelPlan plan;
    plan.grids = {blocks.tokenBlocks() * blocks.channelBlocks()};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned,
            KernelBuilder &k) const override {
    View x = k.input(0), weight = k.input(1), y = k.output(0);
    SeqView seq = k.seq(k.input(2), spec);
    Blocks blocks(x.type());
    Val firstToken = k.task() / double(blocks.channelBlocks()) *
                     double(kTokenBlock);
    Val firstChannel = k.task() % double(blocks.channelBlocks()) *
                       double(blocks.channelBlock());
    Ix count = blocks.channelCount(k, firstChannel);
    View taps = transposedTaps(k, weight, firstChannel, count,
                               blocks.channelBlock());
    k.forLoop(firstToken, blocks.tokenEnd(k, firstToken), 1, [&](Val token) {
      byDistance(k, seq, token, weight.size(2), [&](Val available) {
        k.forLanes(count, [&](Lanes l) {
          Val p = convolve(x, taps, token, available, firstChannel, l);
          y.store(silu(p), {token, firstChannel + l.i}, l);
        });
      });
    });
  }
};

/// Stage 0: dx, and dw of each block of tokens to the workspace. Stage 1: dw.
class CausalConvBwd : public KernelFamily {
public:
  StringRef op() const override { return "causal_conv_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 4, 2, emitError)) ||
        failed(checkConv(spec, spec.inputs[1], spec.inputs[2], spec.inputs[3],
                         emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "dy", spec.inputs[1], "x",
                                emitError)) ||
        failed(requireSameShape(spec, spec.outputs[0], "dx", spec.inputs[1],
                                "x", emitError)) ||
        failed(requireSameShape(spec, spec.outputs[1], "dweight",
                                spec.inputs[2], "weight", emitError)))
      return failure();
    Blocks blocks(spec.inputs[1]);
    KernelPlan plan;
    plan.grids = {blocks.tokenBlocks() * blocks.channelBlocks(),
                  blocks.channelBlocks()};
    plan.workspaceBytes = blocks.tokenBlocks() *
                          spec.inputs[2].getNumElements() *
                          static_cast<int64_t>(sizeof(float));
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    Blocks blocks(spec.inputs[1]);
    int64_t width = spec.inputs[2].getDimSize(2);
    View partials = k.workspace(
        0, {blocks.tokenBlocks(), width, blocks.channels}, k.f32());
    Val firstChannel = k.task() % double(blocks.channelBlocks()) *
                       double(blocks.channelBlock());
    Ix count = blocks.channelCount(k, firstChannel);
    if (stage == 0)
      return emitBlock(spec, k, blocks, partials, firstChannel, count);

    View dw = k.output(1);
    View sums = k.scratch({width, blocks.channelBlock()}, k.f32());
    for (int64_t i = 0; i < width; ++i)
      k.forLanes(count, [&](Lanes l) {
        Val sum = k.forLoop(
            0, blocks.tokenBlocks(), 1, {k.zero(k.f32(), l.width)},
            [&](Val block, ArrayRef<Val> sum) -> SmallVector<Val> {
              return {sum[0] +
                      partials.load({block, i, firstChannel + l.i}, l)};
            })[0];
        sums.store(sum, {i, l.i}, l);
      });
    k.forLoop(0, count, 1, [&](Val c) {
      for (int64_t i = 0; i < width; ++i)
        dw.store(sums.load({i, c}), {firstChannel + c, 0, i});
    });
  }

private:
  void emitBlock(const KernelSpec &spec, KernelBuilder &k, const Blocks &blocks,
                 View partials, Val firstChannel, Ix count) const {
    View dy = k.input(0), x = k.input(1), weight = k.input(2);
    View dx = k.output(0);
    SeqView seq = k.seq(k.input(3), spec);
    int64_t width = weight.size(2), columns = blocks.channelBlock();
    Val block = k.task() / double(blocks.channelBlocks());
    Val first = block * double(kTokenBlock);
    Val end = blocks.tokenEnd(k, first);
    View taps = transposedTaps(k, weight, firstChannel, count, columns);

    // dp of the tokens of the block and of the width - 1 that read them.
    View dp = k.scratch({kTokenBlock + width - 1, columns}, k.f32());
    auto gradient = [&](Val token, Val available, Lanes l) {
      Val p = convolve(x, taps, token, available, firstChannel, l);
      Val s = sigmoid(p);
      Val value = dy.load({token, firstChannel + l.i}, l) * s *
                  (1.0 + p * (1.0 - s));
      dp.store(value, {token - first, l.i}, l);
      return value;
    };

    View sums = k.scratch({width, columns}, k.f32());
    for (int64_t i = 0; i < width; ++i)
      k.forLanes(count, [&](Lanes l) {
        sums.store(k.zero(k.f32(), l.width), {i, l.i}, l);
      });
    k.forLoop(first, end, 1, [&](Val token) {
      byDistance(k, seq, token, width, [&](Val available) {
        k.forLanes(count, [&](Lanes l) {
          Val value = gradient(token, available, l);
          for (int64_t i = 0; i < width; ++i) {
            Val tap = tapRow(x, token, available, width - 1 - i,
                             firstChannel + l.i, l);
            sums.store(fma(value, tap, sums.load({i, l.i}, l)), {i, l.i}, l);
          }
        });
      });
    });
    for (int64_t i = 0; i < width; ++i)
      k.forLanes(count, [&](Lanes l) {
        partials.store(sums.load({i, l.i}, l), {block, i, firstChannel + l.i},
                       l);
      });
    Val haloEnd =
        min(end + double(width - 1), k.index(blocks.tokens));
    k.forLoop(end, haloEnd, 1, [&](Val token) {
      Val available = token - seq.docStart(token);
      k.forLanes(count, [&](Lanes l) { gradient(token, available, l); });
    });

    k.forLoop(first, end, 1, [&](Val token) {
      // Tokens of the document from here on: those that read this one.
      Val readers = seq.docEnd(token) - token;
      k.forLanes(count, [&](Lanes l) {
        Val row = token - first;
        Val sum = taps.load({width - 1, l.i}, l) * dp.load({row, l.i}, l);
        for (int64_t later = 1; later < width; ++later) {
          Val inside = readers > double(later);
          Val value = dp.load(
              {select(inside, row + double(later), row), l.i}, l);
          sum = fma(taps.load({width - 1 - later, l.i}, l),
                    select(inside, value, value.like(0)), sum);
        }
        dx.store(sum, {token, firstChannel + l.i}, l);
      });
    });
  }
};

} // namespace

void registerConvKernels() {
  registerKernel(std::make_unique<CausalConv>());
  registerKernel(std::make_unique<CausalConvBwd>());
}

} // namespace qwen35::codegen::cpu
