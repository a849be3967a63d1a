#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Memory/Passes.h"
#include "passes/Memory/Placement.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <numeric>

using namespace mlir;
using namespace qwen35::qplan;

namespace qwen35 {

#define GEN_PASS_DEF_PLANMEMORY
#include "passes/Memory/Passes.h.inc"

namespace {

constexpr int64_t kAlign = 256;
constexpr size_t kMostParts = 1 << 16; // of a collective
constexpr int64_t kLargest = 20; // buffers named in the report

/// A tensor or workspace that needs bytes in the act arena.
struct Item {
  Value value;          // null for a workspace
  Operation *op;        // its producer
  std::string category;
  std::string symbol;
};

/// Bytes [offset, offset + bytes) of a named buffer.
struct Place {
  std::string buffer;
  int64_t offset = 0;
};

/// An op that does something: a kernel or a collective.
struct Action {
  Operation *op = nullptr;
  StringRef name;
  ValueRange inputs;
  ArrayRef<int64_t> aliases;
  int64_t workspace = 0;

  explicit operator bool() const { return op; }
};

Action actionOf(Operation *op) {
  if (auto call = dyn_cast<qkern::DispatchOp>(op))
    return {op, call.getKernel(), call.getInputs(), call.getAliases(),
            static_cast<int64_t>(call.getWorkspace())};
  if (auto exchange = dyn_cast<qkern::CollectiveOp>(op))
    return {op, exchange.getKind(), exchange.getInputs(),
            exchange.getAliases(),
            static_cast<int64_t>(exchange.getWorkspace())};
  if (auto wait = dyn_cast<qkern::WaitOp>(op)) {
    // Its results are where they were made: one alias each.
    static const SmallVector<int64_t> identity = [] {
      SmallVector<int64_t> list(kMostParts);
      std::iota(list.begin(), list.end(), 0);
      return list;
    }();
    return {op, "wait", wait.getInputs(),
            ArrayRef(identity).take_front(wait.getInputs().size())};
  }
  return {};
}

std::string tagOf(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().str();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (std::string tag = tagOf(part); !tag.empty())
        return tag;
  return "";
}

class Planner {
public:
  explicit Planner(ModuleOp module)
      : module(module), builder(module.getContext()) {}

  LogicalResult run() {
    auto finish = module.lookupSymbol<func::FuncOp>("finish");
    if (!finish)
      return module.emitError("has no function @finish to plan");
    SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
    builder.setInsertionPointToEnd(module.getBody());
    planState(finish);
    planBegin(finish);
    for (func::FuncOp function : functions)
      if (failed(planFunction(function)))
        return failure();
    for (StringRef arena : {"state", "io", "act"}) {
      builder.setInsertionPointToStart(module.getBody());
      ArenaOp::create(builder, module.getLoc(), arena, arenaBytes[arena],
                      kAlign);
    }
    module->setAttr("qplan.report", builder.getDictionaryAttr(reports));
    for (func::FuncOp function : functions)
      function.erase();
    return success();
  }

private:
  static std::string stateSymbol(StringRef role, StringRef name) {
    return (role + ":" + name).str();
  }

  void addBuffer(StringRef symbol, StringRef arena, int64_t offset, Type type,
                 StringRef category) {
    BufferOp::create(builder, module.getLoc(), symbol, arena, offset, type,
                     category);
  }

  /// Appends a buffer to an arena whose contents live for the whole run.
  void append(StringRef symbol, StringRef arena, Type type,
              StringRef category) {
    int64_t &end = arenaBytes[arena];
    addBuffer(symbol, arena, end, type, category);
    end += llvm::alignTo(bytesOf(cast<ShapedType>(type)), kAlign);
  }

  void planState(func::FuncOp finish) {
    llvm::StringSet<> works;
    llvm::StringMap<qplan::ParamOp> params;
    for (unsigned i = 0; i < finish.getNumArguments(); ++i)
      if (attr(finish, i, kRoleAttr) == "work")
        works.insert(attr(finish, i, kNameAttr));
    for (BlockArgument argument : finish.getArguments()) {
      unsigned i = argument.getArgNumber();
      StringRef role = attr(finish, i, kRoleAttr);
      StringRef name = attr(finish, i, kNameAttr);
      std::string symbol = stateSymbol(role, name);
      Location loc = argument.getLoc();
      if (role == "weight" || role == "work" || role == "m" || role == "v" ||
          role == "grad") {
        StringRef category = role == "weight" || role == "work" ? "weights"
                             : role == "grad"                   ? "gradients"
                                                                : "optimizer";
        append(symbol, "state", argument.getType(), category);
      } else {
        append(symbol, "io", argument.getType(), "io");
        auto io = IoOp::create(builder, loc,
                               role == "sum" ? StringRef("output") : role, name,
                               StringRef(symbol));
        keepSharding(finish, i, io);
      }
      if (role == "weight") {
        auto decay = finish.getArgAttrOfType<BoolAttr>(i, kDecayAttr);
        auto work = works.contains(name)
                        ? FlatSymbolRefAttr::get(builder.getContext(),
                                                 stateSymbol("work", name))
                        : FlatSymbolRefAttr();
        auto symbolOf = [&](StringRef role) {
          return FlatSymbolRefAttr::get(builder.getContext(),
                                        stateSymbol(role, name));
        };
        auto param = qplan::ParamOp::create(
            builder, loc, builder.getStringAttr(name), symbolOf("weight"),
            symbolOf("m"), symbolOf("v"), symbolOf("grad"), work,
            builder.getStringAttr(attr(finish, i, kInitAttr)),
            builder.getBoolAttr(decay && decay.getValue()),
            builder.getStringAttr(attr(finish, i, kFileDtypeAttr)));
        keepSharding(finish, i, param);
        params[name] = param;
      }
    }
    keepStateSharding(finish, params);
    for (unsigned i = 0; i < finish.getNumResults(); ++i)
      if (auto name = finish.getResultAttrOfType<StringAttr>(i, kNameAttr)) {
        std::string symbol = stateSymbol("output", name.getValue());
        append(symbol, "io", finish.getResultTypes()[i], "io");
        IoOp::create(builder, finish.getLoc(), "output", name.getValue(),
                     StringRef(symbol));
      }
  }

  /// How the ranks hold it stays with what the plan says of an argument.
  static void keepSharding(func::FuncOp function, unsigned argument,
                           Operation *op) {
    if (Attribute sharding =
            function.getArgAttr(argument, qdist::kShardingAttr))
      op->setAttr(qdist::kShardingAttr, sharding);
  }

  /// Of moments and gradient only what the weight does not say.
  static void keepStateSharding(func::FuncOp finish,
                                const llvm::StringMap<qplan::ParamOp> &params) {
    auto differs = [&](qplan::ParamOp param, Attribute sharding) {
      return param && sharding &&
             sharding != param->getAttr(qdist::kShardingAttr);
    };
    for (unsigned i = 0; i < finish.getNumArguments(); ++i)
      if (attr(finish, i, kRoleAttr) == "m") {
        qplan::ParamOp param = params.lookup(attr(finish, i, kNameAttr));
        Attribute sharding = finish.getArgAttr(i, qdist::kShardingAttr);
        if (differs(param, sharding))
          param->setAttr(qdist::kMomentsAttr, sharding);
      }
    for (unsigned i = 0; i < finish.getNumResults(); ++i) {
      auto alias = finish.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
      if (!alias || attr(finish, alias.getInt(), kRoleAttr) != "grad")
        continue;
      qplan::ParamOp param = params.lookup(attr(finish, alias.getInt(), kNameAttr));
      Attribute sharding = finish.getResultAttr(i, qdist::kShardingAttr);
      if (differs(param, sharding))
        param->setAttr(qdist::kGradientAttr, sharding);
    }
  }

  static StringRef attr(func::FuncOp function, unsigned argument,
                        StringRef name) {
    auto value = function.getArgAttrOfType<StringAttr>(argument, name);
    return value ? value.getValue() : "";
  }

  /// Opens a program; returns where its entries go.
  Block *openProgram(StringRef name) {
    auto program = ProgramOp::create(builder, module.getLoc(), name);
    return &program.getBody().emplaceBlock();
  }

  void planBegin(func::FuncOp finish) {
    OpBuilder::InsertionGuard guard(builder);
    Block *body = openProgram("begin");
    builder.setInsertionPointToEnd(body);
    for (unsigned i = 0; i < finish.getNumArguments(); ++i) {
      StringRef role = attr(finish, i, kRoleAttr);
      if (role == "grad" || role == "sum")
        MemsetOp::create(
            builder, finish.getLoc(),
            stateSymbol(role, attr(finish, i, kNameAttr)), 0);
    }
  }

  LogicalResult planFunction(func::FuncOp function) {
    StringRef name = function.getName();
    DenseMap<Value, Place> places;    // of dense roots
    DenseMap<Value, Value> overwrote; // aliased result -> root
    for (BlockArgument argument : function.getArguments()) {
      unsigned i = argument.getArgNumber();
      places[argument] = {stateSymbol(attr(function, i, kRoleAttr),
                                      attr(function, i, kNameAttr))};
    }

    // Roots, lifetimes and producers.
    Block &body = function.getBody().front();
    partOf.clear();
    for (auto join : body.getOps<qkern::JoinOp>())
      for (auto [i, part] : llvm::enumerate(join.getParts()))
        partOf[part] = {join, static_cast<unsigned>(i)};
    auto rootOf = [&](Value value) {
      while (true) {
        if (auto view = value.getDefiningOp<qkern::ViewOp>())
          value = view.getSource();
        else if (Value older = overwrote.lookup(value))
          value = older;
        else if (auto part = partOf.find(value); part != partOf.end())
          value = part->second.first.getResult();
        else
          return value;
      }
    };
    SmallVector<Item> items;
    SmallVector<Lifetime> lifetimes;
    DenseMap<Value, size_t> itemOf;
    DenseMap<Operation *, size_t> workspaceOf;
    DenseMap<Value, Value> newest; // root -> the value its bytes hold now
    int64_t step = 0;
    for (Operation &op : body.without_terminator()) {
      if (auto coordinate = dyn_cast<qdist::RankVarOp>(op)) {
        places[coordinate.getCoordinate()] = {rankVar(coordinate)};
        continue;
      }
      Action call = actionOf(&op);
      if (!call) {
        if (!isa<qkern::ViewOp, qkern::JoinOp>(op))
          return op.emitOpError("is not a kernel: run "
                                "--qwen35-pipeline-kernels first");
        continue;
      }
      if (auto wait = dyn_cast<qkern::WaitOp>(op)) {
        // What it has waited for used all of this until now.
        qkern::CollectiveOp started = wait.getStarted();
        for (Value input : started.getInputs())
          if (auto item = itemOf.find(rootOf(input)); item != itemOf.end())
            lifetimes[item->second].last = step;
        if (auto item = workspaceOf.find(started); item != workspaceOf.end())
          lifetimes[item->second].last = step;
      }
      for (Value input : call.inputs) {
        Value root = rootOf(input);
        if (auto item = itemOf.find(root); item != itemOf.end())
          lifetimes[item->second].last = step;
        if (failed(checkCurrent(call, input, newest, overwrote)))
          return failure();
      }
      for (auto [result, alias] :
           llvm::zip_equal(op.getResults(), call.aliases)) {
        if (alias >= 0) {
          Value target = call.inputs[alias];
          overwrote[result] = target;
          newest[rootOf(target)] = result;
          continue;
        }
        Value root = rootOf(result); // What it is a part of lives from now on.
        if (auto item = itemOf.find(root); item != itemOf.end()) {
          lifetimes[item->second].last = step;
          continue;
        }
        itemOf[root] = items.size();
        items.push_back({root, &op, categoryOf(call), ""});
        lifetimes.push_back(
            {bytesOf(cast<ShapedType>(root.getType())), step, step});
      }
      if (call.workspace > 0) {
        workspaceOf[&op] = items.size();
        items.push_back({Value(), &op, "workspace", ""});
        lifetimes.push_back({call.workspace, step, step});
      }
      ++step;
    }
    if (failed(placeResults(function, rootOf, overwrote, places, itemOf)))
      return failure();

    // Items that leave the function were given a place in io.
    SmallVector<Lifetime> planned;
    SmallVector<size_t> plannedItem;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].value && places.count(items[i].value))
        continue;
      planned.push_back(lifetimes[i]);
      plannedItem.push_back(i);
    }
    int64_t arena = place(planned, kAlign);
    arenaBytes["act"] = std::max(arenaBytes["act"], arena);
    for (auto [lifetime, i] : llvm::zip_equal(planned, plannedItem)) {
      items[i].symbol = (name + "." + Twine(i)).str();
      Type type = items[i].value
                      ? items[i].value.getType()
                      : RankedTensorType::get({lifetime.bytes},
                                              builder.getIntegerType(8));
      addBuffer(items[i].symbol, "act", lifetime.offset, type,
                items[i].category);
      if (items[i].value)
        places[items[i].value] = {items[i].symbol};
    }
    report(name, planned, plannedItem, items, arena);

    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(openProgram(name));
    for (Operation &op : body) {
      std::string workspace = workspaceOf.count(&op)
                                  ? items[workspaceOf.lookup(&op)].symbol
                                  : std::string();
      if (auto call = dyn_cast<qkern::DispatchOp>(op))
        emitLaunches(call, rootOf, places, workspace);
      else if (auto exchange = dyn_cast<qkern::CollectiveOp>(op))
        emitCollective(exchange, rootOf, places, workspace);
      else if (auto wait = dyn_cast<qkern::WaitOp>(op))
        qplan::WaitOp::create(builder, op.getLoc(),
                              numbers.lookup(wait.getStarted()));
    }
    return success();
  }

  /// The buffer for a coordinate, one per set of axes.
  std::string rankVar(qdist::RankVarOp op) {
    std::optional<Mesh> mesh = qdist::meshOf(op);
    SmallVector<Attribute> names;
    std::string symbol = "rank:";
    for (const std::string &name :
         mesh->names(qdist::axesOf(*mesh, op.getAxes()))) {
      symbol += (names.empty() ? "" : ",") + name;
      names.push_back(builder.getStringAttr(name));
    }
    if (rankVars.insert(symbol).second) {
      append(symbol, "io", op.getCoordinate().getType(), "io");
      RankVarOp::create(builder, op.getLoc(), symbol,
                        builder.getArrayAttr(names));
    }
    return symbol;
  }

  template <typename RootOf>
  void emitCollective(qkern::CollectiveOp op, RootOf rootOf,
                      const DenseMap<Value, Place> &places,
                      const std::string &workspace) {
    SmallVector<Attribute> buffers;
    SmallVector<int64_t> offsets;
    int64_t width = op.getElementType().getIntOrFloatBitWidth() / 8;
    for (auto [input, output] :
         llvm::zip_equal(op.getInputs(), op.getResults()))
      for (Value end : {Value(input), Value(output)}) {
        int64_t offset = 0; // Views of what ranks exchange are dense.
        if (auto view = end.getDefiningOp<qkern::ViewOp>())
          offset = static_cast<int64_t>(view.getOffset()) * width;
        offsets.push_back(offset);
        buffers.push_back(FlatSymbolRefAttr::get(
            builder.getContext(), places.find(rootOf(end))->second.buffer));
      }
    auto stage = workspace.empty()
                     ? FlatSymbolRefAttr()
                     : FlatSymbolRefAttr::get(builder.getContext(), workspace);
    auto number = [&](int64_t value) {
      return builder.getI64IntegerAttr(value);
    };
    numbers[op] = sequence;
    auto exchange = qplan::CollectiveOp::create(
        builder, op.getLoc(), op.getKindAttr(), number(sequence++),
        op.getAxes(), builder.getArrayAttr(buffers),
        builder.getDenseI64ArrayAttr(offsets), op.getRanksAttr(),
        TypeAttr::get(op.getElementType()), op.getCountsAttr(),
        op.getSendOuterAttr(), op.getReceiveOuterAttr(), stage,
        number(op.isSendStaged() ? 0 : -1),
        number(op.isReceiveStaged() ? op.receiveStage() : -1),
        op.getReductionAttr(), op.getWireAttr(), op.getAccumulateAttr(),
        op.getOffsetAttr(), builder.getStringAttr(tagOf(op.getLoc())));
    exchange.setAsync(op.getAsync());
  }

  /// `input` must be the value that its bytes hold at this point.
  LogicalResult checkCurrent(const Action &call, Value input,
                             const DenseMap<Value, Value> &newest,
                             const DenseMap<Value, Value> &overwrote) {
    Value value = input;
    while (auto view = value.getDefiningOp<qkern::ViewOp>())
      value = view.getSource();
    Value root = value;
    while (Value older = overwrote.lookup(root)) {
      root = older;
      while (auto view = root.getDefiningOp<qkern::ViewOp>())
        root = view.getSource();
    }
    Value current = newest.lookup(root);
    if (current && current != value)
      return call.op->emitOpError("reads a value whose storage ")
             << actionOf(current.getDefiningOp()).name << " has overwritten";
    return success();
  }

  /// A result that leaves in the place of an argument which nothing reads from
  /// here on may be written there at once.
  template <typename RootOf>
  static bool endsBefore(BlockArgument argument, Operation *op, RootOf rootOf) {
    for (; op; op = op->getNextNode()) {
      if (Action call = actionOf(op))
        for (Value input : call.inputs)
          if (rootOf(input) == argument)
            return false;
      if (auto wait = dyn_cast<qkern::WaitOp>(op)) // read by what is in flight
        for (Value input : wait.getStarted().getInputs())
          if (rootOf(input) == argument)
            return false;
    }
    return true;
  }

  /// Named results live in io; results with an alias must be where it is.
  template <typename RootOf>
  LogicalResult placeResults(func::FuncOp function, RootOf rootOf,
                             const DenseMap<Value, Value> &overwrote,
                             DenseMap<Value, Place> &places,
                             const DenseMap<Value, size_t> &itemOf) {
    Operation *end = function.getBody().front().getTerminator();
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      Value value = end->getOperand(i);
      if (auto alias =
              function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr)) {
        BlockArgument argument = function.getArgument(alias.getInt());
        Value first = value; // Of those that were made in one place.
        while (Value older = overwrote.lookup(first))
          first = older;
        if (itemOf.count(first) && !places.count(first) &&
            endsBefore(argument, first.getDefiningOp(), rootOf))
          places[first] = places.lookup(argument);
        else if (rootOf(value) != argument)
          return function.emitError("result ")
                 << i << " must overwrite argument " << alias.getInt()
                 << " but is computed elsewhere";
      } else if (auto name =
                     function.getResultAttrOfType<StringAttr>(i, kNameAttr)) {
        if (!itemOf.count(value))
          return function.emitError("result \"")
                 << name.getValue()
                 << "\" must be the result of a kernel of its own";
        places[value] = {stateSymbol("output", name.getValue())};
      } else {
        return function.emitError("result ")
               << i << " has neither a name nor an argument to overwrite";
      }
    }
    return success();
  }

  static std::string categoryOf(const Action &call) {
    return call.name.starts_with("lm_loss") ? "loss" : "activations";
  }

  static int64_t extent(MemRefType type) {
    auto [strides, offset] = type.getStridesAndOffset();
    int64_t last = 0;
    for (auto [size, stride] : llvm::zip_equal(type.getShape(), strides))
      last += (size - 1) * stride;
    return (last + 1) * (type.getElementTypeBitWidth() / 8);
  }

  template <typename RootOf>
  void emitLaunches(qkern::DispatchOp call, RootOf rootOf,
                    const DenseMap<Value, Place> &places,
                    const std::string &workspace) {
    SmallVector<Attribute> buffers, inputTypes, outputTypes;
    SmallVector<int64_t> offsets, bytes;
    SmallVector<bool> writes;
    auto add = [&](Value value, bool write, MemRefType type, int64_t offset) {
      const Place &place = places.find(rootOf(value))->second;
      buffers.push_back(
          FlatSymbolRefAttr::get(builder.getContext(), place.buffer));
      offsets.push_back(offset);
      bytes.push_back(extent(type));
      writes.push_back(write);
    };
    for (auto [i, input] : llvm::enumerate(call.getInputs())) {
      auto type = cast<RankedTensorType>(input.getType());
      MemRefType memory =
          MemRefType::get(type.getShape(), type.getElementType());
      int64_t offset = 0;
      if (auto view = input.getDefiningOp<qkern::ViewOp>()) {
        offset = static_cast<int64_t>(view.getOffset()) *
                 (type.getElementTypeBitWidth() / 8);
        auto strided = MemRefType::get(
            type.getShape(), type.getElementType(),
            StridedLayoutAttr::get(builder.getContext(), 0,
                                   view.getStrides()));
        if (!isDense(type.getShape(), view.getStrides()))
          memory = strided;
      }
      inputTypes.push_back(TypeAttr::get(memory));
      bool overwritten = llvm::is_contained(call.getAliases(),
                                            static_cast<int64_t>(i));
      add(input, overwritten, memory, offset);
    }
    for (Value output : call.getResults()) {
      auto type = cast<RankedTensorType>(output.getType());
      MemRefType memory =
          MemRefType::get(type.getShape(), type.getElementType());
      int64_t offset = 0;
      if (auto part = partOf.find(output); part != partOf.end()) {
        auto [join, i] = part->second;
        offset = join.getOffsets()[i] * (type.getElementTypeBitWidth() / 8);
        memory = MemRefType::get(
            type.getShape(), type.getElementType(),
            StridedLayoutAttr::get(builder.getContext(), 0,
                                   join.stridesOf(i)));
      }
      outputTypes.push_back(TypeAttr::get(memory));
      add(output, true, memory, offset);
    }
    if (!workspace.empty()) {
      buffers.push_back(
          FlatSymbolRefAttr::get(builder.getContext(), workspace));
      offsets.push_back(0);
      bytes.push_back(call.getWorkspace());
      writes.push_back(true);
    }
    std::string symbol = kernelSymbol(call, builder.getArrayAttr(inputTypes),
                                      builder.getArrayAttr(outputTypes));
    for (auto [stage, grid] : llvm::enumerate(call.getGrids()))
      LaunchOp::create(builder, call.getLoc(), symbol, stage, grid,
                       builder.getArrayAttr(buffers), offsets, bytes, writes,
                       tagOf(call.getLoc()));
  }

  static bool isDense(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
    int64_t expected = 1;
    for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
      if (strides[d] != expected)
        return false;
      expected *= shape[d];
    }
    return true;
  }

  /// The kernel for a dispatch; equal ones share it.
  std::string kernelSymbol(qkern::DispatchOp call, ArrayAttr inputs,
                           ArrayAttr outputs) {
    bool workspace = call.getWorkspace() > 0;
    Attribute key = builder.getArrayAttr(
        {call.getKernelAttr(), call.getConfig(), inputs, outputs,
         builder.getI64IntegerAttr(call.getGrids().size()),
         builder.getBoolAttr(workspace)});
    std::string &symbol = kernels[key];
    if (!symbol.empty())
      return symbol;
    llvm::raw_string_ostream out(symbol);
    out << call.getKernel();
    auto first = cast<MemRefType>(
        cast<TypeAttr>((outputs.empty() ? inputs : outputs)[0]).getValue());
    out << "_" << first.getElementType();
    for (auto [i, size] : llvm::enumerate(first.getShape()))
      out << (i == 0 ? "_" : "x") << size;
    unsigned &count = symbolCount[symbol];
    if (++count > 1)
      out << "_" << count;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(module.getBody());
    KernelOp::create(builder, call.getLoc(), symbol, call.getKernel(),
                     call.getConfig(), call.getGrids().size(), inputs, outputs,
                     workspace);
    return symbol;
  }

  void report(StringRef program, ArrayRef<Lifetime> planned,
              ArrayRef<size_t> plannedItem, ArrayRef<Item> items,
              int64_t arena) {
    int64_t step = 0;
    int64_t bound = peakBytes(planned, kAlign, step);
    llvm::MapVector<StringRef, int64_t> categories;
    SmallVector<size_t> alive;
    for (size_t i = 0; i < planned.size(); ++i)
      if (planned[i].first <= step && step <= planned[i].last) {
        categories[items[plannedItem[i]].category] += planned[i].bytes;
        alive.push_back(i);
      }
    llvm::sort(alive, [&](size_t a, size_t b) {
      return std::make_pair(-planned[a].bytes, a) <
             std::make_pair(-planned[b].bytes, b);
    });
    SmallVector<NamedAttribute> byCategory;
    for (auto [category, bytes] : categories)
      byCategory.push_back(builder.getNamedAttr(
          category, builder.getI64IntegerAttr(bytes)));
    SmallVector<Attribute> largest;
    for (size_t i : ArrayRef(alive).take_front(kLargest)) {
      const Item &item = items[plannedItem[i]];
      largest.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr("buffer", builder.getStringAttr(item.symbol)),
           builder.getNamedAttr("bytes",
                                builder.getI64IntegerAttr(planned[i].bytes)),
           builder.getNamedAttr("category",
                                builder.getStringAttr(item.category)),
           builder.getNamedAttr(
               "of", builder.getStringAttr(tagOf(item.op->getLoc()) + "/" +
                                           actionOf(item.op).name))}));
    }
    reports.push_back(builder.getNamedAttr(
        program,
        builder.getDictionaryAttr(
            {builder.getNamedAttr("act_bytes",
                                  builder.getI64IntegerAttr(arena)),
             builder.getNamedAttr("lower_bound",
                                  builder.getI64IntegerAttr(bound)),
             builder.getNamedAttr("peak_by_category",
                                  builder.getDictionaryAttr(byCategory)),
             builder.getNamedAttr("largest",
                                  builder.getArrayAttr(largest))})));
  }

  ModuleOp module;
  OpBuilder builder;
  llvm::StringMap<int64_t> arenaBytes;
  DenseMap<Attribute, std::string> kernels;
  /// Of the function at hand: the join that a value is part of, and which.
  DenseMap<Value, std::pair<qkern::JoinOp, unsigned>> partOf;
  llvm::StringMap<unsigned> symbolCount;
  llvm::StringSet<> rankVars;
  int64_t sequence = 0; // of the next collective
  DenseMap<Operation *, int64_t> numbers; // of collectives
  SmallVector<NamedAttribute> reports;
};

struct PlanMemory : impl::PlanMemoryBase<PlanMemory> {
  void runOnOperation() override {
    if (failed(Planner(getOperation()).run()))
      signalPassFailure();
  }
};

} // namespace
} // namespace qwen35
