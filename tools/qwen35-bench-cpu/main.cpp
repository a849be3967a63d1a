// Speed of the CPU kernels on this machine: matrix products against the
// measured peak of a core, row kernels in bytes, and how long compilation
// takes. Not a test; numbers vary with the load of the machine.

#include "codegen/cpu/Compile.h"
#include "codegen/cpu/KernelBuilder.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/schema/seq_table.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <dlfcn.h>
#include <optional>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace mlir;
using namespace qwen35::codegen::cpu;
namespace cl = llvm::cl;

namespace {

cl::opt<std::string> cpuName("cpu", cl::desc("Target cpu (default native)"),
                             cl::init("native"));
cl::opt<unsigned> workers("workers", cl::desc("Threads (default 1)"),
                          cl::init(1));
cl::list<std::string> shapes(
    "shape", cl::CommaSeparated,
    cl::desc("Products as MxNxK or, with a transposed operand, MxNxK:ta / :tb "
             "(default: a list of squares and layer shapes)"));
cl::list<std::string>
    kernelList("kernel",
               cl::desc("Another kernel: op | attributes | function type of "
                        "memrefs"));
cl::opt<bool> wallFlag("wall", cl::desc("Elapsed instead of processor time"));
cl::opt<double> secondsFlag("seconds", cl::desc("Time per measurement"),
                            cl::init(0.3));

// Copies, since lld resets the options of the process.
unsigned threadCount;
bool wall;
double seconds;

using Function = void (*)(void *const *, int64_t);
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Processor time of this thread: what a busy machine does not disturb.
double threadTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
}

/// Independent multiply-adds in registers: the peak of a core.
class Peak : public KernelFamily {
public:
  static constexpr int64_t kRounds = 100000, kChains = 12;
  StringRef op() const override { return "bench_peak"; }
  FailureOr<KernelPlan> plan(const KernelSpec &, EmitError) const override {
    KernelPlan plan;
    plan.grids = {1};
    return plan;
  }
  void emit(const KernelSpec &, unsigned, KernelBuilder &k) const override {
    Val factor = k.input(0).loadVector({0}, k.width());
    SmallVector<Val> sums(kChains);
    for (int64_t i = 0; i < kChains; ++i)
      sums[i] = k.input(0).loadVector({i}, k.width());
    sums = k.forLoop(0, kRounds, 1, sums, [&](Val, ArrayRef<Val> carried) {
      SmallVector<Val> next(carried);
      for (Val &sum : next)
        sum = fma(sum, factor, factor);
      return next;
    });
    Val total = sums[0];
    for (int64_t i = 1; i < kChains; ++i)
      total = total + sums[i];
    k.output(0).store(reduceAdd(total), {0});
  }
};

struct Stage {
  Function function;
  int64_t grid;
};

/// Runs the stages of a kernel until time is up; the least seconds of a run: of
/// processor time, the busiest thread's, or with --wall elapsed.
double measure(const std::vector<Stage> &stages, void *const *arguments) {
  auto round = [&] {
    double total = 0;
    for (const Stage &stage : stages) {
      std::atomic<int64_t> next{0};
      std::vector<double> times(threadCount);
      auto work = [&](unsigned number) {
        double before = threadTime();
        for (int64_t task; (task = next++) < stage.grid;)
          stage.function(arguments, task);
        times[number] = threadTime() - before;
      };
      auto before = Clock::now();
      std::vector<std::thread> threads;
      for (unsigned i = 1; i < threadCount; ++i)
        threads.emplace_back(work, i);
      work(0);
      for (std::thread &thread : threads)
        thread.join();
      total += wall ? since(before) : *llvm::max_element(times);
    }
    return total;
  };
  round();
  double best = 1e30;
  auto start = Clock::now();
  int rounds = 0;
  do {
    best = std::min(best, round());
  } while (++rounds < 3 || since(start) < seconds);
  return best;
}

struct Shape {
  int64_t M, N, K;
  bool transposeA = false, transposeB = false;
};

bool parseShape(StringRef text, Shape &shape) {
  auto [sizes, flag] = text.split(':');
  SmallVector<StringRef> parts;
  sizes.split(parts, 'x');
  if (parts.size() != 3 || parts[0].getAsInteger(10, shape.M) ||
      parts[1].getAsInteger(10, shape.N) || parts[2].getAsInteger(10, shape.K))
    return false;
  shape.transposeA = flag == "ta";
  shape.transposeB = flag == "tb";
  return flag.empty() || shape.transposeA || shape.transposeB;
}

/// One kernel to measure.
struct Case {
  std::string label;
  NamedKernel kernel;
  double flops = 0; ///< 0: report bytes instead.
};

std::optional<Case> productCase(Builder &b, StringRef text) {
  Shape s;
  if (!parseShape(text, s))
    return std::nullopt;
  auto type = [&](bool transposed, int64_t rows, int64_t columns) {
    return transposed ? MemRefType::get({columns, rows}, b.getF32Type())
                      : MemRefType::get({rows, columns}, b.getF32Type());
  };
  Case one{text.str(), {}, 2.0 * s.M * s.N * s.K};
  one.kernel.spec.op = "matmul";
  one.kernel.spec.attrs = b.getDictionaryAttr(
      {b.getNamedAttr("transpose_a", b.getBoolAttr(s.transposeA)),
       b.getNamedAttr("transpose_b", b.getBoolAttr(s.transposeB))});
  one.kernel.spec.inputs = {type(s.transposeA, s.M, s.K),
                            type(s.transposeB, s.K, s.N)};
  one.kernel.spec.outputs = {type(false, s.M, s.N)};
  return one;
}

/// Multiply-adds per token and value head of the chunked delta rule with dk = dv
/// = 128, chunks of 64 and G value heads per key head; 0 for other ops. Products
/// only, as KERNELS.md 1.1 and 2.2 count them; a Gram matrix serves G heads.
double deltaProducts(StringRef op, double G) {
  double gram = 8192 / G;
  return llvm::StringSwitch<double>(op)
      .Case("gdn_prep", gram + 1280)
      .Case("gdn_scan", 40960)
      .Case("gdn_out", gram + 24576)
      .Case("gdn_scan_bwd", gram + 65536)
      .Case("gdn_local_bwd", 2 * gram + 90112)
      .Default(0);
}

/// "op | attributes | function type of memrefs"
std::optional<Case> kernelCase(Builder &b, StringRef text) {
  SmallVector<StringRef> parts;
  text.split(parts, '|');
  if (parts.size() != 3)
    return std::nullopt;
  auto attrs = dyn_cast_or_null<DictionaryAttr>(
      parseAttribute(parts[1].trim(), b.getContext()));
  auto type = dyn_cast_or_null<FunctionType>(
      parseType(parts[2].trim(), b.getContext()));
  if (!attrs || !type)
    return std::nullopt;
  Case one{(parts[0].trim() + " " + parts[2].trim()).str(), {}, 0};
  one.kernel.spec.op = parts[0].trim().str();
  one.kernel.spec.attrs = attrs;
  for (auto [from, to] :
       {std::pair(type.getInputs(), &one.kernel.spec.inputs),
        std::pair(type.getResults(), &one.kernel.spec.outputs)})
    for (Type each : from) {
      auto memref = dyn_cast<MemRefType>(each);
      if (!memref)
        return std::nullopt;
      to->push_back(memref);
    }
  if (auto tokens = attrs.getAs<IntegerAttr>("tokens")) {
    constexpr int64_t kKeyHeads = 2, kValueHeads = 4; // of kDeltaKernels
    one.flops = 2.0 * tokens.getInt() * kValueHeads *
                deltaProducts(one.kernel.spec.op, kValueHeads / kKeyHeads);
  }
  return one;
}

/// Memory of an argument: floats of 0.5, integers of 0, or the document table of
/// one document if the op has one.
struct Buffer {
  Buffer(MemRefType type, DictionaryAttr attrs) {
    auto [strides, offset] = type.getStridesAndOffset();
    (void)offset;
    int64_t elements = 1;
    for (auto [size, stride] : llvm::zip(type.getShape(), strides))
      elements += (size - 1) * stride;
    values.assign(elements * type.getElementTypeBitWidth() / 32,
                  type.getElementType().isF32() ? 0.5f : 0.0f);
    bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
    auto tokens = attrs.getAs<IntegerAttr>("tokens");
    auto maxDocs = attrs.getAs<IntegerAttr>("max_docs");
    if (!tokens || !maxDocs || !type.getElementType().isInteger(32))
      return;
    qwen35::SeqTable table{tokens.getInt(), maxDocs.getInt()};
    if (table.words() == elements)
      (void)qwen35::fillSeqTable(table, &table.tokens, 1,
                         reinterpret_cast<int32_t *>(values.data()));
  }
  std::vector<float> values;
  int64_t bytes;
};

constexpr const char *kProducts[] = {
    "256x256x256:tb",    "512x512x512",      "512x512x512:ta",
    "512x512x512:tb",    "1024x1024x1024",   "1024x1024x1024:ta",
    "1024x1024x1024:tb", "521x523x509:tb",   "512x3584x1024:tb",
    "512x1024x3584",     "3584x1024x512:ta", "512x16x1024:tb",
    "512x1x1024:tb",     "1x1024x512:ta"};

// The chunked delta rule: 2048 tokens, 2 key heads, 4 value heads of 128.
#define QWEN35_DELTA " | {tokens = 2048, max_docs = 1"
#define QWEN35_K "memref<2048x2x128xf32>"
#define QWEN35_V "memref<2048x4x128xf32>"
#define QWEN35_ROW "memref<2048x4xf32>"
#define QWEN35_GAMMA "memref<33x4x64xf32>"
#define QWEN35_TILE "memref<33x4x64x64xf32>"
#define QWEN35_STATE "memref<33x4x128x128xf32>"
#define QWEN35_CHUNK "memref<33x4x64x128xf32>"
#define QWEN35_SEQ "memref<4207xi32>"
constexpr const char *kDeltaKernels[] = {
    "gdn_prep" QWEN35_DELTA ", eps = 1.0e-6} | (" QWEN35_K ", " QWEN35_K
    ", " QWEN35_ROW ", " QWEN35_ROW ", " QWEN35_SEQ ") -> (" QWEN35_K
    ", " QWEN35_K ", memref<2048x2xf32>, memref<2048x2xf32>, " QWEN35_GAMMA
    ", " QWEN35_TILE ")",
    "gdn_scan" QWEN35_DELTA "} | (" QWEN35_K ", " QWEN35_V ", " QWEN35_ROW
    ", " QWEN35_GAMMA ", " QWEN35_TILE ", " QWEN35_SEQ ") -> (" QWEN35_STATE
    ", " QWEN35_CHUNK ")",
    "gdn_out" QWEN35_DELTA ", scale = 0.088} | (" QWEN35_K ", " QWEN35_K
    ", " QWEN35_GAMMA ", " QWEN35_STATE ", " QWEN35_CHUNK ", " QWEN35_SEQ
    ") -> (" QWEN35_V ")",
    "gdn_scan_bwd" QWEN35_DELTA ", scale = 0.088} | (" QWEN35_K ", " QWEN35_K
    ", " QWEN35_V ", " QWEN35_ROW ", " QWEN35_GAMMA ", " QWEN35_TILE
    ", " QWEN35_SEQ ") -> (" QWEN35_STATE ", " QWEN35_CHUNK ")",
    "gdn_local_bwd" QWEN35_DELTA ", scale = 0.088} | (" QWEN35_K ", " QWEN35_K
    ", memref<2048x2xf32>, memref<2048x2xf32>, " QWEN35_V ", " QWEN35_V
    ", " QWEN35_ROW ", " QWEN35_GAMMA ", " QWEN35_STATE ", " QWEN35_STATE
    ", " QWEN35_CHUNK ", " QWEN35_CHUNK ", " QWEN35_SEQ ") -> (" QWEN35_K
    ", " QWEN35_K ", " QWEN35_V ", " QWEN35_ROW ", " QWEN35_ROW ")"};

// The row kernels of a layer of 1024, and the optimizer on a projection.
constexpr const char *kRowKernels[] = {
    "rms_norm | {eps = 1.0e-6, offset = 1.0} | (memref<2048x1024xf32>, "
    "memref<1024xf32>) -> (memref<2048x1024xf32>, memref<2048xf32>)",
    "rms_norm_bwd | {offset = 1.0} | (memref<2048x1024xf32>, "
    "memref<2048x1024xf32>, memref<1024xf32>, memref<2048xf32>) -> "
    "(memref<2048x1024xf32>, memref<1024xf32>)",
    "gated_rms_norm | {eps = 1.0e-6} | (memref<512x16x128xf32>, "
    "memref<512x16x128xf32>, memref<128xf32>) -> (memref<512x16x128xf32>, "
    "memref<512x16xf32>)",
    "swiglu | {} | (memref<512x3584xf32>, memref<512x3584xf32>) -> "
    "memref<512x3584xf32>",
    "swiglu_bwd | {} | (memref<512x3584xf32>, memref<512x3584xf32>, "
    "memref<512x3584xf32>) -> (memref<512x3584xf32>, memref<512x3584xf32>)",
    "add | {} | (memref<2048x1024xf32>, memref<2048x1024xf32>) -> "
    "memref<2048x1024xf32>",
    "norm_sq | {} | (memref<3584x1024xf32>, memref<f64>) -> memref<f64>",
    "adamw | {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1} | "
    "(memref<3584x1024xf32>, memref<3584x1024xf32>, memref<3584x1024xf32>, "
    "memref<3584x1024xf32>, memref<f32>, memref<f32>, memref<f32>, "
    "memref<f32>, memref<f32>) -> (memref<3584x1024xf32>, "
    "memref<3584x1024xf32>, memref<3584x1024xf32>)",
    "rope | {} | (memref<2048x8x256xf32, strided<[4096, 512, 1]>>, "
    "memref<2048x32x2xf32>) -> memref<2048x8x256xf32>",
    "gdn_gates | {} | (memref<2048x16xf32>, memref<2048x16xf32>, "
    "memref<16xf32>, memref<16xf32>) -> (memref<2048x16xf32>, "
    "memref<2048x16xf32>)"};

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "Speed of the CPU kernels\n");
  threadCount = workers;
  wall = wallFlag;
  seconds = secondsFlag;
  std::vector<std::string> products(shapes.begin(), shapes.end());
  std::vector<std::string> others(kernelList.begin(), kernelList.end());
  if (products.empty() && others.empty()) {
    products.assign(std::begin(kProducts), std::end(kProducts));
    others.assign(std::begin(kDeltaKernels), std::end(kDeltaKernels));
    others.insert(others.end(), std::begin(kRowKernels), std::end(kRowKernels));
  }

  registerAllKernels();
  registerKernel(std::make_unique<Peak>());
  DialectRegistry registry;
  registerCpuDialects(registry);
  MLIRContext context(registry);
  Builder b(&context);
  auto emitError = [&] { return mlir::emitError(UnknownLoc::get(&context)); };

  std::vector<Case> cases;
  NamedKernel peak{"peak", {"bench_peak", b.getDictionaryAttr({}), {}, {}}};
  peak.spec.inputs = {MemRefType::get({64}, b.getF32Type())};
  peak.spec.outputs = {MemRefType::get({1}, b.getF32Type())};
  for (auto [texts, parse] :
       {std::pair(&products, &productCase), std::pair(&others, &kernelCase)})
    for (const std::string &text : *texts) {
      std::optional<Case> one = parse(b, text);
      if (!one) {
        llvm::errs() << "cannot read " << text << "\n";
        return 1;
      }
      one->kernel.symbol = llvm::formatv("kernel_{0}", cases.size());
      cases.push_back(std::move(*one));
    }

  std::vector<NamedKernel> kernels = {peak};
  for (const Case &one : cases)
    kernels.push_back(one.kernel);
  CpuTarget target;
  target.cpu = cpuName;
  auto start = Clock::now();
  FailureOr<std::string> bytes =
      compileKernels(&context, kernels, target, emitError);
  if (failed(bytes))
    return 1;
  llvm::outs() << llvm::formatv("compiled {0} kernels for {1} in {2:f2} s, {3} "
                                "KB\n",
                                kernels.size(), target.cpu, since(start),
                                bytes->size() / 1024);

  int file = memfd_create("kernels", 0);
  if (file < 0 || write(file, bytes->data(), bytes->size()) !=
                      static_cast<ssize_t>(bytes->size())) {
    llvm::errs() << "cannot write the object to memory\n";
    return 1;
  }
  void *handle = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(),
                        RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    llvm::errs() << dlerror() << "\n";
    return 1;
  }
  auto find = [&](const std::string &symbol) {
    return reinterpret_cast<Function>(dlsym(handle, symbol.c_str()));
  };

  std::vector<float> tiny(64, 0.5f), one(1);
  void *peakArguments[] = {tiny.data(), one.data(), nullptr};
  unsigned wantedThreads = threadCount;
  threadCount = 1;
  double peakSeconds = measure({{find("peak"), 1}}, peakArguments);
  bool wide = target.cpu == "x86-64-v4" ||
              (target.cpu != "x86-64-v3" && __builtin_cpu_supports("avx512f"));
  double peakRate = 2.0 * Peak::kRounds * Peak::kChains * (wide ? 16 : 8) /
                    peakSeconds * 1e-9;
  llvm::outs() << llvm::formatv("peak of a core: {0:f1} GFLOP/s\n", peakRate);
  threadCount = wantedThreads;

  for (const Case &each : cases) {
    const KernelSpec &spec = each.kernel.spec;
    FailureOr<KernelPlan> plan = lookupKernel(spec.op)->plan(spec, emitError);
    std::vector<Buffer> buffers;
    for (MemRefType type : spec.inputs)
      buffers.emplace_back(type, spec.attrs);
    for (MemRefType type : spec.outputs)
      buffers.emplace_back(type, spec.attrs);
    std::vector<float> workspace(plan->workspaceBytes / 4 + 1);
    std::vector<void *> arguments;
    int64_t moved = 0;
    for (Buffer &buffer : buffers) {
      arguments.push_back(buffer.values.data());
      moved += buffer.bytes;
    }
    arguments.push_back(workspace.data());
    std::vector<Stage> stages;
    for (auto [stage, grid] : llvm::enumerate(plan->grids))
      stages.push_back({find(stageSymbol(each.kernel.symbol, stage)), grid});
    double time = measure(stages, arguments.data());
    std::string label =
        each.label.size() > 40 ? each.label.substr(0, 37) + "..." : each.label;
    llvm::outs() << llvm::formatv("{0,-40} {1,3} tasks {2,10:f1} us ", label,
                                  plan->grids[0], time * 1e6);
    if (each.flops > 0) {
      double rate = each.flops / time * 1e-9;
      llvm::outs() << llvm::formatv(
          "{0,7:f1} GFLOP/s {1,4:f0} % of {2} core(s)\n", rate,
          100 * rate / (peakRate * threadCount), threadCount);
    } else {
      llvm::outs() << llvm::formatv("{0,7:f1} GB/s\n",
                                    double(moved) / time * 1e-9);
    }
  }
  return 0;
}
