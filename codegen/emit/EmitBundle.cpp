#include "codegen/emit/EmitBundle.h"

#include "codegen/emit/DescribeStage.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace qwen35::qplan;

namespace qwen35::codegen {

namespace {

class PlanEmitter {
public:
  PlanEmitter(DescribeKernel describe, bundle::Bundle &out)
      : describe(describe), out(out) {}

  LogicalResult run(ModuleOp module, int64_t tokens, int64_t maxDocs) {
    // Symbols first: launches and params may stand before what they name.
    uint64_t planned = 0;
    for (auto arena : module.getOps<ArenaOp>()) {
      arenas[arena.getSymName()] = out.arenas_size();
      bundle::Arena *entry = out.add_arenas();
      entry->set_name(arena.getSymName().str());
      entry->set_bytes(arena.getBytes());
      entry->set_align(arena.getAlign());
      planned += arena.getBytes();
    }
    out.mutable_provenance()->set_planned_peak(planned);
    for (auto buffer : module.getOps<BufferOp>())
      if (failed(emitBuffer(buffer)))
        return failure();
    for (auto kernel : module.getOps<KernelOp>())
      emitKernel(kernel);

    bundle::IoSignature *io = out.mutable_io();
    io->set_tokens(tokens);
    io->set_max_docs(maxDocs);
    uint64_t parameters = 0;
    for (Operation &op : module.getOps()) {
      if (auto param = dyn_cast<ParamOp>(op)) {
        if (failed(emitParam(param, parameters)))
          return failure();
      } else if (auto entry = dyn_cast<IoOp>(op)) {
        if (failed(emitIo(entry)))
          return failure();
      } else if (auto program = dyn_cast<ProgramOp>(op)) {
        if (failed(emitProgram(program)))
          return failure();
      } else if (!isa<ArenaOp, BufferOp, KernelOp>(op)) {
        return op.emitError("is not part of a plan: run "
                            "--qwen35-plan-memory first");
      }
    }
    out.mutable_model()->set_parameters(parameters);
    return success();
  }

private:
  template <typename Op>
  LogicalResult find(Op op, StringRef symbol,
                     const llvm::StringMap<uint32_t> &table, uint32_t &index) {
    auto found = table.find(symbol);
    if (found == table.end())
      return op.emitOpError("refers to @") << symbol << ", which is not there";
    index = found->second;
    return success();
  }

  LogicalResult emitBuffer(BufferOp op) {
    uint32_t arena;
    if (failed(find(op, op.getArena(), arenas, arena)))
      return failure();
    auto type = cast<ShapedType>(op.getType());
    buffers[op.getSymName()] = out.buffers_size();
    bundle::Buffer *entry = out.add_buffers();
    entry->set_name(op.getSymName().str());
    entry->set_arena(arena);
    entry->set_offset(op.getOffset());
    entry->set_bytes(op.bytes());
    entry->set_dtype(dtypeOf(type.getElementType()));
    for (int64_t size : type.getShape())
      entry->add_shape(size);
    entry->set_category(op.getCategory().str());
    return success();
  }

  void emitKernel(KernelOp op) {
    kernels[op.getSymName()] = out.kernels_size();
    uint32_t args = op.getInputs().size() + op.getOutputs().size() +
                    (op.getWorkspace() ? 1 : 0);
    for (unsigned stage = 0; stage < op.getStages(); ++stage) {
      bundle::Kernel *entry = out.add_kernels();
      entry->set_op(op.getKernel().str());
      entry->set_args(args);
      describe(op, stage, *entry);
    }
  }

  LogicalResult emitParam(ParamOp op, uint64_t &parameters) {
    uint32_t weight, m, v, grad;
    if (failed(find(op, op.getWeight(), buffers, weight)) ||
        failed(find(op, op.getM(), buffers, m)) ||
        failed(find(op, op.getV(), buffers, v)) ||
        failed(find(op, op.getGrad(), buffers, grad)))
      return failure();
    bundle::Param *entry = out.add_params();
    entry->set_name(op.getName().str());
    uint64_t elements = 1;
    for (int64_t size : out.buffers(weight).shape()) {
      entry->add_shape(size);
      elements *= size;
    }
    parameters += elements;
    entry->set_weight(weight);
    entry->set_m(m);
    entry->set_v(v);
    entry->set_grad(grad);
    if (auto symbol = op.getWork()) {
      uint32_t work;
      if (failed(find(op, *symbol, buffers, work)))
        return failure();
      entry->set_work(work);
    }
    entry->set_decay(op.getDecay());
    entry->set_init(op.getInit().str());
    StringRef dtype = op.getFileDtype();
    if (dtype == "f32")
      entry->set_file_dtype(bundle::F32);
    else if (dtype == "bf16")
      entry->set_file_dtype(bundle::BF16);
    else
      return op.emitOpError("file_dtype is \"")
             << dtype << "\", expected f32 or bf16";
    return success();
  }

  LogicalResult emitIo(IoOp op) {
    uint32_t buffer;
    if (failed(find(op, op.getBuffer(), buffers, buffer)))
      return failure();
    bundle::IoSignature *io = out.mutable_io();
    bundle::IoBuffer *entry;
    if (op.getKind() == "input")
      entry = io->add_inputs();
    else if (op.getKind() == "scalar")
      entry = io->add_scalars();
    else if (op.getKind() == "output")
      entry = io->add_outputs();
    else
      return op.emitOpError("kind is \"")
             << op.getKind() << "\", expected input, scalar or output";
    entry->set_name(op.getName().str());
    entry->set_buffer(buffer);
    return success();
  }

  LogicalResult emitProgram(ProgramOp op) {
    bundle::Program *program = out.add_programs();
    program->set_name(op.getSymName().str());
    for (Operation &entry : op.getBody().front()) {
      if (auto memset = dyn_cast<MemsetOp>(entry)) {
        uint32_t buffer;
        if (failed(find(memset, memset.getBuffer(), buffers, buffer)))
          return failure();
        bundle::Memset *out = program->add_entries()->mutable_memset();
        out->set_buffer(buffer);
        out->set_value(memset.getValue());
        continue;
      }
      auto launch = dyn_cast<LaunchOp>(entry);
      if (!launch)
        return entry.emitError("is neither a launch nor a memset");
      uint32_t kernel;
      if (failed(find(launch, launch.getKernel(), kernels, kernel)))
        return failure();
      bundle::Launch *out = program->add_entries()->mutable_launch();
      out->set_kernel(kernel + launch.getStage());
      out->set_grid(launch.getGrid());
      out->set_tag(launch.getTag().str());
      for (auto [i, buffer] : llvm::enumerate(
               launch.getBuffers().getAsRange<FlatSymbolRefAttr>())) {
        uint32_t index;
        if (failed(find(launch, buffer.getValue(), buffers, index)))
          return failure();
        bundle::Arg *arg = out->add_args();
        arg->set_buffer(index);
        arg->set_offset(launch.getOffsets()[i]);
        arg->set_bytes(launch.getBytes()[i]);
        arg->set_write(launch.getWrites()[i]);
      }
    }
    return success();
  }

  DescribeKernel describe;
  bundle::Bundle &out;
  llvm::StringMap<uint32_t> arenas, buffers, kernels;
};

} // namespace

LogicalResult emitPlan(ModuleOp module, int64_t tokens, int64_t maxDocs,
                       DescribeKernel describe, bundle::Bundle &out) {
  return PlanEmitter(describe, out).run(module, tokens, maxDocs);
}

} // namespace qwen35::codegen
