// causal_conv: a depthwise causal convolution inside each document, then SiLU;
// cp_causal_conv: of a rank's stripes of a row.
// MODEL.md 4.3, gradients 13.10.
//
// A task owns 64 tokens of up to 256 channels; vectors run along the channels,
// so the taps of neighbouring tokens are rows that are still in the cache.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/KernelBuilder.h"

#include "runtime/schema/stripe_table.h"

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

/// What the taps of one token read.
struct Taps {
  View x;
  Val token;
  /// Tokens of the document before `token`; null: all that are asked for, and
  /// all are on this rank.
  Val available;
  // For a stripe of a row, null otherwise: the tokens of the stripe before
  // `token`, and the tail of the stripe before it [taps - 1, channels].
  Val inStripe;
  View tail;

  /// x[token - distance], or 0 where that lies before the document.
  Val row(int64_t distance, Val channel, Lanes l) const {
    if (distance == 0)
      return x.load({token, channel}, l);
    Val row = token - double(distance);
    if (!available)
      return x.load({row, channel}, l);
    Val inside = available >= double(distance);
    if (!inStripe) {
      Val value = x.load({select(inside, row, token), channel}, l);
      return select(inside, value, value.like(0));
    }
    Val local = inStripe >= double(distance);
    Val value = x.load({select(local, row, token), channel}, l);
    Val before = inStripe + double(tail.size(0) - distance);
    Val other = tail.load({select(local, 0.0, before), channel}, l);
    return select(inside, select(local, value, other), value.like(0));
  }
};

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

/// The operands of a convolution, of whole documents or of a stripe's part.
struct Source {
  KernelBuilder &k;
  View x, tails; // tails: null for whole documents
  SeqView seq;
  StripesView stripes;
  int64_t width; // taps

  /// The operands from `first` on: x, tails if striped, weight, seq, stripes.
  Source(KernelBuilder &k, const KernelSpec &spec, unsigned first, bool striped)
      : k(k), x(k.input(first)), tails(striped ? k.input(first + 1) : View()),
        seq(k.seq(k.input(first + (striped ? 3 : 2)), spec)),
        stripes(striped ? StripesView(k.input(first + 4), x.size(0))
                        : StripesView()),
        width(k.input(first + (striped ? 2 : 1)).size(2)) {}

  bool striped() const { return tails.get() != nullptr; }

  Val available(Val token) const {
    Val begin = seq.docStart(token);
    return striped() ? stripes.position(token, begin) : token - begin;
  }

  /// With selections where taps may lie outside.
  Taps taps(Val token) const {
    Taps result{x, token, available(token), Val(), View()};
    if (striped()) {
      result.inStripe = token % double(stripes.rows());
      Val stripe = stripes.index(token / double(stripes.rows()));
      // Nothing comes before stripe 0: `available` keeps its tail unread.
      Val before = select(stripe == 0.0, 0.0, stripe - 1.0);
      result.tail = tails.at({stripes.slot(before)});
    }
    return result;
  }

  /// body(taps) under a test whether all taps of `token` lie in its document
  /// and stripe, so that most tokens need no selection.
  void forToken(Val token, llvm::function_ref<void(const Taps &)> body) const {
    Val known = available(token);
    if (striped())
      known = min(known, token % double(stripes.rows()));
    k.ifThenElse(
        known >= double(width - 1),
        [&] { body(Taps{x, token, Val(), Val(), View()}); },
        [&] { body(taps(token)); });
  }
};

/// p[token] over the lanes.
Val convolve(const Taps &from, View taps, Val firstChannel, Lanes l) {
  int64_t width = taps.size(0);
  Val sum;
  for (int64_t i = 0; i < width; ++i) {
    Val value = from.row(width - 1 - i, firstChannel + l.i, l);
    Val weight = taps.load({i, l.i}, l);
    sum = sum ? fma(weight, value, sum) : weight * value;
  }
  return sum;
}

/// x, tails if striped, weight, seq, stripes if striped, from `first` on.
LogicalResult checkConv(const KernelSpec &spec, unsigned first, bool striped,
                        EmitError emitError) {
  if (failed(requireAttrs(spec, {"tokens", "max_docs"}, emitError)))
    return failure();
  MemRefType x = spec.inputs[first];
  MemRefType weight = spec.inputs[first + (striped ? 2 : 1)];
  MemRefType seq = spec.inputs[first + (striped ? 3 : 2)];
  SeqTable table{spec.integer("tokens"), spec.integer("max_docs")};
  Type f32 = Float32Type::get(x.getContext());
  Type i32 = IntegerType::get(x.getContext(), 32);
  if (failed(requireType(spec, x, "x", {table.tokens, kAny}, f32, emitError)) ||
      failed(requireType(spec, weight, "weight", {x.getDimSize(1), 1, kAny},
                         f32, emitError)) ||
      failed(requireType(spec, seq, "seq", {table.words()}, i32, emitError)))
    return failure();
  if (!striped)
    return success();
  FailureOr<int64_t> ranks =
      requireStripes(spec, spec.inputs[first + 4], table.tokens, emitError);
  int64_t halo = weight.getDimSize(2) - 1;
  if (failed(ranks))
    return failure();
  if (halo < 1 || halo > table.tokens / StripeTable::kLocal) {
    emitError() << spec.op << ": " << halo + 1 << " taps on stripes of "
                << table.tokens / StripeTable::kLocal << " tokens";
    return failure();
  }
  return requireType(spec, spec.inputs[first + 1], "tails",
                     {StripeTable::kLocal * *ranks, halo, x.getDimSize(1)}, f32,
                     emitError);
}

class CausalConv : public KernelFamily {
public:
  explicit CausalConv(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_causal_conv" : "causal_conv";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 5 : 3, 1, emitError)) ||
        failed(checkConv(spec, 0, striped, emitError)) ||
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
    View weight = k.input(striped ? 2 : 1), y = k.output(0);
    Source source(k, spec, 0, striped);
    Blocks blocks(source.x.type());
    Val firstToken = k.task() / double(blocks.channelBlocks()) *
                     double(kTokenBlock);
    Val firstChannel = k.task() % double(blocks.channelBlocks()) *
                       double(blocks.channelBlock());
    Ix count = blocks.channelCount(k, firstChannel);
    View taps = transposedTaps(k, weight, firstChannel, count,
                               blocks.channelBlock());
    k.forLoop(firstToken, blocks.tokenEnd(k, firstToken), 1, [&](Val token) {
      source.forToken(token, [&](const Taps &from) {
        k.forLanes(count, [&](Lanes l) {
          Val p = convolve(from, taps, firstChannel, l);
          y.store(silu(p), {token, firstChannel + l.i}, l);
        });
      });
    });
  }

private:
  bool striped;
};

/// Stage 0: dx, and dw of each block of tokens to the workspace. Stage 1: dw, and
/// of stripes dhalo.
class CausalConvBwd : public KernelFamily {
public:
  explicit CausalConvBwd(bool striped) : striped(striped) {}
  StringRef op() const override {
    return striped ? "cp_causal_conv_bwd" : "causal_conv_bwd";
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, striped ? 6 : 4, striped ? 3 : 2,
                             emitError)) ||
        failed(checkConv(spec, 1, striped, emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "dy", spec.inputs[1], "x",
                                emitError)) ||
        failed(requireSameShape(spec, spec.outputs[0], "dx", spec.inputs[1],
                                "x", emitError)) ||
        failed(requireSameShape(spec, spec.outputs.back(), "dweight",
                                spec.inputs[weightInput()], "weight",
                                emitError)))
      return failure();
    MemRefType x = spec.inputs[1];
    if (striped &&
        failed(requireType(spec, spec.outputs[1], "dhalo",
                           {StripeTable::kLocal,
                            spec.inputs[2].getDimSize(1), x.getDimSize(1)},
                           x.getElementType(), emitError)))
      return failure();
    Blocks blocks(spec.inputs[1]);
    KernelPlan plan;
    plan.grids = {blocks.tokenBlocks() * blocks.channelBlocks(),
                  blocks.channelBlocks()};
    plan.workspaceBytes = blocks.tokenBlocks() *
                          spec.inputs[weightInput()].getNumElements() *
                          static_cast<int64_t>(sizeof(float));
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned stage,
            KernelBuilder &k) const override {
    Blocks blocks(spec.inputs[1]);
    int64_t width = spec.inputs[weightInput()].getDimSize(2);
    View partials = k.workspace(
        0, {blocks.tokenBlocks(), width, blocks.channels}, k.f32());
    Val firstChannel = k.task() % double(blocks.channelBlocks()) *
                       double(blocks.channelBlock());
    Ix count = blocks.channelCount(k, firstChannel);
    if (stage == 0)
      return emitBlock(spec, k, blocks, partials, firstChannel, count);

    View dw = k.output(striped ? 2 : 1);
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
    if (striped)
      emitHalo(spec, k, blocks, firstChannel, count);
  }

private:
  unsigned weightInput() const { return striped ? 3 : 2; }

  /// What the rows before each stripe get from its first tokens.
  void emitHalo(const KernelSpec &spec, KernelBuilder &k, const Blocks &blocks,
                Val firstChannel, Ix count) const {
    View dy = k.input(0), dhalo = k.output(1);
    Source source(k, spec, 1, striped);
    int64_t halo = source.width - 1, columns = blocks.channelBlock();
    View taps = transposedTaps(k, k.input(weightInput()), firstChannel, count,
                               columns);
    View dp = k.scratch({halo, columns}, k.f32());
    k.forLoop(0, StripeTable::kLocal, 1, [&](Val j) {
      Val begin = j * double(source.stripes.rows());
      k.forLoop(0, halo, 1, [&](Val r) {
        Taps from = source.taps(begin + r);
        k.forLanes(count, [&](Lanes l) {
          dp.store(gradient(dy, from, taps, firstChannel, l), {r, l.i}, l);
        });
      });
      Val offset = source.stripes.offset(source.stripes.index(j));
      Val readers = source.seq.docEnd(begin) - begin;
      for (int64_t h = 0; h < halo; ++h) {
        Val known = offset >= double(halo - h);
        k.forLanes(count, [&](Lanes l) {
          Val sum = k.zero(k.f32(), l.width);
          for (int64_t r = 0; r <= h; ++r) {
            Val value = dp.load({r, l.i}, l);
            sum = fma(taps.load({h - r, l.i}, l),
                      select(known & (readers > double(r)), value,
                             value.like(0)),
                      sum);
          }
          dhalo.store(sum, {j, h, firstChannel + l.i}, l);
        });
      }
    });
  }

  /// dp of a token.
  static Val gradient(View dy, const Taps &from, View taps, Val firstChannel,
                      Lanes l) {
    Val p = convolve(from, taps, firstChannel, l);
    Val s = sigmoid(p);
    return dy.load({from.token, firstChannel + l.i}, l) * s *
           (1.0 + p * (1.0 - s));
  }

  void emitBlock(const KernelSpec &spec, KernelBuilder &k, const Blocks &blocks,
                 View partials, Val firstChannel, Ix count) const {
    View dy = k.input(0), dx = k.output(0);
    Source source(k, spec, 1, striped);
    int64_t width = source.width, columns = blocks.channelBlock();
    Val block = k.task() / double(blocks.channelBlocks());
    Val first = block * double(kTokenBlock);
    Val end = blocks.tokenEnd(k, first);
    View taps = transposedTaps(k, k.input(weightInput()), firstChannel, count,
                               columns);

    // dp of the tokens of the block and of the width - 1 that read them.
    View dp = k.scratch({kTokenBlock + width - 1, columns}, k.f32());
    auto keep = [&](const Taps &from, Lanes l) {
      Val value = gradient(dy, from, taps, firstChannel, l);
      dp.store(value, {from.token - first, l.i}, l);
      return value;
    };

    View sums = k.scratch({width, columns}, k.f32());
    for (int64_t i = 0; i < width; ++i)
      k.forLanes(count, [&](Lanes l) {
        sums.store(k.zero(k.f32(), l.width), {i, l.i}, l);
      });
    k.forLoop(first, end, 1, [&](Val token) {
      source.forToken(token, [&](const Taps &from) {
        k.forLanes(count, [&](Lanes l) {
          Val value = keep(from, l);
          for (int64_t i = 0; i < width; ++i) {
            Val tap = from.row(width - 1 - i, firstChannel + l.i, l);
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
      Taps from = source.taps(token);
      k.forLanes(count, [&](Lanes l) { keep(from, l); });
    });

    k.forLoop(first, end, 1, [&](Val token) {
      // Tokens of the document from here on: those that read this one.
      Val readers = source.seq.docEnd(token) - token;
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

  bool striped;
};

} // namespace

void registerConvKernels() {
  for (bool striped : {false, true}) {
    registerKernel(std::make_unique<CausalConv>(striped));
    registerKernel(std::make_unique<CausalConvBwd>(striped));
  }
}

} // namespace qwen35::codegen::cpu
