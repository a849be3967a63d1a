#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Verify/Passes.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_VERIFYS0
#define GEN_PASS_DEF_VERIFYS1
#define GEN_PASS_DEF_VERIFYS2
#define GEN_PASS_DEF_VERIFYS3
#define GEN_PASS_DEF_VERIFYS4
#define GEN_PASS_DEF_VERIFYS5
#define GEN_PASS_DEF_VERIFYS6
#include "passes/Verify/Passes.h.inc"

namespace {

/// Reports an op that the stage must not have, and the pass that removes it.
LogicalResult unexpected(Operation *op, StringRef stage, StringRef remover) {
  InFlightDiagnostic error = op->emitError()
                             << "'" << op->getName() << "' in stage " << stage;
  if (!remover.empty())
    error.attachNote() << remover << " should have removed it";
  return error;
}

StringRef nameOf(func::FuncOp function, unsigned argument, StringRef attr) {
  auto value = function.getArgAttrOfType<StringAttr>(argument, attr);
  return value ? value.getValue() : "";
}

struct VerifyS0 : impl::VerifyS0Base<VerifyS0> {
  void runOnOperation() override {
    if (failed(check()))
      signalPassFailure();
  }

  LogicalResult check() {
    for (Operation &op : getOperation().getOps())
      if (!isa<func::FuncOp>(op) ||
          cast<func::FuncOp>(op).getName() != "model")
        return unexpected(&op, "S0", "");
    auto model = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!model)
      return getOperation().emitError("has no function @model");
    constexpr StringLiteral arguments[] = {"ids", "labels", "seq", "inv_count",
                                           "aux_scale"};
    if (model.getNumArguments() != std::size(arguments))
      return model.emitError("has ")
             << model.getNumArguments() << " arguments, expected "
             << std::size(arguments) << ": ids, labels, seq, inv_count, "
             << "aux_scale";
    for (auto [i, name] : llvm::enumerate(arguments))
      if (nameOf(model, i, kNameAttr) != name)
        return model.emitError("argument ")
               << i << " is named \"" << nameOf(model, i, kNameAttr)
               << "\", expected \"" << name << "\"";
    if (model.getNumResults() == 0)
      return model.emitError("returns no loss");
    for (unsigned i = 0; i < model.getNumResults(); ++i) {
      auto type = dyn_cast<RankedTensorType>(model.getResultTypes()[i]);
      if (!type || type.getRank() != 0 ||
          !model.getResultAttrOfType<StringAttr>(i, kNameAttr))
        return model.emitError("result ")
               << i << " is " << model.getResultTypes()[i]
               << ", expected a scalar with the attribute " << kNameAttr;
    }
    for (Operation &op : model.getBody().front().without_terminator())
      if (op.getName().getDialectNamespace() != "qwen35" ||
          op.getName().getStringRef().ends_with("_bwd") ||
          isa<LmLossGradOp, AdamWOp, NormSqOp, ClipFactorOp, MatmulOp>(op))
        return unexpected(&op, "S0", "");
    return success();
  }
};

/// What S1 and S4 share: the functions of a step and their ops.
struct StepVerifier {
  StringRef stage;
  bool groups; // qkern.group may hold ops, and ranks may exchange
  bool ranks = false; // of S2 and S3: ops of qdist

  LogicalResult check(ModuleOp module) {
    for (StringRef name : {"eval", "first", "accumulate", "finish", "only"}) {
      auto function = module.lookupSymbol<func::FuncOp>(name);
      if (!function)
        return module.emitError("has no function @") << name;
      if (failed(check(function)))
        return failure();
    }
    auto refresh = module.lookupSymbol<func::FuncOp>("refresh");
    if (refresh && failed(check(refresh)))
      return failure();
    auto finish = module.lookupSymbol<func::FuncOp>("finish");
    for (unsigned i = 0; i < finish.getNumArguments() && !refresh; ++i)
      if (nameOf(finish, i, kRoleAttr) == "work")
        return finish.emitError("argument ")
               << i << " is a working copy of a weight, but the module has no "
               << "function @refresh to make it";
    for (Operation &op : module.getOps())
      if (!isa<func::FuncOp>(op))
        return unexpected(&op, stage, "");
    return success();
  }

  LogicalResult check(func::FuncOp function) {
    constexpr StringLiteral roles[] = {"weight", "work", "m",     "v",
                                       "grad",   "sum",  "input", "scalar"};
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (!llvm::is_contained(roles, nameOf(function, i, kRoleAttr)) ||
          nameOf(function, i, kNameAttr).empty())
        return function.emitError("argument ")
               << i << " has the role \"" << nameOf(function, i, kRoleAttr)
               << "\" and the name \"" << nameOf(function, i, kNameAttr)
               << "\", expected a role of docs/stages.md and a name";
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      if (auto alias =
              function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr)) {
        int64_t argument = alias.getInt();
        if (argument < 0 || argument >= function.getNumArguments() ||
            function.getArgumentTypes()[argument] !=
                function.getResultTypes()[i])
          return function.emitError("result ")
                 << i << " cannot overwrite argument " << argument;
      } else if (!function.getResultAttrOfType<StringAttr>(i, kNameAttr)) {
        return function.emitError("result ")
               << i << " has neither a name nor an argument to overwrite";
      }
    }
    return checkOps(function.getBody().front());
  }

  LogicalResult checkOps(Block &block) {
    for (Operation &op : block.without_terminator()) {
      auto group = dyn_cast<qkern::GroupOp>(op);
      if (group && groups && !isa<qkern::GroupOp>(op.getParentOp())) {
        if (failed(checkOps(group.getBody().front())))
          return failure();
      } else if ((groups || ranks) &&
                 op.getName().getDialectNamespace() == "qdist" &&
                 !isa<qkern::GroupOp>(op.getParentOp())) {
        bool seed = isa<qdist::ShardConstraintOp>(op);
        if (seed && stage != "S2")
          return unexpected(&op, stage, "--qwen35-partition");
        if (!seed && stage == "S2")
          return unexpected(&op, stage, "");
      } else if (op.getName().getDialectNamespace() != "qwen35" ||
                 isa<ParamOp>(op)) {
        return unexpected(&op, stage,
                          isa<ParamOp>(op) ? "--qwen35-optimizer" : "");
      }
    }
    return success();
  }
};

/// What a collective that was only started makes is read by its wait alone.
LogicalResult checkFlights(func::FuncOp function) {
  for (Operation &op : function.getBody().front()) {
    if (!qdist::isAsync(&op))
      continue;
    SmallPtrSet<Operation *, 2> waits;
    for (Operation *user : op.getUsers()) {
      if (!isa<qdist::WaitOp>(user)) {
        InFlightDiagnostic error =
            user->emitError("'") << user->getName()
                                 << "' reads what is still in flight, "
                                    "expected the result of a 'qdist.wait'";
        error.attachNote(op.getLoc()) << "it was started here";
        return error;
      }
      waits.insert(user);
    }
    if (waits.size() != 1)
      return op.emitError("'") << op.getName() << "' is started and awaited "
                               << waits.size() << " times, expected once";
  }
  return success();
}

struct VerifyS1 : impl::VerifyS1Base<VerifyS1> {
  void runOnOperation() override {
    if (failed(StepVerifier{"S1", /*groups=*/false}.check(getOperation())))
      signalPassFailure();
  }
};

/// What S2 and S3 promise beyond S1.
struct RanksVerifier {
  StringRef stage;
  bool annotated;

  LogicalResult check(ModuleOp module) {
    if (!qdist::meshOf(module))
      return module.emitError("has no '")
             << qdist::kMeshAttr << "' in stage " << stage;
    if (failed(StepVerifier{stage, /*groups=*/false, /*ranks=*/true}.check(
            module)))
      return failure();
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(check(function)))
        return failure();
    return success();
  }

  LogicalResult check(func::FuncOp function) {
    if (failed(checkFlights(function)))
      return failure();
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (!function.getArgAttrOfType<qdist::ShardingAttr>(
              i, qdist::kShardingAttr))
        return function.emitError("argument ")
               << i << " has no '" << qdist::kShardingAttr << "'";
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto sharding = function.getResultAttrOfType<qdist::ShardingAttr>(
          i, qdist::kShardingAttr);
      if (!sharding)
        return function.emitError("result ")
               << i << " has no '" << qdist::kShardingAttr << "'";
      auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
      bool sum = alias && nameOf(function, alias.getInt(), kRoleAttr) == "grad";
      if (!sharding.getPartial().empty() && !sum)
        return function.emitError("result ")
               << i << " is returned as " << sharding
               << ", expected no partial value but gradient sums";
    }
    for (Operation &op : function.getBody().front().without_terminator())
      for (auto [name, count] :
           {std::pair<StringRef, size_t>{qdist::kOperandsAttr,
                                         op.getNumOperands()},
            {qdist::kResultsAttr, op.getNumResults()}}) {
        auto list = op.getAttrOfType<ArrayAttr>(name);
        if (!annotated && list)
          return op.emitError("'")
                 << op.getName() << "' has '" << name << "' in stage " << stage;
        if (annotated && (!list || list.size() != count))
          return op.emitError("'")
                 << op.getName() << "' has no '" << name << "' for its "
                 << count << " values in stage " << stage;
      }
    return success();
  }
};

struct VerifyS2 : impl::VerifyS2Base<VerifyS2> {
  void runOnOperation() override {
    if (failed(RanksVerifier{"S2", /*annotated=*/true}.check(getOperation())))
      signalPassFailure();
  }
};

struct VerifyS3 : impl::VerifyS3Base<VerifyS3> {
  void runOnOperation() override {
    if (failed(RanksVerifier{"S3", /*annotated=*/false}.check(getOperation())))
      signalPassFailure();
  }
};

struct VerifyS4 : impl::VerifyS4Base<VerifyS4> {
  void runOnOperation() override {
    if (failed(StepVerifier{"S4", /*groups=*/true}.check(getOperation())))
      return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(checkFlights(function)))
        return signalPassFailure();
  }
};

struct VerifyS5 : impl::VerifyS5Base<VerifyS5> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([&](Operation *op) {
      if (isa<ModuleOp, func::FuncOp, func::ReturnOp, qkern::DispatchOp,
              qkern::ViewOp, qkern::JoinOp, qkern::CollectiveOp, qkern::WaitOp,
              qdist::RankVarOp>(op))
        return WalkResult::advance();
      (void)unexpected(op, "S5", "--qwen35-to-kernels");
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (Type type : function.getArgumentTypes())
        if (!isa<RankedTensorType>(type)) {
          function.emitError("has an argument of type ")
              << type << " in stage S5, expected tensors only";
          return signalPassFailure();
        }
  }
};

struct VerifyS6 : impl::VerifyS6Base<VerifyS6> {
  void runOnOperation() override {
    llvm::StringMap<qplan::ArenaOp> arenas;
    for (auto arena : getOperation().getOps<qplan::ArenaOp>())
      arenas[arena.getSymName()] = arena;
    for (auto buffer : getOperation().getOps<qplan::BufferOp>()) {
      buffers[buffer.getSymName()] = buffer;
      if (failed(checkBuffer(buffer, arenas.lookup(buffer.getArena()))))
        return signalPassFailure();
    }
    for (auto kernel : getOperation().getOps<qplan::KernelOp>())
      kernels[kernel.getSymName()] = kernel;
    for (Operation &op : getOperation().getOps()) {
      if (op.getName().getDialectNamespace() != "qplan") {
        (void)unexpected(&op, "S6", "--qwen35-plan-memory");
        return signalPassFailure();
      }
      auto program = dyn_cast<qplan::ProgramOp>(op);
      if (!program)
        continue;
      for (auto launch : program.getBody().getOps<qplan::LaunchOp>())
        if (failed(checkLaunch(launch)))
          return signalPassFailure();
      for (auto exchange : program.getBody().getOps<qplan::CollectiveOp>())
        if (failed(checkCollective(exchange)))
          return signalPassFailure();
      if (failed(checkFlights(program)))
        return signalPassFailure();
    }
  }

  /// Bytes of an arena that an entry touches.
  struct Touch {
    StringRef arena, buffer;
    int64_t begin, end;
    bool write;
  };

  void touch(SmallVectorImpl<Touch> &list, FlatSymbolRefAttr symbol,
             int64_t offset, int64_t bytes, bool write) {
    qplan::BufferOp buffer = buffers.lookup(symbol.getValue());
    int64_t begin = static_cast<int64_t>(buffer.getOffset()) + offset;
    list.push_back({buffer.getArena(), symbol.getValue(), begin, begin + bytes,
                    write});
  }

  SmallVector<Touch> touchesOf(Operation &op) {
    SmallVector<Touch> list;
    if (auto launch = dyn_cast<qplan::LaunchOp>(op)) {
      for (auto [i, symbol] : llvm::enumerate(
               launch.getBuffers().getAsRange<FlatSymbolRefAttr>()))
        touch(list, symbol, launch.getOffsets()[i], launch.getBytes()[i],
              launch.getWrites()[i]);
    } else if (auto fill = dyn_cast<qplan::MemsetOp>(op)) {
      touch(list, fill.getBufferAttr(), 0,
            buffers.lookup(fill.getBuffer()).bytes(), true);
    } else if (auto exchange = dyn_cast<qplan::CollectiveOp>(op)) {
      int64_t width = exchange.elementBytes();
      for (auto [i, symbol] : llvm::enumerate(
               exchange.getBuffers().getAsRange<FlatSymbolRefAttr>()))
        touch(list, symbol, exchange.getOffsets()[i],
              exchange.getCounts()[i / 2] * width *
                  (i % 2 ? exchange.receivePieces() : exchange.sendPieces()),
              i % 2);
      for (auto [at, pieces] :
           {std::pair(int64_t(exchange.getSendStage()), exchange.sendPieces()),
            std::pair(int64_t(exchange.getReceiveStage()),
                      exchange.receivePieces())})
        if (at >= 0)
          touch(list, exchange.getStageAttr(), at,
                pieces * exchange.pieceBytes(), true);
    }
    return list;
  }

  /// From its start to its wait a collective's bytes are its own.
  LogicalResult checkFlights(qplan::ProgramOp program) {
    struct Flight {
      qplan::CollectiveOp op;
      SmallVector<Touch> touches;
    };
    SmallVector<Flight> flying;
    for (Operation &op : program.getBody().front()) {
      if (auto wait = dyn_cast<qplan::WaitOp>(op)) {
        auto found = llvm::find_if(flying, [&](Flight &flight) {
          return flight.op.getSequence() == wait.getSequence();
        });
        if (found == flying.end())
          return wait.emitOpError("waits for number ")
                 << wait.getSequence() << ", which is not in flight";
        flying.erase(found);
        continue;
      }
      SmallVector<Touch> touches = touchesOf(op);
      for (Flight &flight : flying)
        for (const Touch &his : flight.touches)
          for (const Touch &mine : touches)
            if (his.arena == mine.arena && his.begin < mine.end &&
                mine.begin < his.end && (his.write || mine.write)) {
              InFlightDiagnostic error =
                  op.emitOpError(mine.write ? "writes" : "reads")
                  << " bytes of @" << mine.buffer << " that number "
                  << flight.op.getSequence() << " in flight "
                  << (his.write ? "writes" : "reads") << " as @" << his.buffer;
              error.attachNote(flight.op.getLoc()) << "it was started here";
              return error;
            }
      if (auto exchange = dyn_cast<qplan::CollectiveOp>(op);
          exchange && exchange.getAsync())
        flying.push_back({exchange, std::move(touches)});
    }
    if (!flying.empty())
      return flying[0].op.emitOpError("is started and never awaited");
    return success();
  }

  LogicalResult checkBuffer(qplan::BufferOp buffer, qplan::ArenaOp arena) {
    if (!arena)
      return buffer.emitOpError("lies in arena @")
             << buffer.getArena() << ", which is not there";
    int64_t offset = buffer.getOffset(), bytes = buffer.bytes();
    int64_t size = arena.getBytes(), align = arena.getAlign();
    if (offset < 0 || offset % align != 0) // C1
      return buffer.emitOpError("starts at ")
             << offset << ", expected a multiple of " << align;
    if (bytes > size - offset) // C2
      return buffer.emitOpError("ends at ")
             << offset + bytes << " of an arena of " << size << " bytes";
    return success();
  }

  LogicalResult checkLaunch(qplan::LaunchOp launch) {
    qplan::KernelOp kernel = kernels.lookup(launch.getKernel());
    if (!kernel)
      return launch.emitOpError("starts @")
             << launch.getKernel() << ", which is not there";
    size_t expected = kernel.getInputs().size() + kernel.getOutputs().size() +
                      (kernel.getWorkspace() ? 1 : 0);
    if (launch.getBuffers().size() != expected)
      return launch.emitOpError("passes ")
             << launch.getBuffers().size() << " arguments to a kernel of "
             << expected;
    if (launch.getStage() >= kernel.getStages())
      return launch.emitOpError("starts stage ")
             << launch.getStage() << " of a kernel that has "
             << kernel.getStages();
    for (auto [i, symbol] : llvm::enumerate(
             launch.getBuffers().getAsRange<FlatSymbolRefAttr>())) {
      qplan::BufferOp buffer = buffers.lookup(symbol.getValue());
      if (!buffer)
        return launch.emitOpError("argument ")
               << i << " is @" << symbol.getValue() << ", which is not there";
      int64_t offset = launch.getOffsets()[i], bytes = launch.getBytes()[i];
      if (offset < 0 || bytes < 0 || bytes > buffer.bytes() - offset)
        return launch.emitOpError("argument ")
               << i << " touches bytes " << offset << " to " << offset + bytes
               << " of @" << symbol.getValue() << ", which has "
               << buffer.bytes();
    }
    return success();
  }

  /// The ranks of its axes; its number; its places.
  LogicalResult checkCollective(qplan::CollectiveOp op) {
    std::optional<Mesh> mesh = qdist::meshOf(op);
    if (!mesh)
      return op.emitOpError("is in a module without '") << qdist::kMeshAttr
                                                        << "'";
    MeshAxes axes = 0;
    for (StringRef name : op.getAxes().getAsValueRange<StringAttr>()) {
      std::optional<MeshAxes> atoms = mesh->axes({name.data(), name.size()});
      if (!atoms)
        return op.emitOpError("runs over \"")
               << name << "\", which the mesh has not";
      axes |= *atoms;
    }
    if (mesh->size(axes) != static_cast<int64_t>(op.getRanks()))
      return op.emitOpError("runs over ")
             << op.getRanks() << " ranks, but its axes have "
             << mesh->size(axes);
    if (static_cast<int64_t>(op.getSequence()) != sequence)
      return op.emitOpError("is number ")
             << op.getSequence() << ", expected " << sequence
             << ": collectives have one order";
    ++sequence;
    int64_t width = op.elementBytes();
    for (auto [i, symbol] : llvm::enumerate(
             op.getBuffers().getAsRange<FlatSymbolRefAttr>())) {
      int64_t pieces = i % 2 ? op.receivePieces() : op.sendPieces();
      if (failed(checkPlace(op, symbol, op.getOffsets()[i],
                            op.getCounts()[i / 2] * pieces * width)))
        return failure();
    }
    for (auto [at, pieces] :
         {std::pair(int64_t(op.getSendStage()), op.sendPieces()),
          std::pair(int64_t(op.getReceiveStage()), op.receivePieces())})
      if (at >= 0 &&
          failed(checkPlace(op, op.getStageAttr(), at,
                            pieces * op.pieceBytes())))
        return failure();
    return success();
  }

  LogicalResult checkPlace(Operation *op, FlatSymbolRefAttr symbol,
                           int64_t offset, int64_t bytes) {
    qplan::BufferOp buffer = buffers.lookup(symbol.getValue());
    if (!buffer)
      return op->emitOpError("touches @")
             << symbol.getValue() << ", which is not there";
    if (offset < 0 || bytes < 0 || bytes > buffer.bytes() - offset)
      return op->emitOpError("touches bytes ")
             << offset << " to " << offset + bytes << " of @"
             << symbol.getValue() << ", which has " << buffer.bytes();
    return success();
  }

  llvm::StringMap<qplan::BufferOp> buffers;
  llvm::StringMap<qplan::KernelOp> kernels;
  int64_t sequence = 0;
};

} // namespace
} // namespace qwen35
