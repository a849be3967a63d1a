#include "codegen/emit/EmitBundle.h"

#include "codegen/emit/DescribeStage.h"
#include "dialect/QDist/IR/QDistDialect.h"

#include "llvm/ADT/StringMap.h"

#include <map>
#include <optional>

using namespace mlir;
using namespace qwen35::qplan;

namespace qwen35::codegen {

namespace {

constexpr llvm::StringLiteral kRanksFeature = "ranks"; // runtime/bundle/ranks.h

class PlanEmitter {
public:
  PlanEmitter(DescribeKernel describe, bundle::Bundle &out)
      : describe(describe), out(out) {}

  LogicalResult run(ModuleOp module, int64_t tokens, int64_t maxDocs) {
    // Symbols first: launches and params may stand before what they name.
    uint64_t planned = 0;
    emitMesh(module);
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
      if (auto param = dyn_cast<qplan::ParamOp>(op)) {
        if (failed(emitParam(param, parameters)))
          return failure();
      } else if (auto entry = dyn_cast<IoOp>(op)) {
        if (failed(emitIo(entry)))
          return failure();
      } else if (auto coordinate = dyn_cast<RankVarOp>(op)) {
        if (failed(emitRankVar(coordinate)))
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

  /// One rank has no mesh, and a bundle without one.
  void emitMesh(ModuleOp module) {
    mesh = qdist::meshOf(module);
    if (mesh && mesh->ranks() == 1)
      mesh.reset();
    if (!mesh)
      return;
    out.mutable_header()->add_features(kRanksFeature.str());
    const MeshShape &shape = mesh->shape();
    bundle::Mesh *entry = out.mutable_mesh();
    entry->set_pp(shape.pp);
    entry->set_dpr(shape.dpr);
    entry->set_dps(shape.dps);
    entry->set_cp(shape.cp);
    entry->set_tp(shape.tp);
    entry->set_ep(shape.ep);
    entry->set_kv(shape.kv);
  }

  /// The communicator over these axes, in the order of first use.
  FailureOr<uint32_t> communicator(Operation *op, ArrayAttr names) {
    MeshAxes axes = mesh ? qdist::axesOf(*mesh, names) : 0;
    if (axes == 0)
      return op->emitOpError("runs over axes of no mesh: expected '")
             << qdist::kMeshAttr << "' on the module";
    auto [found, fresh] = communicators.try_emplace(
        axes, static_cast<uint32_t>(out.communicators_size()));
    if (!fresh)
      return found->second;
    bundle::Communicator *entry = out.add_communicators();
    for (const std::string &name : mesh->names(axes))
      entry->add_axes(name);
    for (const std::vector<int64_t> &group : mesh->groups(axes)) {
      bundle::Group *ranks = entry->add_groups();
      for (int64_t rank : group)
        ranks->add_ranks(rank);
    }
    return found->second;
  }

  /// The tensor of which `shape` is a piece, or nothing where it is all of it.
  void emitShard(Operation *op,
                 const google::protobuf::RepeatedField<int64_t> &shape,
                 function_ref<bundle::Shard *()> entry,
                 StringRef name = qdist::kShardingAttr) {
    auto attr = op->getAttrOfType<qdist::ShardingAttr>(name);
    if (!attr || !mesh)
      return;
    qdist::Sharding sharding = qdist::Sharding::of(attr, *mesh);
    if (sharding.split() == 0)
      return;
    bundle::Shard *out = entry();
    for (int d = 0; d < shape.size(); ++d) {
      MeshAxes axes = sharding.dims[d];
      out->add_global_shape(shape[d] * mesh->size(axes));
      bundle::ShardDim *dim = out->add_dims();
      for (const std::string &name : mesh->names(axes))
        dim->add_axes(name);
      if (axes != 0)
        for (int64_t section : sharding.sectionsOf(d))
          dim->add_sections(section);
    }
  }

  LogicalResult emitRankVar(RankVarOp op) {
    uint32_t buffer;
    FailureOr<uint32_t> group = communicator(op, op.getAxes());
    if (failed(group) || failed(find(op, op.getBuffer(), buffers, buffer)))
      return failure();
    bundle::RankVar *entry = out.add_rank_vars();
    entry->set_communicator(*group);
    entry->set_buffer(buffer);
    return success();
  }

  LogicalResult emitCollective(CollectiveOp op, bundle::Collective *entry) {
    static const llvm::StringMap<bundle::Collective::Kind> kinds = {
        {"all_gather", bundle::Collective::ALL_GATHER},
        {"all_reduce", bundle::Collective::ALL_REDUCE},
        {"reduce_scatter", bundle::Collective::REDUCE_SCATTER},
        {"all_to_all", bundle::Collective::ALL_TO_ALL},
        {"all_slice", bundle::Collective::ALL_SLICE},
        {"shift", bundle::Collective::SHIFT}};
    auto kind = kinds.find(op.getKind());
    if (kind == kinds.end())
      return op.emitOpError("kind is \"") << op.getKind()
                                          << "\", which no rank can run";
    FailureOr<uint32_t> group = communicator(op, op.getAxes());
    if (failed(group))
      return failure();
    entry->set_kind(kind->second);
    entry->set_communicator(*group);
    entry->set_sequence(op.getSequence());
    if (op.getAsync())
      entry->set_async(true);
    entry->set_dtype(dtypeOf(op.getDtype()));
    entry->set_reduction(op.getReduction() == "max" ? bundle::Collective::MAX
                                                    : bundle::Collective::SUM);
    if (op.getWire() && *op.getWire() != op.getDtype())
      entry->set_wire(dtypeOf(*op.getWire()));
    if (op.getAccumulate())
      entry->set_accumulate(dtypeOf(*op.getAccumulate()));
    entry->set_offset(op.getOffset());
    entry->set_tag(op.getTag().str());
    auto fill = [&](FlatSymbolRefAttr symbol, int64_t offset, int64_t bytes,
                    bool write, bundle::Arg *arg) -> LogicalResult {
      uint32_t index;
      if (failed(find(op, symbol.getValue(), buffers, index)))
        return failure();
      arg->set_buffer(index);
      arg->set_offset(offset);
      arg->set_bytes(bytes);
      arg->set_write(write);
      return success();
    };
    for (auto [p, count] : llvm::enumerate(op.getCounts())) {
      bundle::Collective::Part *part = entry->add_parts();
      part->set_count(count);
      part->set_send_outer(op.getSendOuter()[p]);
      part->set_receive_outer(op.getReceiveOuter()[p]);
      int64_t bytes = count * op.elementBytes();
      auto symbol = [&](size_t i) {
        return cast<FlatSymbolRefAttr>(op.getBuffers()[i]);
      };
      if (failed(fill(symbol(2 * p), op.getOffsets()[2 * p],
                      bytes * op.sendPieces(), false, part->mutable_send())) ||
          failed(fill(symbol(2 * p + 1), op.getOffsets()[2 * p + 1],
                      bytes * op.receivePieces(), true,
                      part->mutable_receive())))
        return failure();
    }
    int64_t send = op.getSendStage(), receive = op.getReceiveStage();
    if (send >= 0 &&
        failed(fill(op.getStageAttr(), send, op.sendPieces() * op.pieceBytes(),
                    true, entry->mutable_send_stage())))
      return failure();
    if (receive >= 0 && failed(fill(op.getStageAttr(), receive,
                                    op.receivePieces() * op.pieceBytes(), true,
                                    entry->mutable_receive_stage())))
      return failure();
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

  LogicalResult emitParam(qplan::ParamOp op, uint64_t &parameters) {
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
    emitShard(op, entry->shape(), [&] {
      elements *= mesh->size(
          qdist::Sharding::of(op->getAttrOfType<qdist::ShardingAttr>(
                                  qdist::kShardingAttr),
                              *mesh)
              .split());
      return entry->mutable_shard();
    });
    emitShard(
        op, out.buffers(m).shape(), [&] { return entry->mutable_moments(); },
        qdist::kMomentsAttr);
    emitShard(
        op, out.buffers(grad).shape(),
        [&] { return entry->mutable_gradient(); }, qdist::kGradientAttr);
    auto gradient =
        op->getAttrOfType<qdist::ShardingAttr>(qdist::kGradientAttr);
    if (gradient && mesh)
      for (const std::string &axis :
           mesh->names(qdist::Sharding::of(gradient, *mesh).partial))
        entry->add_gradient_axes(axis);
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
    // Tables are whole.
    if (op.getKind() == "input" && op.getName() != "seq" &&
        op.getName() != "stripes")
      emitShard(op, out.buffers(static_cast<int>(buffer)).shape(),
                [&] { return entry->mutable_shard(); });
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
      if (auto collective = dyn_cast<CollectiveOp>(entry)) {
        if (failed(emitCollective(
                collective, program->add_entries()->mutable_collective())))
          return failure();
        continue;
      }
      if (auto wait = dyn_cast<WaitOp>(entry)) {
        program->add_entries()->mutable_wait()->set_sequence(
            wait.getSequence());
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
  std::optional<Mesh> mesh;
  std::map<MeshAxes, uint32_t> communicators;
};

} // namespace

LogicalResult emitPlan(ModuleOp module, int64_t tokens, int64_t maxDocs,
                       DescribeKernel describe, bundle::Bundle &out) {
  return PlanEmitter(describe, out).run(module, tokens, maxDocs);
}

} // namespace qwen35::codegen
