#include "dialect/QDist/IR/Traffic.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Fusion/CostModel.h"
#include "passes/Fusion/Passes.h"

#include "mlir/IR/Remarks.h"

#include <deque>

using namespace mlir;

namespace qwen35 {

#define GEN_PASS_DEF_SCHEDULE
#include "passes/Fusion/Passes.h.inc"

namespace {

constexpr remark::RemarkOpts kOverlap =
    remark::RemarkOpts::name("overlap").category("schedule");

/// A prefetched value is asked for this many times as early as it takes.
constexpr double kLead = 1.5;

bool isExchange(Operation *op) {
  return isa_and_nonnull<qdist::AllGatherOp, qdist::AllReduceOp,
                         qdist::ReduceScatterOp, qdist::AllToAllOp,
                         qdist::ShiftOp>(op);
}

class Scheduler {
public:
  Scheduler(func::FuncOp function, const Mesh &mesh, int64_t limit)
      : function(function), block(function.getBody().front()), mesh(mesh),
        limit(limit) {}

  void run() {
    bool any = llvm::any_of(block, [](Operation &op) { return isExchange(&op); });
    if (!any)
      return;
    double before = simulate();
    SmallVector<Operation *> accumulations = sinkAccumulations();
    placeStarts();
    fillGaps();
    placeWaits();
    for (Operation *add : llvm::reverse(accumulations))
      if (Operation *made = lastMaker(add))
        add->moveAfter(made);
    double compute = 0;
    for (Operation &op : block)
      compute += computeSeconds(&op);
    remark::passed(function.getLoc(), kOverlap)
        << remark::metric("compute_us", int64_t(1e6 * compute))
        << remark::metric("exposed_before_us",
                          int64_t(1e6 * (before - compute)))
        << remark::metric("exposed_us", int64_t(1e6 * (simulate() - compute)));
  }

private:
  /// The last op that makes an operand, or null.
  static Operation *lastMaker(Operation *op) {
    Operation *last = nullptr;
    for (Value operand : op->getOperands())
      if (Operation *made = operand.getDefiningOp();
          made && (!last || last->isBeforeInBlock(made)))
        last = made;
    return last;
  }

  Operation *firstReader(Operation *op) {
    Operation *first = nullptr;
    for (Operation *user : op->getUsers()) {
      user = block.findAncestorOpInBlock(*user);
      if (!first || user->isBeforeInBlock(first))
        first = user;
    }
    return first;
  }

  /// What is in flight while a collective runs: both of its sides.
  static int64_t inFlight(Operation *op) {
    return qdist::bytesOf(op->getOperands()) + qdist::bytesOf(op->getResults());
  }

  SmallVector<Operation *> sinkAccumulations() {
    SmallVector<Operation *> sunk;
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (qdist::isAccumulation(&op))
        if (Operation *reader = firstReader(&op)) {
          op.moveBefore(reader);
          sunk.push_back(&op);
        }
    return sunk;
  }

  /// Every start as early as its inputs are there; those of weights, which
  /// always are, as early as the cost model says that they take.
  void placeStarts() {
    SmallVector<Operation *> ops;
    DenseMap<Operation *, size_t> indexOf;
    SmallVector<double> time = {0}; // at which op i begins if nothing waits
    for (Operation &op : block) {
      indexOf[&op] = ops.size();
      ops.push_back(&op);
      time.push_back(time.back() + computeSeconds(&op));
    }
    SmallVector<int64_t> live(ops.size(), 0); // bytes asked for early
    DenseMap<Operation *, size_t> places;
    double nextStart = time.back();
    for (size_t at = ops.size(); at-- > 0;) {
      Operation *op = ops[at];
      Operation *reader = isExchange(op) ? firstReader(op) : nullptr;
      if (!reader)
        continue;
      Operation *made = lastMaker(op);
      size_t earliest = made ? indexOf.lookup(made) + 1 : 0, place = at;
      double latest = 0; // the data alone
      if (!made)
        latest = std::min(time[indexOf.lookup(reader)], nextStart) -
                 kLead * exchangeSeconds(op, mesh);
      int64_t bytes = inFlight(op);
      while (place > earliest && time[place] > latest &&
             live[place - 1] + bytes <= limit)
        live[--place] += bytes;
      for (size_t i = at; i < indexOf.lookup(reader); ++i)
        live[i] += bytes;
      nextStart = std::min(nextStart, time[place]);
      places[op] = place;
    }
    for (Operation *op : ops) {
      auto found = places.find(op);
      if (found == places.end() || found->second == indexOf.lookup(op))
        continue;
      size_t place = found->second;
      while (isExchange(ops[place])) // it may have moved itself
        ++place;
      if (place < indexOf.lookup(op))
        op->moveBefore(ops[place]);
    }
  }

  /// Between a start and a reader that comes at once go products that the
  /// collective and its reader need not: gradients of weights, from after them or
  /// from before, back to what the collective before is read by.
  void fillGaps() {
    SmallVector<Operation *> exchanges;
    for (Operation &op : block)
      if (isExchange(&op))
        exchanges.push_back(&op);
    Operation *floor = nullptr;
    for (Operation *op : exchanges) {
      Operation *reader = firstReader(op);
      if (!reader || inFlight(op) > limit)
        continue;
      double left = exchangeSeconds(op, mesh);
      for (Operation *between = op->getNextNode(); between != reader;
           between = between->getNextNode())
        left -= computeSeconds(between);
      auto fill = [&](Operation *product) {
        left -= computeSeconds(product);
        product->moveBefore(reader);
      };
      int64_t seen = 0;
      for (Operation *later = reader, *next; left > 0 && later && seen < kWindow;
           later = next, ++seen) {
        next = later->getNextNode();
        if (!isa<LinearOp, MatmulOp>(later))
          continue;
        Operation *made = lastMaker(later);
        bool waits = llvm::any_of(later->getOperands(), [&](Value operand) {
          return operand.getDefiningOp() == op;
        });
        if (!waits && (!made || made->isBeforeInBlock(reader)))
          fill(later);
      }
      seen = 0;
      for (Operation *earlier = op->getPrevNode(), *next;
           left > 0 && earlier && earlier != floor && seen < kWindow;
           earlier = next, ++seen) {
        next = earlier->getPrevNode();
        if (!isa<LinearOp, MatmulOp>(earlier) ||
            !llvm::all_of(earlier->getUsers(), [&](Operation *user) {
              return reader->isBeforeInBlock(block.findAncestorOpInBlock(*user));
            }))
          continue;
        fill(earlier);
        reader = earlier; // those go in their order
      }
      floor = firstReader(op);
    }
  }

  /// A wait ahead of the first reader, or ahead of the start for which there
  /// would be too much in flight.
  void placeWaits() {
    struct Flight {
      Operation *op;
      int64_t bytes;
    };
    std::deque<Flight> flying;
    DenseMap<Operation *, Operation *> waits; // start to what waits for it
    int64_t bytes = 0;
    for (Operation &op : block) {
      auto end = [&](auto it) {
        waits[it->op] = &op;
        bytes -= it->bytes;
        return flying.erase(it);
      };
      for (auto it = flying.begin(); it != flying.end();)
        it = reads(&op, it->op) ? end(it) : std::next(it);
      if (!isExchange(&op) || op.use_empty())
        continue;
      int64_t more = inFlight(&op);
      if (more > limit)
        continue;
      while (!flying.empty() && bytes + more > limit)
        end(flying.begin());
      flying.push_back({&op, more});
      bytes += more;
    }
    SmallVector<Operation *> starts;
    for (Operation &op : block)
      if (waits.count(&op))
        starts.push_back(&op);
    for (Operation *op : starts) {
      Operation *at = waits.lookup(op);
      bool gains = false;
      for (Operation *between = op->getNextNode(); between != at;
           between = between->getNextNode())
        gains |= computeSeconds(between) > 0;
      if (!gains)
        continue; // started and awaited at once
      op->setInherentAttr(StringAttr::get(op->getContext(), "async"),
                          UnitAttr::get(op->getContext()));
      OpBuilder b(at);
      auto wait = qdist::WaitOp::create(b, op->getLoc(), op->getResultTypes(),
                                        op->getResults());
      for (auto [started, ended] :
           llvm::zip_equal(op->getResults(), wait.getResults()))
        started.replaceAllUsesExcept(ended, wait);
    }
  }

  /// Whether an op, or what is in it, reads a result of `made`.
  bool reads(Operation *op, Operation *made) {
    return llvm::any_of(made->getUsers(), [&](Operation *user) {
      return block.findAncestorOpInBlock(*user) == op;
    });
  }

  /// Seconds of the function: one stream computes, one exchanges, in order.
  double simulate() {
    double computed = 0, exchanged = 0;
    DenseMap<Operation *, double> ends;
    for (Operation &op : block) {
      if (auto wait = dyn_cast<qdist::WaitOp>(op)) {
        computed = std::max(
            computed, ends.lookup(wait.getInputs()[0].getDefiningOp()));
      } else if (isExchange(&op)) {
        exchanged =
            std::max(computed, exchanged) + exchangeSeconds(&op, mesh);
        ends[&op] = exchanged;
        if (!qdist::isAsync(&op))
          computed = exchanged;
      } else {
        computed += computeSeconds(&op);
      }
    }
    return std::max(computed, exchanged);
  }

  static constexpr int64_t kWindow = 64; // ops that it looks ahead

  func::FuncOp function;
  Block &block;
  const Mesh &mesh;
  int64_t limit;
};

struct Schedule : impl::ScheduleBase<Schedule> {
  using ScheduleBase::ScheduleBase;

  void runOnOperation() override {
    if (inFlight < 0) {
      getOperation().emitError("bytes in flight are ")
          << inFlight.getValue() << ", expected 0 or more";
      return signalPassFailure();
    }
    if (std::optional<Mesh> mesh = qdist::meshOf(getOperation()))
      Scheduler(getOperation(), *mesh, inFlight).run();
  }
};

} // namespace
} // namespace qwen35
