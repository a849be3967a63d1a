// What the assembler made of kernels that are bound by memory, at the sizes of
// published models: no local memory, and as few registers as the blocks that a
// plan counts on leave.

#include "codegen/cuda/Compile.h"
#include "codegen/cuda/Target.h"
#include "codegen/nvrtc/Nvrtc.h"
#include "runtime/schema/seq_table.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Builders.h"
#include "llvm/Object/ELF.h"
#include "llvm/Support/Endian.h"

#include <gtest/gtest.h>

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

struct Resources {
  int64_t registers = -1, localBytes = -1;
};

/// Of the one kernel of a cubin, from its attribute records: a format byte, an
/// attribute byte, a 16-bit size, and for these two a symbol and the value.
Resources resourcesOf(const std::string &image) {
  constexpr uint8_t kSized = 4, kFrameSize = 0x11, kRegisters = 0x2f;
  Resources found;
  auto elf = llvm::cantFail(llvm::object::ELFFile<llvm::object::ELF64LE>::create(image));
  for (const auto &section : llvm::cantFail(elf.sections())) {
    if (llvm::cantFail(elf.getSectionName(section)) != ".nv.info")
      continue;
    llvm::ArrayRef<uint8_t> bytes =
        llvm::cantFail(elf.getSectionContents(section));
    while (bytes.size() >= 4) {
      uint8_t format = bytes[0], attribute = bytes[1];
      size_t size =
          format == kSized ? llvm::support::endian::read16le(&bytes[2]) : 0;
      if (attribute == kFrameSize || attribute == kRegisters)
        (attribute == kFrameSize ? found.localBytes : found.registers) =
            llvm::support::endian::read32le(&bytes[8]);
      bytes = bytes.drop_front(4 + size);
    }
  }
  return found;
}

class RegistersTest : public ::testing::Test {
protected:
  RegistersTest() { registerAllKernels(); }

  std::vector<CompiledStage> compile(const std::string &op,
                                     const std::string &attrs,
                                     const std::string &types) {
    auto signature = dyn_cast_or_null<FunctionType>(parseType(types, &context));
    auto config =
        dyn_cast_or_null<DictionaryAttr>(parseAttribute(attrs, &context));
    if (!signature || !config) {
      ADD_FAILURE() << attrs << ' ' << types;
      return {};
    }
    NamedKernel kernel{op, {op, config, {}, {}}};
    for (Type type : signature.getInputs())
      kernel.spec.inputs.push_back(cast<MemRefType>(type));
    for (Type type : signature.getResults())
      kernel.spec.outputs.push_back(cast<MemRefType>(type));
    GpuTarget target = *gpuTarget("sm_90a");
    auto stages = planStages({kernel}, target, [&] {
      return emitError(UnknownLoc::get(&context));
    });
    EXPECT_TRUE(succeeded(stages));
    if (failed(stages))
      return {};
    auto done = compileStages(*stages, target, {});
    EXPECT_TRUE(static_cast<bool>(done));
    if (!done) {
      ADD_FAILURE() << llvm::toString(done.takeError());
      return {};
    }
    return *stages;
  }

  void expectNoSpills(const std::string &op, const std::string &attrs,
                      const std::string &types) {
    for (const CompiledStage &stage : compile(op, attrs, types)) {
      const auto &device = std::get<DeviceStage>(stage.stage);
      Resources used = resourcesOf(stage.image);
      EXPECT_EQ(used.localBytes, 0) << stage.symbol << ' ' << types;
      EXPECT_GT(used.registers, 0) << stage.symbol;
      EXPECT_LE(used.registers * device.threads * device.minBlocks, 65536)
          << stage.symbol << ' ' << types;
    }
  }

  static bool hasNvrtc() {
    llvm::Expected<const Nvrtc &> compiler = Nvrtc::open();
    if (compiler)
      return true;
    llvm::consumeError(compiler.takeError());
    return false;
  }

  MLIRContext context;
};

std::string memref(const std::string &shape, const std::string &rest = "") {
  return "memref<" + shape + rest + ">";
}

const char *const kTypes[] = {"bf16", "f32"};

TEST_F(RegistersTest, TheCubinTellsLocalMemory) {
  if (!hasNvrtc())
    GTEST_SKIP() << "no NVRTC";
  GpuTarget target = *gpuTarget("sm_90a");
  std::vector<CompiledStage> stages(1);
  stages[0].symbol = "local";
  stages[0].stage = DeviceStage();
  stages[0].source = "extern \"C\" __global__ void local(int *a, int n) {\n"
                     "  int x[100];\n"
                     "  for (int i = 0; i < 100; ++i) x[i] = a[i];\n"
                     "  for (int i = 0; i < n; ++i) a[i] = x[a[i]];\n}\n";
  auto done = compileStages(stages, target, {});
  ASSERT_TRUE(static_cast<bool>(done)) << llvm::toString(done.takeError());
  EXPECT_EQ(resourcesOf(stages[0].image).localBytes, 400);
}

TEST_F(RegistersTest, NormsOfRowsStayInRegisters) {
  if (!hasNvrtc())
    GTEST_SKIP() << "no NVRTC";
  std::string forward = "{eps = 1.0e-6, offset = 1.0}",
              backward = "{offset = 1.0}", s = memref("8192xf32");
  for (std::string type : kTypes)
    for (std::string columns : {"1024", "2048", "2560", "4096", "5120"}) {
      std::string x = memref("8192x" + columns + "x" + type),
                  w = memref(columns + "xf32");
      expectNoSpills("rms_norm", forward,
                     "(" + x + "," + w + ") -> (" + x + "," + s + ")");
      expectNoSpills("add_rms_norm", forward,
                     "(" + x + "," + x + "," + w + ") -> (" + x + "," + x +
                         "," + s + ")");
      expectNoSpills("rms_norm_bwd", backward,
                     "(" + x + "," + x + "," + w + "," + s + ") -> (" + x +
                         "," + w + ")");
      expectNoSpills("rms_norm_bwd_add", backward,
                     "(" + x + "," + x + "," + w + "," + s + "," + x +
                         ") -> (" + x + "," + w + ")");
    }
}

TEST_F(RegistersTest, HeadsStayInRegisters) {
  if (!hasNvrtc())
    GTEST_SKIP() << "no NVRTC";
  for (std::string type : kTypes) {
    std::string o = memref("8192x32x128x" + type), w = memref("128xf32"),
                s = memref("8192x32xf32");
    expectNoSpills("gated_rms_norm", "{eps = 1.0e-6}",
                   "(" + o + "," + o + "," + w + ") -> (" + o + "," + s + ")");
    expectNoSpills("gated_rms_norm_bwd", "{}",
                   "(" + o + "," + o + "," + o + "," + w + "," + s + ") -> (" +
                       o + "," + o + "," + w + ")");
    // The query half of a projection.
    std::string x =
        memref("8192x16x256x" + type, ", strided<[8192, 512, 1]>");
    std::string q = memref("8192x16x256x" + type);
    w = memref("256xf32");
    s = memref("8192x16xf32");
    std::string table = memref("8192x32x2xf32");
    expectNoSpills("rms_norm_rope", "{eps = 1.0e-6, offset = 1.0}",
                   "(" + x + "," + w + "," + table + ") -> (" + q + "," + s +
                       ")");
    expectNoSpills("rope", "{inverse = true}",
                   "(" + q + "," + table + ") -> (" + q + ")");
    expectNoSpills("rms_norm_bwd", "{offset = 1.0}",
                   "(" + q + "," + x + "," + w + "," + s + ") -> (" + q + "," +
                       w + ")");
  }
}

TEST_F(RegistersTest, ConvolutionsAndGatesStayInRegisters) {
  if (!hasNvrtc())
    GTEST_SKIP() << "no NVRTC";
  SeqTable seq{8192, 17};
  std::string table = memref(std::to_string(seq.words()) + "xi32");
  std::string attrs = "{tokens = 8192 : i64, max_docs = 17 : i64}";
  for (std::string type : kTypes) {
    for (std::string channels : {"6144", "8192", "10240"}) {
      std::string x = memref("8192x" + channels + "x" + type),
                  w = memref(channels + "x1x4xf32");
      expectNoSpills("causal_conv", attrs,
                     "(" + x + "," + w + "," + table + ") -> (" + x + ")");
      expectNoSpills("causal_conv_bwd", attrs,
                     "(" + x + "," + x + "," + w + "," + table + ") -> (" + x +
                         "," + w + ")");
    }
    std::string a = memref("8192x32x" + type), g = memref("8192x32xf32"),
                v = memref("32xf32");
    expectNoSpills("gdn_gates", "{}",
                   "(" + a + "," + a + "," + v + "," + v + ") -> (" + g + "," +
                       g + ")");
    expectNoSpills("gdn_gates_bwd", "{}",
                   "(" + g + "," + g + "," + a + "," + a + "," + v + "," + v +
                       ") -> (" + a + "," + a + "," + v + "," + v + ")");
  }
}

// Their pointers are picked by number from the parameters, not from a copy.
TEST_F(RegistersTest, ListsOfTensorsStayInRegisters) {
  if (!hasNvrtc())
    GTEST_SKIP() << "no NVRTC";
  std::string all, copies;
  auto add = [](std::string &list, const std::string &type) {
    list += (list.empty() ? "" : ",") + type;
  };
  constexpr int kTensors = 300;
  for (int i = 0; i < kTensors; ++i) {
    add(all, memref(i % 3 ? "4096x4096xf32" : "1027xf32"));
    add(copies, memref(i % 3 ? "4096x4096xbf16" : "1027xbf16"));
  }
  std::string f32 = memref("f32"), f64 = memref("f64");
  std::string state = all + "," + all + "," + all;
  std::string inputs = "(" + state + "," + all + "," + f32 + "," + f32 + "," +
                       f32 + "," + f32 + "," + f32 + ") -> (";
  std::string attrs =
      "{beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1}";
  expectNoSpills("adamw", attrs, inputs + state + ")");
  expectNoSpills("adamw", attrs, inputs + state + "," + copies + ")");
  expectNoSpills("norm_sq", "{}",
                 "(" + all + "," + f64 + "," + f64 + ") -> (" + f64 + ")");
}

// 128 sums and what is left of 232 registers; products of 35b-a3b.
TEST_F(RegistersTest, GradientsOfExpertsStayInRegisters) {
  if (!hasNvrtc())
    GTEST_SKIP() << "no NVRTC";
  std::string x = memref("8192x2048xbf16"), weights = memref("8192x8xf32"),
              dGateUp = memref("256x1024x2048xf32"),
              dDown = memref("256x2048x512xf32");
  std::string inputs = "(" + x + "," + x + "," + weights + "," +
                       memref("8192x8xi32") + "," +
                       memref("256x1024x2048xbf16") + "," +
                       memref("256x2048x512xbf16");
  std::string outputs = ") -> (" + x + "," + weights + "," + dGateUp + "," +
                        dDown + "," + memref("f64") + ")";
  expectNoSpills("moe_experts_bwd", "{squares = true}", inputs + outputs);
  expectNoSpills("moe_experts_bwd", "{accumulate = true, squares = true}",
                 inputs + "," + dGateUp + "," + dDown + outputs);
}

} // namespace
} // namespace qwen35::codegen::cuda
