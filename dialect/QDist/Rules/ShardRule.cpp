#include "dialect/QDist/Rules/ShardRule.h"

using namespace mlir;

namespace qwen35::qdist {

#include "dialect/QDist/Rules/ShardableOp.cpp.inc"

namespace {

/// Sizes of the dimensions of a value; of a document table, its tokens.
SmallVector<int64_t> shapeOf(Type type) {
  if (auto seq = dyn_cast<SeqType>(type))
    return {seq.getTokens()};
  return SmallVector<int64_t>(cast<RankedTensorType>(type).getShape());
}

/// Without `gone`, and without what lies inside of it: what is left is still
/// cut into contiguous pieces.
MeshAxes without(MeshAxes axes, MeshAxes gone) {
  MeshAxes hit = axes & gone;
  return hit ? axes & ((hit & (~hit + 1)) - 1) : axes;
}

MeshAxes innermost(MeshAxes axes) {
  MeshAxes bit = axes;
  while (bit & (bit - 1))
    bit &= bit - 1;
  return bit;
}

} // namespace

ShardRule ShardRule::make(Operation *op, StringRef text, StringRef whole,
                          StringRef sequence) {
  ShardRule rule;
  auto factorOf = [&](char name) {
    for (auto [i, factor] : llvm::enumerate(rule.factors))
      if (factor.name == name)
        return static_cast<int>(i);
    Factor factor{name, 0};
    if (whole.contains(name))
      factor.kind = Kind::Whole;
    if (sequence.contains(name))
      factor.kind = Kind::Sequence;
    rule.factors.push_back(factor);
    return static_cast<int>(rule.factors.size()) - 1;
  };
  auto parse = [&](StringRef spec) {
    Dims dims;
    bool group = false;
    for (char c : spec) {
      if (c == '(') {
        group = true;
        dims.emplace_back();
      } else if (c == ')') {
        group = false;
      } else {
        if (!group)
          dims.emplace_back();
        dims.back().push_back(factorOf(c));
      }
    }
    return dims;
  };
  auto [in, out] = text.split("->");
  SmallVector<StringRef> specs;
  in.split(specs, ',');
  for (StringRef spec : specs)
    rule.operands.push_back(parse(spec));
  specs.clear();
  out.split(specs, ',');
  for (StringRef spec : specs)
    rule.results.push_back(parse(spec));
  assert(rule.operands.size() == op->getNumOperands() &&
         rule.results.size() == op->getNumResults());

  // Sizes: of dimensions of one factor first, then what is left of others.
  auto size = [&](const Dims &dims, Type type) {
    SmallVector<int64_t> shape = shapeOf(type);
    for (auto [dim, extent] : llvm::zip_equal(dims, shape)) {
      int64_t known = 1;
      int unknown = -1, unknowns = 0;
      for (int factor : dim)
        if (rule.factors[factor].size)
          known *= rule.factors[factor].size;
        else
          unknown = factor, ++unknowns;
      if (unknowns == 1)
        rule.factors[unknown].size = extent / known;
    }
  };
  for (int round = 0; round < 2; ++round) {
    for (auto [dims, operand] :
         llvm::zip_equal(rule.operands, op->getOperands()))
      size(dims, operand.getType());
    for (auto [dims, result] : llvm::zip_equal(rule.results, op->getResults()))
      size(dims, result.getType());
  }
  rule.linear.assign(op->getNumOperands(), false);
  return rule;
}

ShardRule ShardRule::elementwise(Operation *op) {
  ShardRule rule;
  SmallVector<int64_t> shape;
  auto widest = [&](TypeRange types) {
    for (Type type : types)
      if (shapeOf(type).size() > shape.size())
        shape = shapeOf(type);
  };
  widest(op->getResultTypes());
  widest(op->getOperandTypes());
  for (auto [i, size] : llvm::enumerate(shape))
    rule.factors.push_back({static_cast<char>('a' + i), size});
  auto dims = [&](Type type) {
    Dims list(shapeOf(type).size());
    for (auto [i, dim] : llvm::enumerate(list))
      dim.push_back(static_cast<int>(i));
    return list;
  };
  for (Type type : op->getOperandTypes())
    rule.operands.push_back(dims(type));
  for (Type type : op->getResultTypes())
    rule.results.push_back(dims(type));
  rule.linear.assign(op->getNumOperands(), false);
  return rule;
}

namespace {

/// The axes of one factor while they are chosen.
struct Choice {
  bool made = false;
  MeshAxes axes = 0;
  SmallVector<int64_t> sections;
  int by = -1; // the operand that chose
};

class Solver {
public:
  Solver(Operation *op, const ShardRule &rule, ArrayRef<Given> given,
         ArrayRef<Sharding> wanted, const Mesh &mesh)
      : op(op), rule(rule), given(given), wanted(wanted), mesh(mesh),
        choices(rule.factors.size()) {}

  FailureOr<OpSharding> run() {
    cutAxis();
    followTable();
    SmallVector<unsigned> order(rule.first);
    for (unsigned i = 0; i < given.size(); ++i)
      if (given[i].stays && !llvm::is_contained(order, i))
        order.push_back(i);
    for (unsigned operand : order)
      if (failed(decide(operand)))
        return failure();
    for (auto [i, sharding] : llvm::enumerate(wanted))
      for (auto [dim, factors] : llvm::enumerate(rule.results[i]))
        if (factors.size() == 1 && !inOperands(factors[0]))
          choose(factors[0], sharding.dims[dim], sharding.sectionsOf(dim), -1);
    // Factors of results before those that are summed over.
    for (bool inResult : {true, false})
      for (size_t f = 0; f < choices.size(); ++f)
        if (!choices[f].made && inResults(f) == inResult)
          chooseWidest(static_cast<int>(f));
    return write();
  }

private:
  static bool has(ArrayRef<ShardRule::Dims> values, int factor) {
    for (const ShardRule::Dims &dims : values)
      for (const auto &list : dims)
        if (llvm::is_contained(list, factor))
          return true;
    return false;
  }
  bool inOperands(int factor) const { return has(rule.operands, factor); }
  bool inResults(int factor) const { return has(rule.results, factor); }

  /// What the split of a dimension means for its factors, outermost first: each
  /// takes the axes that its size holds.
  SmallVector<MeshAxes> spread(MeshAxes axes, ArrayRef<int> factors) const {
    SmallVector<MeshAxes> parts(factors.size(), 0);
    size_t at = 0;
    int64_t left = factors.empty() ? 1 : rule.factors[factors[0]].size;
    for (size_t atom = 0; atom < mesh.atoms().size(); ++atom) {
      MeshAxes bit = MeshAxes(1) << atom;
      if (!(axes & bit))
        continue;
      while (left == 1 && at + 1 < factors.size())
        left = rule.factors[factors[++at]].size;
      if (left % mesh.size(bit) != 0 || factors.empty())
        break; // the atom would straddle two factors
      parts[at] |= bit;
      left /= mesh.size(bit);
    }
    return parts;
  }

  /// The axes of a factor that an operand's split asks for.
  std::pair<MeshAxes, ArrayRef<int64_t>> asked(unsigned operand,
                                               int factor) const {
    const Sharding &sharding = given[operand].sharding;
    for (auto [dim, factors] : llvm::enumerate(rule.operands[operand])) {
      ArrayRef<int64_t> sections = sharding.sectionsOf(dim);
      if (factors.size() > 1 && !sections.empty())
        continue;
      SmallVector<MeshAxes> parts = spread(sharding.dims[dim], factors);
      for (auto [f, part] : llvm::zip_equal(factors, parts))
        if (f == factor)
          return {part, sections};
    }
    return {0, {}};
  }

  MeshAxes allowed(int f, MeshAxes axes, ArrayRef<int64_t> sections) const {
    const ShardRule::Factor &factor = rule.factors[f];
    if (factor.kind == ShardRule::Kind::Whole)
      return 0;
    if (factor.kind == ShardRule::Kind::Sequence)
      axes = without(axes, ~table);
    axes = without(axes, used);
    auto divides = [&](int64_t size) { return size % mesh.size(axes) == 0; };
    while (axes && !(divides(factor.size) && llvm::all_of(sections, divides)))
      axes &= ~innermost(axes);
    return axes;
  }

  void choose(int f, MeshAxes axes, ArrayRef<int64_t> sections, int by) {
    axes = allowed(f, axes, sections);
    if (!axes)
      return;
    choices[f] = {true, axes, SmallVector<int64_t>(sections), by};
    used |= axes;
  }

  LogicalResult decide(unsigned operand) {
    bool leads = llvm::is_contained(rule.first, operand);
    for (size_t i = 0; i < choices.size(); ++i) {
      int f = static_cast<int>(i);
      bool present = false;
      for (const auto &list : rule.operands[operand])
        present |= llvm::is_contained(list, f);
      if (!present || rule.factors[f].kind == ShardRule::Kind::Whole)
        continue;
      auto [axes, sections] = asked(operand, f);
      if (!choices[f].made && !decidedNone.count(f) && axes) {
        choose(f, axes, sections, static_cast<int>(operand));
        if (!choices[f].made)
          continue;
      } else if (choices[f].made || decidedNone.count(f)) {
        int by = choices[f].made ? choices[f].by : decidedNone.lookup(f);
        if (by < 0 || leads || llvm::is_contained(rule.first, unsigned(by)))
          continue;
        if (choices[f].axes != axes || (axes && choices[f].sections != sections))
          return conflict(static_cast<unsigned>(by), operand);
      }
      if (!axes && !choices[f].made)
        decidedNone[f] = static_cast<int>(operand);
    }
    return success();
  }

  LogicalResult conflict(unsigned a, unsigned b) {
    InFlightDiagnostic error = op->emitError("'")
                               << op->getName() << "' cannot be split: \"";
    error << given[a].name << "\" is seeded "
          << given[a].sharding.attr(op->getContext(), mesh) << " but \""
          << given[b].name << "\" "
          << given[b].sharding.attr(op->getContext(), mesh)
          << ", which disagree on a dimension that both have";
    return error;
  }

  void chooseWidest(int f) {
    MeshAxes best = 0;
    ArrayRef<int64_t> bestSections;
    int by = -1;
    for (unsigned i = 0; i < given.size(); ++i) {
      auto [axes, sections] = asked(i, f);
      axes = allowed(f, axes, sections);
      if (mesh.size(axes) > mesh.size(best)) {
        best = axes;
        bestSections = sections;
        by = static_cast<int>(i);
      }
    }
    if (best)
      choose(f, best, bestSections, by);
  }

  /// A document table does not move between ranks: tokens of the op lie as in
  /// it, before all else is chosen.
  void followTable() {
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      if (isa<SeqType>(operand.getType())) {
        table = given[i].sharding.dims[0];
        for (int f : rule.operands[i][0])
          choose(f, table, {}, -1);
      }
  }

  /// slice and concat: the dimension that they cut or join.
  void cutAxis() {
    if (rule.axis < 0)
      return;
    auto dim = static_cast<size_t>(rule.axis);
    if (auto slice = dyn_cast<SliceOp>(op)) {
      const Sharding &x = given[0].sharding;
      int64_t start = 0;
      for (int64_t section : x.sectionsOf(dim)) {
        if (start == static_cast<int64_t>(slice.getStart()) &&
            section == static_cast<int64_t>(slice.getSize()))
          axisAxes = x.dims[dim];
        start += section;
      }
      axisSections.assign(x.sectionsOf(dim).begin(), x.sectionsOf(dim).end());
    } else {
      axisAxes = given[0].sharding.dims[dim];
      for (auto [i, input] : llvm::enumerate(op->getOperands())) {
        int64_t size = shapeOf(input.getType())[dim];
        axisSections.push_back(size);
        const Sharding &x = given[i].sharding;
        if (x.dims[dim] != axisAxes || !x.sectionsOf(dim).empty())
          axisAxes = 0;
      }
    }
    used |= axisAxes;
    choices[rule.axis].made = true; // chosen here, written below
  }

  FailureOr<OpSharding> write() {
    MeshAxes passed = 0;
    bool any = false;
    for (auto [linear, operand] : llvm::zip_equal(rule.linear, given)) {
      if (!linear)
        continue;
      MeshAxes partial = operand.sharding.isMax ? 0 : operand.sharding.partial;
      passed = any ? passed & partial : partial;
      any = true;
    }
    passed &= ~used;
    auto layout = [&](const ShardRule::Dims &dims) {
      Sharding sharding(dims.size());
      for (auto [dim, factors] : llvm::enumerate(dims))
        for (int f : factors) {
          sharding.dims[dim] |= choices[f].axes;
          if (factors.size() == 1 && choices[f].axes)
            sharding.setSections(dim, choices[f].sections);
        }
      return sharding;
    };
    OpSharding all;
    for (auto [i, dims] : llvm::enumerate(rule.operands)) {
      all.operands.push_back(layout(dims));
      if (rule.linear[i])
        all.operands.back().partial = passed;
    }
    for (auto [i, dims] : llvm::enumerate(rule.results)) {
      Sharding result = layout(dims);
      result.partial = passed;
      for (auto [f, factor] : llvm::enumerate(rule.factors)) {
        bool present = false;
        for (const auto &list : dims)
          present |= llvm::is_contained(list, static_cast<int>(f));
        if (!present && !(factor.complete >> i & 1))
          result.partial |= choices[f].axes;
      }
      all.results.push_back(std::move(result));
    }
    if (rule.axis >= 0 && axisAxes) {
      auto dim = static_cast<size_t>(rule.axis);
      for (Sharding &operand : all.operands)
        operand.dims[dim] = axisAxes;
      all.results[0].dims[dim] = axisAxes;
      Sharding &joined =
          isa<SliceOp>(op) ? all.operands[0] : all.results[0];
      joined.setSections(dim, axisSections);
    }
    return all;
  }

  Operation *op;
  const ShardRule &rule;
  ArrayRef<Given> given;
  ArrayRef<Sharding> wanted;
  const Mesh &mesh;
  MeshAxes table = 0; // over which the document table is split
  SmallVector<Choice> choices;
  DenseMap<int, int> decidedNone; // factor to the operand that leaves it whole
  MeshAxes used = 0;
  MeshAxes axisAxes = 0;
  SmallVector<int64_t> axisSections;
};

} // namespace

FailureOr<OpSharding> solve(Operation *op, const ShardRule &rule,
                            ArrayRef<Given> given, ArrayRef<Sharding> wanted,
                            const Mesh &mesh) {
  return Solver(op, rule, given, wanted, mesh).run();
}

} // namespace qwen35::qdist
