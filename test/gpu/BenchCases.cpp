// Writes the cases whose time `qwen35_gpu_kernels --bench` takes: kernels at the
// sizes of published models, bf16, rows of 8192 tokens.
//
//   qwen35_bench_cases FILE.cases [TARGET]

#include "codegen/cuda/Target.h"
#include "codegen/emit/DescribeStage.h"
#include "runtime/schema/seq_table.h"
#include "test/unit/cuda/KernelRecorder.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace qwen35;
using namespace qwen35::codegen;
using namespace qwen35::codegen::cuda;

namespace {

constexpr int64_t kTokens = 8192, kMaxDocs = 17;
using Shape = std::vector<int64_t>;

/// An operand: floats in offset +- scale, or these integers.
struct Tensor {
  Kind kind;
  Shape shape;
  double scale = 1, offset = 0;
  std::vector<int32_t> values = {};
};

Tensor half(Shape shape, double scale = 1) {
  return {Kind::BF16, std::move(shape), scale};
}
Tensor single(Shape shape, double scale = 1, double offset = 0) {
  return {Kind::F32, std::move(shape), scale, offset};
}
Tensor number(double value) { return single({}, 0, value); }
Tensor integers(Shape shape, std::vector<int32_t> values) {
  return {Kind::I32, std::move(shape), 0, 0, std::move(values)};
}

/// The table of a row of equal documents.
Tensor documents(int64_t count) {
  SeqTable table{kTokens, kMaxDocs};
  Shape lengths(count, kTokens / count);
  std::vector<int32_t> words(table.words());
  fillSeqTable(table, lengths.data(), count, words.data());
  return integers({table.words()}, words);
}

/// Below `limit`, the same on every machine; those of a row of `distinct` differ.
Tensor someIds(Shape shape, int64_t limit, int64_t distinct = 1) {
  std::vector<int32_t> ids;
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  uint64_t state = 1;
  while (static_cast<int64_t>(ids.size()) < count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto id = static_cast<int32_t>((state >> 33) % limit);
    auto row = ids.begin() + ids.size() / distinct * distinct;
    if (std::find(row, ids.end(), id) == ids.end())
      ids.push_back(id);
  }
  return integers(std::move(shape), std::move(ids));
}

class Bench {
public:
  explicit Bench(const GpuTarget &target) : recorder(target) {}

  /// `bytes`: where a run does not touch all of its operands.
  void add(const std::string &op, const std::string &size,
           const std::string &attrs, const std::vector<Tensor> &inputs,
           const std::vector<Tensor> &outputs, double bytes = 0) {
    KernelSpec spec;
    spec.op = op;
    spec.attrs = cast<DictionaryAttr>(parseAttribute(attrs, &context));
    for (const Tensor &input : inputs)
      spec.inputs.push_back(typeOf(input));
    for (const Tensor &output : outputs)
      spec.outputs.push_back(typeOf(output));
    const KernelFamily *family = lookupKernel(op);
    FailureOr<KernelPlan> plan = failure();
    if (family)
      plan = family->plan(spec, recorder.gpuTarget(), [&] {
        return emitError(UnknownLoc::get(&context));
      });
    if (failed(plan)) {
      llvm::errs() << "error: no plan of " << op << " " << size << "\n";
      wrong = true;
      return;
    }
    test::KernelCase &added =
        recorder.add(op + " " + size, spec, {{"", *plan}});
    added.set_bytes(bytes);
    if (spec.flag("accumulate")) // As steps do it.
      added.mutable_variants(0)->set_in_place(true);
    for (size_t i = 0; i < inputs.size(); ++i) {
      test::KernelTensor &out = *added.add_inputs();
      describe(spec.inputs[i], out);
      for (int32_t value : inputs[i].values)
        out.mutable_data()->append(reinterpret_cast<const char *>(&value),
                                   sizeof value);
      out.mutable_random()->set_seed(i + 1);
      out.mutable_random()->set_scale(inputs[i].scale);
      out.mutable_random()->set_offset(inputs[i].offset);
    }
    for (MemRefType output : spec.outputs)
      describe(output, *added.add_outputs());
  }

  void addDeltaRule();
  void addAttention();
  void addRows();
  void addExperts();
  void addEnds();

  int write(const std::string &path) {
    if (llvm::Error error = recorder.write(path)) {
      llvm::errs() << "error: " << llvm::toString(std::move(error)) << "\n";
      return 1;
    }
    return wrong;
  }

private:
  MemRefType typeOf(const Tensor &tensor) {
    Builder b(&context);
    Type type = tensor.kind == Kind::F32    ? Type(b.getF32Type())
                : tensor.kind == Kind::BF16 ? Type(b.getBF16Type())
                : tensor.kind == Kind::F64  ? Type(b.getF64Type())
                                            : Type(b.getI32Type());
    return MemRefType::get(tensor.shape, type);
  }

  static void describe(MemRefType type, test::KernelTensor &out) {
    out.set_dtype(dtypeOf(type.getElementType()));
    for (int64_t size : type.getShape())
      out.add_shape(size);
    for (int64_t stride : stridesOf(type))
      out.add_strides(stride);
  }

  MLIRContext context;
  KernelRecorder recorder;
  bool wrong = false;
};

const std::string kRow = "tokens = 8192 : i64, max_docs = 17 : i64";

void Bench::addDeltaRule() {
  constexpr int64_t T = kTokens, chunks = T / 64 + kMaxDocs, K = 16, D = 128;
  const std::string scaled = "{" + kRow + ", scale = 0.0883883 : f64}";
  for (int64_t V : {16, 32, 48})
    for (int64_t count : {1, 8}) {
      std::string size = "heads 16/" + std::to_string(V) + ", " +
                         std::to_string(count) +
                         (count == 1 ? " document" : " documents");
      Tensor keys = half({T, K, D}, 0.1), values = half({T, V, D});
      Tensor g = single({T, V}, 0.05, -0.05), beta = single({T, V}, 0.5, 0.5);
      Tensor norms = single({T, K}, 0.01, 0.1);
      Tensor gamma = single({chunks, V, 64}, 0.5, -0.5);
      Tensor tinv = half({chunks, V, 64, 64}, 0.1);
      Tensor states = half({chunks, V, D, D}, 0.1);
      Tensor rows = half({chunks, V, 64, D}, 0.1), seq = documents(count);
      add("gdn_prep", size, "{" + kRow + ", eps = 1.0e-6 : f64}",
          {keys, keys, g, beta, seq},
          {keys, keys, norms, norms, gamma, tinv});
      add("gdn_scan", size, "{" + kRow + "}",
          {keys, values, beta, gamma, tinv, seq}, {states, rows});
      add("gdn_out", size, scaled, {keys, keys, gamma, states, rows, seq},
          {values});
      add("gdn_scan_bwd", size, scaled,
          {keys, keys, values, beta, gamma, tinv, seq}, {states, rows});
      add("gdn_local_bwd", size, scaled,
          {keys, keys, norms, norms, values, values, beta, gamma, states,
           states, rows, rows, seq},
          {keys, keys, values, g, g});
    }
}

void Bench::addAttention() {
  constexpr int64_t T = kTokens, D = 256;
  for (auto [Q, K] : {std::pair<int64_t, int64_t>{8, 2}, {16, 2}, {24, 4}})
    for (int64_t count : {1, 8}) {
      std::string size = "heads " + std::to_string(Q) + "/" +
                         std::to_string(K) + ", " + std::to_string(count) +
                         (count == 1 ? " document" : " documents");
      std::string attrs = "{" + kRow + ", scale = 0.0625 : f64}";
      Tensor q = half({T, Q, D}), k = half({T, K, D}), seq = documents(count);
      Tensor lse = single({T, Q}, 1, 8);
      add("attention", size, attrs, {q, k, k, seq}, {q, lse});
      add("attention_bwd", size, attrs, {q, q, k, k, q, lse, seq}, {q, k, k});
    }
}

void Bench::addRows() {
  constexpr int64_t T = kTokens, D = 4096, I = 12288, C = 8192;
  Tensor x = half({T, D}), w = single({D}), rstd = single({T}, 0.5, 1);
  const std::string norm = "{eps = 1.0e-6 : f64, offset = 1.0 : f64}";
  add("rms_norm", "4096", norm, {x, w}, {x, rstd});
  add("rms_norm_bwd", "4096", "{offset = 1.0 : f64}", {x, x, w, rstd}, {x, w});
  add("add_rms_norm", "4096", norm, {x, x, w}, {x, x, rstd});
  Tensor o = half({T, 32, 128}), head = single({128});
  Tensor headRstd = single({T, 32}, 0.5, 1);
  add("gated_rms_norm", "32 heads of 128", "{eps = 1.0e-6 : f64}", {o, o, head},
      {o, headRstd});
  add("gated_rms_norm_bwd", "32 heads of 128", "{}",
      {o, o, o, head, headRstd}, {o, o, head});
  Tensor up = half({T, I});
  add("swiglu", "12288", "{}", {up, up}, {up});
  add("swiglu_bwd", "12288", "{}", {up, up, up}, {up, up});
  Tensor q = half({T, 16, 256}), table = single({T, 32, 2});
  add("rope", "16 heads of 256", "{inverse = true}", {q, table}, {q});
  add("rms_norm_rope", "16 heads of 256",
      "{eps = 1.0e-6 : f64, offset = 1.0 : f64, inverse = false}",
      {q, single({256}), table}, {q, single({T, 16})});
  add("mul_sigmoid", "16 heads of 256", "{}", {q, q}, {q});
  add("mul_sigmoid_bwd", "16 heads of 256", "{}", {q, q, q}, {q, q});
  Tensor gate = half({T, 32}), small = single({32}), gates = single({T, 32});
  add("gdn_gates", "32 heads", "{}", {gate, gate, small, small},
      {gates, gates});
  add("gdn_gates_bwd", "32 heads", "{}",
      {gates, gates, gate, gate, small, small}, {gate, gate, small, small});
  Tensor mixed = half({T, C}), taps = single({C, 1, 4}), seq = documents(8);
  add("causal_conv", "8192 channels", "{" + kRow + "}", {mixed, taps, seq},
      {mixed});
  add("causal_conv_bwd", "8192 channels", "{" + kRow + "}",
      {mixed, mixed, taps, seq}, {mixed, taps});
}

void Bench::addExperts() {
  constexpr int64_t T = kTokens, E = 256, K = 8, D = 2048, I = 512;
  Tensor logits = single({T, E}, 4), weights = single({T, K}, 0.1, 0.12);
  Tensor idx = someIds({T, K}, E, K);
  add("router", "256 experts, 8 of them", "{top_k = 8 : i64}", {logits},
      {weights, idx, logits});
  add("router_bwd", "256 experts, 8 of them", "{experts = 256 : i64}",
      {weights, weights, idx}, {logits});
  Tensor x = half({T, D}), gateUp = half({E, 2 * I, D}, 0.05),
         down = half({E, D, I}, 0.05);
  add("moe_experts", "2048, 256 of 512", "{}", {x, weights, idx, gateUp, down},
      {x});
  add("moe_experts_bwd", "2048, 256 of 512", "{}",
      {x, x, weights, idx, gateUp, down},
      {x, weights, single({E, 2 * I, D}), single({E, D, I})});
  // As the last microbatch of a step has it.
  add("moe_experts_bwd", "2048, 256 of 512, squares", "{squares = true}",
      {x, x, weights, idx, gateUp, down},
      {x, weights, single({E, 2 * I, D}), single({E, D, I}),
       Tensor{Kind::F64, {}, 0, 0}});
}

void Bench::addEnds() {
  constexpr int64_t T = kTokens, V = 248320;
  Tensor labels = someIds({T}, V), number32 = number(1.0 / T);
  Tensor h = half({T, 1024}), head = half({V, 1024}, 0.05);
  add("lm_loss_grad", "1024, 248320 ids", "{}", {h, head, labels, number32},
      {number32, h, single({V, 1024})});
  Tensor x = half({T, 4096}), ids = someIds({T}, V);
  add("embed", "4096", "{}", {ids, half({V, 4096})}, {x},
      2.0 * T * 4096 * 2 + T * 4);
  add("embed_bwd", "4096", "{vocab = 248320 : i64}", {x, ids},
      {single({V, 4096})});
  // Rows of other ids stay as they are.
  add("embed_bwd", "4096, accumulated",
      "{vocab = 248320 : i64, accumulate = true}",
      {x, ids, single({V, 4096})}, {single({V, 4096})},
      T * 4096 * (2.0 + 4 + 4) + T * 4);
  Shape shape = {12288, 4096};
  Tensor p = single(shape), v = single(shape, 1e-3, 1.1e-3);
  add("adamw", "12288x4096",
      "{beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1}",
      {p, p, v, p, number(1e-3), number(0.7), number(0.1), number(0.05),
       number(1)},
      {p, p, v, half(shape)});
  Tensor sum{Kind::F64, {}, 0, 0};
  add("norm_sq", "12288x4096", "{}", {p, sum}, {sum});
}

} // namespace

int main(int argc, char **argv) {
  auto target = gpuTarget(argc > 2 ? argv[2] : "sm_90a");
  if (argc < 2 || argc > 3 || !target) {
    llvm::errs() << "usage: qwen35_bench_cases FILE.cases [TARGET]\n";
    return 2;
  }
  registerAllKernels();
  Bench bench(*target);
  bench.addDeltaRule();
  bench.addAttention();
  bench.addRows();
  bench.addExperts();
  bench.addEnds();
  return bench.write(argv[1]);
}
