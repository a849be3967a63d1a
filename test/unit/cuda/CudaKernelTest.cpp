#include "test/unit/cuda/CudaKernelTest.h"

#include "codegen/cuda/Target.h"
#include "test/unit/cuda/EmulatedUnit.h"
#include "test/unit/cuda/KernelRecorder.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <deque>
#include <set>

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

/// One way to run a kernel.
struct Mode {
  const char *what;
  int order; ///< Of printLauncher.
  /// What lies around inputs, what in and around outputs, and in the workspace.
  uint16_t inputs, outputs, workspace;
  bool inPlace;
};

/// NaN in both floating-point types, or about 0.01.
constexpr Mode kModes[] = {
    {"blocks and threads in order", 0, 0xFFC5, 0xFFD3, 0xFFFF, false},
    {"blocks and threads reversed", 3, 0x3CC5, 0x3CD3, 0x3C3C, false},
    {"random threads, outputs on inputs", 7, 0xFFC5, 0xFFD3, 0xFFFF, true}};

/// Where the first element of a view lies behind an aligned address.
int64_t startOf(const Array &array) {
  return array.isView() ? array.granularity() * bytesOf(array.kind()) : 0;
}

} // namespace

CudaKernelTest::CudaKernelTest() { registerAllKernels(); }

KernelSpec CudaKernelTest::spec(const std::string &op, const std::string &attrs,
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

std::optional<KernelPlan> CudaKernelTest::plan(const KernelSpec &spec,
                                               const std::string &target) {
  return plan(spec, *gpuTarget(target));
}

std::optional<KernelPlan> CudaKernelTest::plan(const KernelSpec &spec,
                                               const GpuTarget &target) {
  const KernelFamily *family = lookupKernel(spec.op);
  if (!family) {
    ADD_FAILURE() << "no kernel family of " << spec.op;
    return std::nullopt;
  }
  std::string text;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    text += diagnostic.str() + "\n";
    return success();
  });
  FailureOr<KernelPlan> plan =
      family->plan(spec, target,
                   [&] { return emitError(UnknownLoc::get(&context)); });
  if (failed(plan)) {
    ADD_FAILURE() << spec.op << " for " << target.name << ": " << text;
    return std::nullopt;
  }
  return *plan;
}

void CudaKernelTest::run(const std::string &op, const std::string &attrs,
                         Arrays inputs, Arrays outputs, Check check) {
  KernelSpec kernel = spec(op, attrs, inputs, outputs);
  std::string types;
  llvm::raw_string_ostream typesOut(types);
  llvm::interleaveComma(kernel.inputs, typesOut);
  SCOPED_TRACE(op + " " + attrs + " of " + types);
  std::optional<KernelPlan> kernelPlan = plan(kernel, target);
  if (!kernelPlan)
    return;
  ASSERT_FALSE(kernelPlan->stages.empty());

  auto symbolOf = [&](unsigned stage) {
    return op + "_s" + std::to_string(stage);
  };
  std::vector<std::string> sources;
  for (unsigned i = 0; i < kernelPlan->stages.size(); ++i) {
    const auto *stage = std::get_if<DeviceStage>(&kernelPlan->stages[i]);
    ASSERT_NE(stage, nullptr) << "stage " << i << " is a library call";
    ASSERT_GT(stage->blocks, 0) << "stage " << i;
    ASSERT_EQ(stage->threads % 32, 0) << "stage " << i;
    ASSERT_EQ(stage->clusterBlocks, 1) << "stage " << i;
    sources.push_back(printEmulated(symbolOf(i), kernel, *kernelPlan, i));
  }
  auto units = loadUnits(sources, op);
  if (!units)
    FAIL() << llvm::toString(units.takeError());

  // Outputs placed on inputs, as far as the plan allows it.
  std::vector<int> placedOn(outputs.size(), -1);
  std::set<unsigned> taken;
  for (auto [output, input] : kernelPlan->mayAlias)
    if (placedOn[output] < 0 && !taken.count(input) &&
        kernel.outputs[output] == kernel.inputs[input]) {
      placedOn[output] = static_cast<int>(input);
      taken.insert(input);
    }

  Arrays first;
  for (const Mode &mode : kModes) {
    SCOPED_TRACE(mode.what);
    Arrays in = inputs, out = outputs;
    std::deque<GuardedMemory> memory;
    std::vector<void *> arguments;
    auto place = [&](const std::string &name, Array &array, uint16_t pattern) {
      memory.emplace_back(name, array.extent(), pattern, startOf(array));
      std::memcpy(memory.back().pointer(), array.pointer(), array.extent());
      arguments.push_back(memory.back().pointer());
    };
    for (size_t i = 0; i < in.size(); ++i) {
      in[i].frame(mode.inputs);
      place("input " + std::to_string(i), in[i], mode.inputs);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].fillCanary(mode.outputs);
      if (mode.inPlace && placedOn[i] >= 0)
        arguments.push_back(arguments[placedOn[i]]);
      else
        place("output " + std::to_string(i), out[i], mode.outputs);
    }
    if (kernelPlan->workspaceBytes > 0) {
      // Its elements as well hold the pattern.
      memory.emplace_back("the workspace", kernelPlan->workspaceBytes,
                          mode.workspace);
      arguments.push_back(memory.back().pointer());
    }

    for (unsigned i = 0; i < sources.size(); ++i) {
      const auto &stage = std::get<DeviceStage>(kernelPlan->stages[i]);
      ASSERT_TRUE((*units)[i]->launch(symbolOf(i), arguments, stage.blocks,
                                      stage.threads, stage.sharedBytes,
                                      mode.order));
    }

    for (const GuardedMemory &buffer : memory)
      EXPECT_TRUE(buffer.frameIntact())
          << buffer.what() << " was written outside its bytes";
    for (size_t i = 0; i < in.size(); ++i) {
      std::memcpy(in[i].pointer(), arguments[i], in[i].extent());
      if (!mode.inPlace || !taken.count(i))
        EXPECT_TRUE(in[i].sameBits(inputs[i]) && in[i].frameIntact())
            << "input " << i << " changed";
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (mode.inPlace && placedOn[i] >= 0)
        out[i].frame(mode.inputs);
      std::memcpy(out[i].pointer(), arguments[in.size() + i], out[i].extent());
      EXPECT_TRUE(out[i].frameIntact())
          << "output " << i << " was written between its rows";
    }
    for (size_t i = 0; unspecified && i < out.size(); ++i)
      for (int64_t j = 0; j < out[i].size(); ++j)
        if (unspecified(i, j))
          out[i].set(j, 0);
    if (first.empty()) {
      check(inputs, out);
      first = out;
      if (!KernelRecorder::ofProcess())
        continue;
      record(kernel, inputs, first);
      return;
    }
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_TRUE(out[i].sameBits(first[i]))
          << "output " << i << " differs from the first run, first in element "
          << out[i].firstDifference(first[i]);
  }
  checkWithNvrtc(kernel, *kernelPlan);
}

void CudaKernelTest::record(const KernelSpec &spec, const Arrays &inputs,
                            const Arrays &expected) {
  KernelRecorder &recorder = *KernelRecorder::ofProcess();
  const auto *test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "." +
                     test->name() + "/" + std::to_string(runs++);
  constexpr int64_t kMost = int64_t(32) << 20;
  int64_t bytes = 0;
  for (const Arrays *arrays : {&inputs, &expected})
    for (const Array &array : *arrays)
      bytes += array.size() * bytesOf(array.kind());
  if (bytes > kMost) {
    llvm::outs() << "not recorded, " << bytes << " bytes: " << name << "\n";
    return;
  }
  std::vector<PlannedVariant> variants;
  for (auto &[variant, target] : recordedTargets(recorder.gpuTarget())) {
    std::optional<KernelPlan> planned = plan(spec, target);
    if (!planned)
      return;
    variants.push_back({variant, std::move(*planned)});
  }
  test::KernelCase &added = recorder.add(name, spec, variants);
  for (const Array &input : inputs)
    describeTensor(input, startOf(input), *added.add_inputs());
  for (size_t i = 0; i < expected.size(); ++i) {
    test::KernelTensor &output = *added.add_outputs();
    describeExpected(expected[i], startOf(expected[i]), output);
    if (i < deviceBounds.size()) {
      output.set_relative(deviceBounds[i].relative);
      output.set_scale(deviceBounds[i].scale);
    }
    if (!unspecified)
      continue;
    std::string mask((expected[i].size() + 7) / 8, '\0');
    for (int64_t j = 0; j < expected[i].size(); ++j)
      if (unspecified(i, j))
        mask[j / 8] = static_cast<char>(mask[j / 8] | 1 << j % 8);
    output.set_unspecified(mask);
  }
}

void CudaKernelTest::checkWithNvrtc(const KernelSpec &spec,
                                    const KernelPlan &emulated) {
  static std::set<std::string> seen;
  auto check = [&](const KernelPlan &plan, const std::string &arch) {
    for (unsigned i = 0; i < plan.stages.size(); ++i) {
      const auto *stage = std::get_if<DeviceStage>(&plan.stages[i]);
      if (!stage)
        continue;
      std::string key = arch + stage->header + stage->function;
      llvm::raw_string_ostream out(key);
      for (MemRefType type : spec.inputs)
        out << type.getElementType();
      for (MemRefType type : spec.outputs)
        out << type.getElementType();
      if (seen.insert(key).second)
        EXPECT_EQ(cuda::checkWithNvrtc(printSource(spec.op, spec, plan, i),
                                       spec.op, arch),
                  "");
    }
  };
  for (const char *arch : {"sm_80", "sm_90a"}) {
    if (std::optional<KernelPlan> own = plan(spec, arch))
      check(*own, arch);
    if (gpuTarget(arch)->hopper || !gpuTarget(target)->hopper)
      check(emulated, arch);
  }
}

void CudaKernelTest::expectRefused(const std::string &op,
                                   const std::string &attrs,
                                   const Arrays &inputs, const Arrays &outputs,
                                   const std::string &message) {
  const KernelFamily *family = lookupKernel(op);
  ASSERT_NE(family, nullptr) << op;
  std::vector<std::string> messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    messages.push_back(diagnostic.str());
    return success();
  });
  EXPECT_TRUE(failed(family->plan(
      spec(op, attrs, inputs, outputs), *gpuTarget("emulated"),
      [&] { return emitError(UnknownLoc::get(&context)); })));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0], message);
}

} // namespace qwen35::codegen::cuda
