#include "test/unit/cpu/KernelTest.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"

#include <dlfcn.h>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;

namespace qwen35::codegen::cpu {

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
