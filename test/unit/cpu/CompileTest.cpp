#include "test/unit/cpu/KernelTest.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <set>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

class CompileTest : public KernelTest {
protected:
  NamedKernel named(const std::string &symbol, const std::string &op,
                    const std::string &attrs, const Arrays &inputs,
                    const Arrays &outputs) {
    return NamedKernel{symbol, spec(op, attrs, inputs, outputs)};
  }

  /// Kernels that use every part of the library between them.
  std::vector<NamedKernel> sample() {
    Array x = f32({70, 100}), w = f32({100}), stats = f32({70});
    return {
        named("norm", "rms_norm", "{eps = 1.0e-6, offset = 1.0}", {x, w},
              {x, stats}),
        named("norm_bwd", "rms_norm_bwd", "{offset = 1.0}", {x, x, w, stats},
              {x, w}),
        named("linear", "linear", "{}", {x, f32({33, 100})}, {f32({70, 33})}),
        named("outer", "matmul", "{transpose_a = true}", {x, f32({70, 9})},
              {f32({100, 9})}),
        named("gates", "gdn_gates", "{}", {x, x, w, w}, {x, x}),
        named("mlp", "swiglu", "{}", {x, x}, {x}),
        named("zeros", "zeros", "{}", {}, {f32({1000, 1000})}),
        named("copy", "copy", "{}", {f32({1000, 64}, {100, 1})},
              {f32({1000, 64})}),
        named("norm_sq", "norm_sq", "{}", {x, f64({})}, {f64({})}),
        named("table", "rope_table",
              "{theta = 1.0e7, rotary_dim = 64 : i64, tokens = 64 : i64, "
              "max_docs = 2 : i64}",
              {seqTable(64, 2, {64})}, {f32({64, 32, 2})}),
    };
  }

  /// Error texts of a compilation that fails.
  std::vector<std::string> errorsOf(ArrayRef<NamedKernel> kernels,
                                    const CpuTarget &target) {
    std::vector<std::string> errors;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      errors.push_back(diagnostic.str());
      return success();
    });
    EXPECT_TRUE(failed(compileKernels(&context, kernels, target, [&] {
      return emitError(UnknownLoc::get(&context));
    })));
    return errors;
  }
};

TEST_F(CompileTest, ObjectImportsMemoryFunctionsAtMost) {
  for (const char *cpu : {"x86-64-v3", "x86-64-v4"}) {
    std::string bytes = compile(sample(), cpu);
    ASSERT_FALSE(bytes.empty());
    auto file = llvm::object::ObjectFile::createObjectFile(
        llvm::MemoryBufferRef(bytes, "kernels.so"));
    ASSERT_TRUE(static_cast<bool>(file));
    auto *elf = llvm::cast<llvm::object::ELFObjectFileBase>(file->get());
    std::set<std::string> imported, exported;
    for (const auto &symbol : elf->getDynamicSymbolIterators()) {
      std::string name = llvm::cantFail(symbol.getName()).str();
      uint32_t flags = llvm::cantFail(symbol.getFlags());
      if (flags & llvm::object::SymbolRef::SF_Undefined)
        imported.insert(name);
      else
        exported.insert(name);
    }
    imported.erase("");
    for (const std::string &name : imported)
      EXPECT_TRUE(name == "memset" || name == "memcpy" || name == "memmove")
          << "imports " << name;
    for (const NamedKernel &kernel : sample())
      EXPECT_TRUE(exported.count(kernel.symbol)) << kernel.symbol;
    EXPECT_TRUE(exported.count("norm_bwd_s1"));
    for (const llvm::object::SectionRef &section : elf->sections())
      EXPECT_NE(llvm::cantFail(section.getName()), ".init_array");
    EXPECT_EQ(bytes.find("libc.so"), std::string::npos) << "needs a library";
  }
}

TEST_F(CompileTest, BytesDependOnTheKernelsOnly) {
  std::string first = compile(sample(), "x86-64-v3", /*threads=*/1);
  EXPECT_EQ(first, compile(sample(), "x86-64-v3", /*threads=*/1));
  EXPECT_EQ(first, compile(sample(), "x86-64-v3", /*threads=*/3));
  context.disableMultithreading();
  EXPECT_EQ(first, compile(sample(), "x86-64-v3", /*threads=*/3));
  EXPECT_NE(first, compile(sample(), "x86-64-v4"));
}

TEST_F(CompileTest, ErrorsNameWhatWasFound) {
  NamedKernel good = sample()[0], unknown = good, twice = good;
  using Errors = std::vector<std::string>;
  unknown.spec.op = "fft";
  unknown.symbol = "k";
  EXPECT_EQ(errorsOf({unknown}, CpuTarget()),
            Errors({"no CPU kernel for op fft (kernel k)"}));
  EXPECT_EQ(errorsOf({good, twice}, CpuTarget()),
            Errors({"two kernels have the symbol norm"}));
  good.symbol = "a b";
  EXPECT_EQ(errorsOf({good}, CpuTarget()),
            Errors({"kernel symbol 'a b' has characters other than letters, "
                    "digits, _ . and $"}));
  CpuTarget target;
  target.cpu = "pentium9";
  EXPECT_EQ(errorsOf(sample(), target),
            Errors({"unknown cpu pentium9; expected native or a name LLVM "
                    "knows, as x86-64-v3, x86-64-v4 or znver4"}));
  target.cpu = "x86-64-v2";
  EXPECT_EQ(errorsOf(sample(), target),
            Errors({"cpu x86-64-v2 lacks AVX2 or FMA; the oldest level is "
                    "x86-64-v3"}));
  target.triple = "aarch64-unknown-linux-gnu";
  EXPECT_EQ(errorsOf(sample(), target),
            Errors({"CPU code is generated for x86_64 Linux only, got triple "
                    "aarch64-unknown-linux-gnu"}));
}

TEST_F(CompileTest, PrintsEveryForm) {
  NamedKernel kernel = sample()[0];
  auto print = [&](KernelText what) {
    FailureOr<std::string> text =
        printKernel(&context, kernel, CpuTarget(), what,
                    [&] { return emitError(UnknownLoc::get(&context)); });
    EXPECT_TRUE(succeeded(text));
    return succeeded(text) ? *text : std::string();
  };
  EXPECT_NE(print(KernelText::Mlir).find("func.func @norm.body("),
            std::string::npos);
  std::string ir = print(KernelText::LlvmIr);
  EXPECT_NE(ir.find("define void @norm("), std::string::npos);
  EXPECT_NE(ir.find("noalias"), std::string::npos);
  EXPECT_NE(print(KernelText::OptimizedLlvmIr).find("<8 x float>"),
            std::string::npos);
  EXPECT_NE(print(KernelText::Assembly).find("vfmadd"), std::string::npos);
}

} // namespace
} // namespace qwen35::codegen::cpu
