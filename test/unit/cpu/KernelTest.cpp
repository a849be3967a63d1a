#include "test/unit/cpu/KernelTest.h"

#include "runtime/schema/seq_table.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"

#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <numeric>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

constexpr unsigned char kCanary = 0xC5;

int64_t bytesOf(Kind kind) { return kind == Kind::F64 ? 8 : 4; }

} // namespace

//===----------------------------------------------------------------------===//
// Array
//===----------------------------------------------------------------------===//

Array::Array(Kind kind, std::vector<int64_t> shape,
             std::vector<int64_t> strides)
    : kind(kind), dims(std::move(shape)), steps(std::move(strides)) {
  if (steps.empty()) {
    steps.assign(dims.size(), 1);
    for (int64_t d = static_cast<int64_t>(dims.size()) - 2; d >= 0; --d)
      steps[d] = steps[d + 1] * dims[d + 1];
  }
  int64_t extent = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    extent += (dims[d] - 1) * steps[d];
  bytes.assign((extent + 2 * kFrame) * bytesOf(kind), kCanary);
  for (int64_t i = 0; i < size(); ++i)
    set(i, 0);
}

int64_t Array::size() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<>());
}

MemRefType Array::type(MLIRContext *context) const {
  Builder b(context);
  Type element = kind == Kind::F32   ? Type(b.getF32Type())
                 : kind == Kind::F64 ? Type(b.getF64Type())
                                     : Type(b.getI32Type());
  auto dense = MemRefType::get(dims, element);
  if (Array(kind, dims).steps == steps)
    return dense;
  return MemRefType::get(
      dims, element,
      StridedLayoutAttr::get(context, ShapedType::kDynamic, steps));
}

void *Array::pointer() { return bytes.data() + kFrame * bytesOf(kind); }

int64_t Array::place(int64_t number) const {
  int64_t at = kFrame;
  for (int64_t d = static_cast<int64_t>(dims.size()) - 1; d >= 0; --d) {
    at += number % dims[d] * steps[d];
    number /= dims[d];
  }
  return at * bytesOf(kind);
}

double Array::get(int64_t number) const {
  const unsigned char *from = bytes.data() + place(number);
  float single;
  double wide;
  int32_t integer;
  switch (kind) {
  case Kind::F32:
    std::memcpy(&single, from, 4);
    return single;
  case Kind::F64:
    std::memcpy(&wide, from, 8);
    return wide;
  case Kind::I32:
    std::memcpy(&integer, from, 4);
    return integer;
  }
  return 0;
}

void Array::set(int64_t number, double value) {
  unsigned char *to = bytes.data() + place(number);
  auto single = static_cast<float>(value);
  if (kind == Kind::F32)
    std::memcpy(to, &single, 4);
  else if (kind == Kind::F64)
    std::memcpy(to, &value, 8);
  else {
    auto integer = static_cast<int32_t>(value);
    std::memcpy(to, &integer, 4);
  }
}

bool Array::sameBits(const Array &other) const {
  for (int64_t i = 0; i < size(); ++i)
    if (std::memcmp(bytes.data() + place(i),
                    other.bytes.data() + other.place(i), bytesOf(kind)) != 0)
      return false;
  return true;
}

bool Array::frameIntact() const {
  std::vector<char> inside(bytes.size(), 0);
  for (int64_t i = 0; i < size(); ++i)
    std::fill_n(inside.begin() + place(i), bytesOf(kind), 1);
  for (size_t i = 0; i < bytes.size(); ++i)
    if (!inside[i] && bytes[i] != kCanary)
      return false;
  return true;
}

void Array::fillCanary() { std::fill(bytes.begin(), bytes.end(), kCanary); }

Array f32(std::vector<int64_t> shape, std::vector<int64_t> strides) {
  return Array(Kind::F32, std::move(shape), std::move(strides));
}
Array f64(std::vector<int64_t> shape) {
  return Array(Kind::F64, std::move(shape));
}
Array i32(std::vector<int64_t> shape) {
  return Array(Kind::I32, std::move(shape));
}

Array random(std::vector<int64_t> shape, uint64_t seed, double scale,
             std::vector<int64_t> strides) {
  Array array = f32(std::move(shape), std::move(strides));
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < array.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double unit = static_cast<double>(state >> 40) / (1 << 24);
    array.set(i, (2 * unit - 1) * scale);
  }
  return array;
}

Array scalar(double value) {
  Array array = f32({});
  array.set(0, value);
  return array;
}

Array scalar64(double value) {
  Array array = f64({});
  array.set(0, value);
  return array;
}

Array seqTable(int64_t tokens, int64_t maxDocs,
               std::vector<int64_t> documents) {
  SeqTable shape{tokens, maxDocs};
  Array table = i32({shape.words()});
  bool fits = fillSeqTable(shape, documents.data(),
                           static_cast<int64_t>(documents.size()),
                           static_cast<int32_t *>(table.pointer()));
  EXPECT_TRUE(fits);
  return table;
}

void expectNear(const Array &got, const std::vector<double> &want,
                double tolerance, const std::string &what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size())) << what;
  double scale = 0;
  for (double value : want)
    scale += std::fabs(value);
  scale /= want.empty() ? 1 : static_cast<double>(want.size());
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    double error = std::fabs(got[i] - want[i]);
    if (error <= tolerance * (std::fabs(want[i]) + scale))
      continue;
    if (++wrong <= 4)
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", expected "
                    << want[i] << " within " << tolerance << " relative";
  }
  if (wrong > 4)
    ADD_FAILURE() << what << ": " << wrong << " of " << got.size()
                  << " elements differ";
}

//===----------------------------------------------------------------------===//
// KernelLibrary
//===----------------------------------------------------------------------===//

KernelLibrary::KernelLibrary(const std::string &bytes) {
  int file = memfd_create("kernels", 0);
  EXPECT_GE(file, 0);
  EXPECT_EQ(write(file, bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  std::string path = "/proc/self/fd/" + std::to_string(file);
  handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  close(file);
}

KernelLibrary::~KernelLibrary() {
  if (handle)
    dlclose(handle);
}

KernelLibrary::Function KernelLibrary::find(const std::string &symbol) const {
  return handle ? reinterpret_cast<Function>(dlsym(handle, symbol.c_str()))
                : nullptr;
}

//===----------------------------------------------------------------------===//
// KernelTest
//===----------------------------------------------------------------------===//

KernelTest::KernelTest() {
  registerAllKernels();
  DialectRegistry registry;
  registerCpuDialects(registry);
  context.appendDialectRegistry(registry);
}

std::vector<std::string> KernelTest::testedCpus() {
  std::vector<std::string> cpus;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    cpus.push_back("x86-64-v3");
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    cpus.push_back("x86-64-v4");
  return cpus;
}

KernelSpec KernelTest::spec(const std::string &op, const std::string &attrs,
                            const Arrays &inputs, const Arrays &outputs) {
  KernelSpec spec;
  spec.op = op;
  Attribute parsed = parseAttribute(attrs.empty() ? "{}" : attrs, &context);
  EXPECT_TRUE(parsed) << attrs;
  spec.attrs = cast<DictionaryAttr>(parsed);
  for (const Array &input : inputs)
    spec.inputs.push_back(input.type(&context));
  for (const Array &output : outputs)
    spec.outputs.push_back(output.type(&context));
  return spec;
}

std::string KernelTest::compile(ArrayRef<NamedKernel> kernels,
                                const std::string &cpu, unsigned threads) {
  CpuTarget target;
  target.cpu = cpu;
  target.threads = threads;
  std::string text;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    text += diagnostic.str() + "\n";
    return success();
  });
  FailureOr<std::string> bytes = compileKernels(&context, kernels, target, [&] {
    return emitError(UnknownLoc::get(&context));
  });
  EXPECT_TRUE(succeeded(bytes)) << text;
  return succeeded(bytes) ? *bytes : std::string();
}

void KernelTest::run(const std::string &op, const std::string &attrs,
                     Arrays inputs, Arrays outputs, Check check) {
  KernelSpec kernelSpec = spec(op, attrs, inputs, outputs);
  const KernelFamily *family = lookupKernel(op);
  ASSERT_NE(family, nullptr) << op;
  FailureOr<KernelPlan> plan = family->plan(
      kernelSpec, [&] { return emitError(UnknownLoc::get(&context)); });
  ASSERT_TRUE(succeeded(plan)) << op;
  ASSERT_FALSE(plan->grids.empty()) << op;

  // Outputs placed on inputs, as far as the plan allows it.
  std::vector<int> placedOn(outputs.size(), -1);
  std::set<unsigned> taken;
  for (auto [output, input] : plan->mayAlias)
    if (placedOn[output] < 0 && !taken.count(input) &&
        kernelSpec.outputs[output] == kernelSpec.inputs[input]) {
      placedOn[output] = static_cast<int>(input);
      taken.insert(input);
    }

  std::vector<std::string> cpus = testedCpus();
  if (cpus.empty())
    GTEST_SKIP() << "this machine has no AVX2";
  for (const std::string &cpu : cpus) {
    SCOPED_TRACE(op + " " + attrs + " for " + cpu);
    std::string bytes = compile({NamedKernel{"kernel", kernelSpec}}, cpu);
    if (bytes.empty())
      return;
    KernelLibrary library(bytes);

    enum Mode { Forward, Reversed, InPlace, Modes };
    Arrays first;
    for (int mode = Forward; mode < Modes; ++mode) {
      Arrays in = inputs, out = outputs;
      for (Array &array : out)
        array.fillCanary();
      std::vector<unsigned char> workspace(plan->workspaceBytes + 128, 0xFF);
      std::vector<void *> arguments;
      for (Array &array : in)
        arguments.push_back(array.pointer());
      for (size_t i = 0; i < out.size(); ++i) {
        bool share = mode == InPlace && placedOn[i] >= 0;
        arguments.push_back(share ? in[placedOn[i]].pointer()
                                  : out[i].pointer());
      }
      auto base = reinterpret_cast<uintptr_t>(workspace.data());
      arguments.push_back(reinterpret_cast<void *>((base + 63) / 64 * 64));
      for (unsigned stage = 0; stage < plan->grids.size(); ++stage) {
        auto function = library.find(stageSymbol("kernel", stage));
        ASSERT_NE(function, nullptr) << "stage " << stage;
        int64_t grid = plan->grids[stage];
        ASSERT_GT(grid, 0);
        for (int64_t task = 0; task < grid; ++task)
          function(arguments.data(), mode == Reversed ? grid - 1 - task : task);
      }
      if (mode == InPlace)
        for (size_t i = 0; i < out.size(); ++i)
          if (placedOn[i] >= 0)
            out[i] = in[placedOn[i]];
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_TRUE(out[i].frameIntact())
            << "output " << i << " was written outside its elements";
      for (size_t i = 0; i < in.size(); ++i)
        if (mode != InPlace || !taken.count(i))
          EXPECT_TRUE(in[i].sameBits(inputs[i])) << "input " << i << " changed";
      if (mode == Forward) {
        check(inputs, out);
        first = out;
        continue;
      }
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_TRUE(out[i].sameBits(first[i]))
            << "output " << i << " differs with "
            << (mode == Reversed ? "reversed tasks" : "outputs on inputs");
    }
  }
}

void KernelTest::expectRefused(const std::string &op, const std::string &attrs,
                               const Arrays &inputs, const Arrays &outputs,
                               const std::string &message) {
  const KernelFamily *family = lookupKernel(op);
  ASSERT_NE(family, nullptr) << op;
  std::vector<std::string> messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    messages.push_back(diagnostic.str());
    return success();
  });
  EXPECT_TRUE(failed(family->plan(spec(op, attrs, inputs, outputs), [&] {
    return emitError(UnknownLoc::get(&context));
  })));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0], message);
}

} // namespace qwen35::codegen::cpu
