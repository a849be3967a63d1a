// Speed of the CPU kernels on this machine: matrix products against the measured
// peak of a core, and how long compilation takes. Not a test; numbers vary with
// the load of the machine.

#include "codegen/cpu/Compile.h"
#include "codegen/cpu/KernelBuilder.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <dlfcn.h>
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

/// Runs tasks 0 .. grid - 1 on the threads until time is up; the least seconds
/// of a round: of processor time, the busiest thread's, or with --wall elapsed.
double measure(Function function, void *const *arguments, int64_t grid) {
  auto round = [&] {
    std::atomic<int64_t> next{0};
    std::vector<double> times(threadCount);
    auto work = [&](unsigned number) {
      double before = threadTime();
      for (int64_t task; (task = next++) < grid;)
        function(arguments, task);
      times[number] = threadTime() - before;
    };
    auto before = Clock::now();
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < threadCount; ++i)
      threads.emplace_back(work, i);
    work(0);
    for (std::thread &thread : threads)
      thread.join();
    return wall ? since(before) : *llvm::max_element(times);
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

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ParseCommandLineOptions(argc, argv, "Speed of the CPU kernels\n");
  threadCount = workers;
  wall = wallFlag;
  seconds = secondsFlag;
  std::vector<std::string> list(shapes.begin(), shapes.end());
  if (list.empty())
    list = {"256x256x256:tb",   "512x512x512",      "512x512x512:ta",
            "512x512x512:tb",   "1024x1024x1024",   "1024x1024x1024:ta",
            "1024x1024x1024:tb", "521x523x509:tb",  "512x3584x1024:tb",
            "512x1024x3584",    "3584x1024x512:ta", "512x16x1024:tb",
            "512x1x1024:tb",    "1x1024x512:ta"};

  registerAllKernels();
  registerKernel(std::make_unique<Peak>());
  DialectRegistry registry;
  registerCpuDialects(registry);
  MLIRContext context(registry);
  Builder b(&context);
  Type f32 = b.getF32Type();

  std::vector<NamedKernel> kernels;
  NamedKernel peak{"peak", {"bench_peak", b.getDictionaryAttr({}), {}, {}}};
  peak.spec.inputs = {MemRefType::get({64}, f32)};
  peak.spec.outputs = {MemRefType::get({1}, f32)};
  kernels.push_back(peak);
  std::vector<Shape> parsed;
  for (const std::string &text : list) {
    Shape s;
    if (!parseShape(text, s)) {
      llvm::errs() << "not a product: " << text << "\n";
      return 1;
    }
    parsed.push_back(s);
    NamedKernel kernel{llvm::formatv("product_{0}", parsed.size()), {}};
    kernel.spec.op = "matmul";
    kernel.spec.attrs = b.getDictionaryAttr(
        {b.getNamedAttr("transpose_a", b.getBoolAttr(s.transposeA)),
         b.getNamedAttr("transpose_b", b.getBoolAttr(s.transposeB))});
    auto type = [&](bool transposed, int64_t rows, int64_t columns) {
      return transposed ? MemRefType::get({columns, rows}, f32)
                        : MemRefType::get({rows, columns}, f32);
    };
    kernel.spec.inputs = {type(s.transposeA, s.M, s.K),
                          type(s.transposeB, s.K, s.N)};
    kernel.spec.outputs = {MemRefType::get({s.M, s.N}, f32)};
    kernels.push_back(kernel);
  }

  auto emitError = [&] { return mlir::emitError(UnknownLoc::get(&context)); };
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
  unsigned wanted = threadCount;
  threadCount = 1;
  double peakSeconds = measure(find("peak"), peakArguments, 1);
  threadCount = wanted;
  bool wide = target.cpu == "x86-64-v4" ||
              (target.cpu != "x86-64-v3" && __builtin_cpu_supports("avx512f"));
  double peakRate = 2.0 * Peak::kRounds * Peak::kChains * (wide ? 16 : 8) /
                    peakSeconds * 1e-9;
  llvm::outs() << llvm::formatv("peak of a core: {0:f1} GFLOP/s\n", peakRate);

  for (auto [i, s] : llvm::enumerate(parsed)) {
    std::vector<float> a(s.M * s.K, 0.5f), c(s.M * s.N), x(s.K * s.N, 0.25f);
    void *arguments[] = {a.data(), x.data(), c.data(), nullptr};
    const KernelSpec &spec = kernels[i + 1].spec;
    int64_t grid = lookupKernel("matmul")->plan(spec, emitError)->grids[0];
    double time = measure(find(kernels[i + 1].symbol), arguments, grid);
    double rate = 2.0 * s.M * s.N * s.K / time * 1e-9;
    llvm::outs() << llvm::formatv(
        "{0,-20} {1,3} tasks {2,10:f1} us {3,7:f1} GFLOP/s {4,4:f0} % of {5} "
        "core(s)\n",
        list[i], grid, time * 1e6, rate, 100 * rate / (peakRate * threadCount),
        threadCount);
  }
  return 0;
}
