#include "test/unit/cuda/KernelRecorder.h"

#include "codegen/cuda/Cost.h"
#include "codegen/cuda/Target.h"
#include "codegen/emit/DescribeStage.h"
#include "codegen/emulated/HostCompiler.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <errno.h> // program_invocation_short_name
#include <set>

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

bool isEmulated(const GpuTarget &target) {
  return StringRef(target.name).starts_with("emulated");
}

/// Writes the process's file when its tests are done.
class WriteRecorded : public ::testing::Environment {
public:
  void TearDown() override {
    KernelRecorder *recorder = KernelRecorder::ofProcess();
    if (!recorder)
      return;
    std::string folder = std::getenv("QWEN35_RECORD_KERNELS");
    (void)llvm::sys::fs::create_directories(folder);
    llvm::Error error = recorder->write(
        folder + "/" + program_invocation_short_name + ".cases");
    if (error)
      ADD_FAILURE() << llvm::toString(std::move(error));
  }
};

::testing::Environment *const kWriteRecorded =
    ::testing::AddGlobalTestEnvironment(new WriteRecorded);

} // namespace

std::vector<std::pair<std::string, GpuTarget>>
recordedTargets(const GpuTarget &target) {
  GpuTarget few = target, own = target, portable = target;
  few.multiprocessors = 4;
  own.libraryGemm = false;
  portable.multiprocessors = 4;
  portable.hopper = portable.libraryGemm = false;
  if (isEmulated(target))
    return {{"", target}};
  return {{"", target}, {"few", few}, {"own", own}, {"portable", portable}};
}

KernelRecorder *KernelRecorder::ofProcess() {
  static KernelRecorder *recorder = []() -> KernelRecorder * {
    const char *folder = std::getenv("QWEN35_RECORD_KERNELS");
    if (!folder || !*folder)
      return nullptr;
    const char *name = std::getenv("QWEN35_RECORD_TARGET");
    auto target = cuda::gpuTarget(name && *name ? name : "sm_90a");
    if (!target)
      llvm::report_fatal_error("QWEN35_RECORD_TARGET names no GPU target");
    return new KernelRecorder(*target);
  }();
  return recorder;
}

test::KernelCase &KernelRecorder::add(const std::string &name,
                                      const KernelSpec &spec,
                                      ArrayRef<PlannedVariant> variants) {
  test::KernelCase &added = *cases.add_cases();
  added.set_name(name);
  added.set_op(spec.op);
  llvm::raw_string_ostream text(*added.mutable_spec());
  text << spec.attrs << " (";
  llvm::interleaveComma(spec.inputs, text);
  text << ") -> (";
  llvm::interleaveComma(spec.outputs, text);
  text << ")";
  uint32_t arguments = spec.inputs.size() + spec.outputs.size();

  std::set<std::string> seen;
  for (const PlannedVariant &planned : variants) {
    test::KernelVariant variant;
    variant.set_name(planned.name);
    variant.set_workspace_bytes(planned.plan.workspaceBytes);
    for (auto [output, input] : planned.plan.mayAlias) {
      test::KernelAlias &alias = *variant.add_may_alias();
      alias.set_output(output);
      alias.set_input(input);
    }
    double flops = 0;
    for (auto [i, stage] : llvm::enumerate(planned.plan.stages)) {
      CompiledStage compiled;
      compiled.symbol = spec.op + (i ? "_s" + std::to_string(i) : "");
      compiled.stage = stage;
      compiled.cost = costOf(spec, planned.plan, i);
      test::KernelStage &out = *variant.add_stages();
      out.set_grid(1);
      describeStage(compiled, *out.mutable_kernel());
      flops += out.kernel().flops();
      out.mutable_kernel()->set_op(spec.op);
      out.mutable_kernel()->set_args(arguments +
                                     (planned.plan.workspaceBytes > 0));
      if (const auto *device = std::get_if<DeviceStage>(&stage)) {
        compiled.source =
            isEmulated(target)
                ? printEmulated(compiled.symbol, spec, planned.plan, i)
                : printSource(compiled.symbol, spec, planned.plan, i);
        out.set_grid(device->blocks);
        auto [at, fresh] = stageOf.emplace(compiled.source, stages.size());
        // Of stages until compile() knows the image.
        out.mutable_kernel()->set_blob(at->second);
        if (fresh)
          stages.push_back(std::move(compiled));
        continue;
      }
      const bundle::Gemm &gemm = out.kernel().gemm();
      for (const test::KernelAlias &alias : variant.may_alias())
        if (gemm.accumulate() &&
            gemm.d().arg() == spec.inputs.size() + alias.output())
          variant.set_in_place(true);
    }
    if (planned.name.empty())
      added.set_flops(flops);
    test::KernelVariant unnamed = variant;
    unnamed.clear_name();
    if (seen.insert(unnamed.SerializeAsString()).second)
      *added.add_variants() = std::move(variant);
  }
  return added;
}

llvm::Error KernelRecorder::compile() {
  if (isEmulated(target)) {
    for (CompiledStage &stage : stages) {
      llvm::Expected<std::string> image =
          compileForHost(stage.source, stage.symbol);
      if (!image)
        return image.takeError();
      stage.image = std::move(*image);
    }
  } else {
    CompileOptions options;
    options.cacheFolder = defaultCacheFolder();
    auto progress = [](size_t done, size_t total) {
      if (done % 100 == 0 || done == total)
        llvm::outs() << "compiled " << done << " of " << total << "\n";
    };
    options.progress = progress;
    llvm::Expected<CompileStatistics> compiled =
        compileStages(stages, target, options);
    if (!compiled)
      return compiled.takeError();
  }
  // Equal images are one.
  std::map<std::string, uint32_t> imageOf;
  for (const CompiledStage &stage : stages)
    if (imageOf.emplace(stage.image, cases.images_size()).second)
      cases.add_images(stage.image);
  for (test::KernelCase &c : *cases.mutable_cases())
    for (test::KernelVariant &variant : *c.mutable_variants())
      for (test::KernelStage &stage : *variant.mutable_stages())
        if (!stage.kernel().has_gemm())
          stage.mutable_kernel()->set_blob(
              imageOf[stages[stage.kernel().blob()].image]);
  return llvm::Error::success();
}

llvm::Error KernelRecorder::write(const std::string &path) {
  cases.set_arch(target.name);
  if (llvm::Error error = compile())
    return error;
  return llvm::writeToOutput(path, [&](llvm::raw_ostream &out) {
    out << cases.SerializeAsString();
    return llvm::Error::success();
  });
}

namespace {

void describeLayout(const Array &array, int64_t start,
                    test::KernelTensor &out) {
  switch (array.kind()) {
  case Kind::F32:
    out.set_dtype(bundle::F32);
    break;
  case Kind::BF16:
    out.set_dtype(bundle::BF16);
    break;
  case Kind::F64:
    out.set_dtype(bundle::F64);
    break;
  case Kind::I32:
    out.set_dtype(bundle::I32);
    break;
  }
  out.mutable_shape()->Add(array.shape().begin(), array.shape().end());
  out.mutable_strides()->Add(array.strides().begin(), array.strides().end());
  out.set_start(start);
}

} // namespace

void describeTensor(const Array &array, int64_t start,
                    test::KernelTensor &out) {
  describeLayout(array, start, out);
  if (array.origin) {
    auto [seed, scale] = *array.origin;
    if (random(array.kind(), array.shape(), seed, scale).dense() ==
        array.dense()) {
      out.mutable_random()->set_seed(seed);
      out.mutable_random()->set_scale(scale);
      return;
    }
  }
  *out.mutable_data() = array.dense();
}

void describeExpected(const Array &array, int64_t start,
                      test::KernelTensor &out) {
  describeLayout(array, start, out);
  std::string dense = array.dense();
  bool isFloat = out.dtype() == bundle::F32 || out.dtype() == bundle::BF16;
  if (!isFloat || array.size() <= test::kMostUnfolded) {
    *out.mutable_data() = std::move(dense);
    return;
  }
  out.set_folded(true);
  for (double sum : test::foldedValues(dense, out.dtype())) {
    auto single = static_cast<float>(sum);
    out.mutable_data()->append(reinterpret_cast<const char *>(&single),
                               sizeof single);
  }
}

} // namespace qwen35::codegen::cuda
