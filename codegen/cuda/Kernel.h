#ifndef QWEN35_CODEGEN_CUDA_KERNEL_H
#define QWEN35_CODEGEN_CUDA_KERNEL_H

#include "codegen/kernel/KernelSpec.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace qwen35::codegen::cuda {

/// What kernels are generated for.
struct GpuTarget {
  std::string name = "sm_90a"; ///< As NVRTC's --gpu-architecture spells it.
  int sm = 90;                 ///< Compute capability times ten.
  /// wgmma, TMA and the rest of the Hopper-only instructions may be used.
  bool hopper = true;
  /// Dense products are calls of cuBLASLt; otherwise kernels of our own.
  bool libraryGemm = true;
  /// Multiprocessors to size persistent grids for.
  int multiprocessors = 132;
  /// Pointers that a kernel on lists of tensors may have: 32,764 bytes of
  /// parameters (CUDA 12.1, any GPU since Volta), and what a bundle allows.
  int maxArguments = 4095;
};

/// Argument `arg` of the kernel (inputs, then outputs, then the workspace),
/// `offset` bytes in.
struct Operand {
  unsigned arg = 0;
  int64_t offset = 0;
};

/// A launch of emitted code: `q35::function<P>(args...)` from `header`, where P
/// is a struct of the constants.
struct DeviceStage {
  std::string header;   ///< "q35/norm.cuh", a file of codegen/device.
  std::string function; ///< Without namespace: "rms_norm".
  int64_t blocks = 1;   ///< The grid is one-dimensional.
  int threads = 256;    ///< Of a block.
  int64_t sharedBytes = 0; ///< Dynamic shared memory.
  int minBlocks = 1;    ///< Blocks per multiprocessor that registers allow.
  int clusterBlocks = 1;
  /// Members of P: name and C++ constant, see `constant`.
  llvm::SmallVector<std::pair<std::string, std::string>> constants;
  /// CUDA C++ printed before P, for bodies that no template can hold.
  std::string prologue;
  /// Constants of P by number: `name(i)`.
  llvm::SmallVector<std::pair<std::string, llvm::SmallVector<int64_t>>> tables;
  /// The pointers are one parameter, q35::Arguments (q35/lists.cuh), whatever
  /// they point to. The same bytes as parameters of their own, so a launch does
  /// not tell the difference.
  bool packed = false;
  // For profiles, see Cost.h:
  double flops = 0; ///< 0: by a rule, or bytes are what counts.
  double bytes = 0; ///< 0: by a rule.

  DeviceStage &constant(llvm::StringRef name, int64_t value);
  DeviceStage &constant(llvm::StringRef name, int value) {
    return constant(name, static_cast<int64_t>(value));
  }
  DeviceStage &constant(llvm::StringRef name, bool value);
  /// A float constant: rounded once from `value`.
  DeviceStage &constant(llvm::StringRef name, double value);
};

/// A dense product by the library, row-major: D[m,n] = op(A) op(B) + beta D.
/// A is [m,k], or [k,m] when transA; B is [k,n], or [n,k] when transB. Leading
/// dimensions count elements. bf16 or f32 operands, accumulated in f32.
struct GemmStage {
  int64_t m = 0, n = 0, k = 0;
  bool transA = false, transB = false;
  int64_t lda = 0, ldb = 0, ldd = 0;
  mlir::Type typeA, typeB, typeD;
  Operand a, b, d;
  bool accumulate = false; ///< beta = 1
  Operand workspace;
  int64_t workspaceBytes = 0;
};

using Stage = std::variant<DeviceStage, GemmStage>;

/// How a kernel is launched: its stages in order, on the same arguments. Blocks
/// of one stage run in any order and at the same time.
struct KernelPlan {
  llvm::SmallVector<Stage, 2> stages;
  int64_t workspaceBytes = 0; ///< 0: there is no workspace argument.
  /// (output, input) pairs that may be the very same buffer, element for
  /// element.
  llvm::SmallVector<std::pair<unsigned, unsigned>> mayAlias;
};

/// The kernels of one op, for any shapes and attributes. Stateless.
class KernelFamily {
public:
  virtual ~KernelFamily();
  virtual llvm::StringRef op() const = 0;
  /// Checks the spec (one error that names what was found and expected) and
  /// says what to launch.
  virtual llvm::FailureOr<KernelPlan> plan(const KernelSpec &spec,
                                           const GpuTarget &target,
                                           EmitError emitError) const = 0;
  /// Whether output `number` may be a view of rows further apart, at no cost.
  virtual bool writesViews(unsigned /*number*/) const { return false; }
  /// The outputs whose squares it can sum up, all or none: with {squares = true}
  /// one more output, the last, an f64 scalar.
  virtual llvm::ArrayRef<unsigned> squares() const { return {}; }
};

/// The family of an op, or null.
const KernelFamily *lookupKernel(llvm::StringRef op);
/// Not thread-safe; a second family of one op is an error of ours (assert).
void registerKernel(std::unique_ptr<KernelFamily> family);
/// Registers every family of this library; may be called again.
void registerAllKernels();

/// The translation unit of one device stage: an extern "C" kernel `symbol`
/// whose parameters are the pointers of the spec, in order.
std::string printSource(llvm::StringRef symbol, const KernelSpec &spec,
                        const KernelPlan &plan, unsigned stage);

/// The same unit for the host (q35/emulate.h): printSource and printLauncher.
std::string printEmulated(llvm::StringRef symbol, const KernelSpec &spec,
                          const KernelPlan &plan, unsigned stage);
/// The function that launches an emulated kernel with parameters of these
/// types ("const float *"):
///   void q35_launch_SYMBOL(void *const *args, long long blocks, int threads,
///                          long long sharedBytes, int order);
/// where args are the pointers themselves and order bit 0 reverses the threads
/// of a block, bit 1 the blocks; from 4 on it seeds a random order of threads.
/// `int q35_arguments_SYMBOL` counts the arguments.
std::string printLauncher(llvm::StringRef symbol,
                          llvm::ArrayRef<std::string> parameterTypes,
                          bool packed = false);

/// f32 and bf16: what activations may be.
llvm::SmallVector<mlir::Type, 2> floatTypes(const KernelSpec &spec);
/// Element strides of a memref, outermost first.
llvm::SmallVector<int64_t> stridesOf(mlir::MemRefType type);
/// The stride between rows of a memref seen as [rowCount, columns], or nothing
/// if its outer dimensions do not merge to one stride.
std::optional<int64_t> rowStride(mlir::MemRefType type);
int64_t bytesOf(mlir::Type element);

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_KERNEL_H
