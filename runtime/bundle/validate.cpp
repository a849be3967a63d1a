#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/of_plan.h"
#include "runtime/bundle/param_init.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/ranks.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/schema/seq_table.h"
#include "runtime/schema/stripe_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace qwen35 {
namespace {

// Caps on single numbers. Each is far above what the largest model needs and
// far below where sums of a few of them, or a 32-bit count of elements,
// overflow.
constexpr uint64_t kMaxArenaBytes = uint64_t(1) << 46;
constexpr uint64_t kMaxAlign = uint64_t(2) << 20; // what the runtime gives
constexpr int kMaxRank = 8;
constexpr int64_t kMaxGrid = int64_t(1) << 26;
constexpr uint32_t kMaxArgs = 4096;
// Of a GPU:
constexpr int64_t kMaxGpuGrid = INT32_MAX;
constexpr uint32_t kMaxThreads = 1024; // of a block
constexpr uint64_t kMaxShared = 227 << 10;
constexpr uint32_t kMaxCluster = 16;
constexpr int64_t kMaxExtent = INT32_MAX; // of a product
constexpr int64_t kMaxTokens = int64_t(1) << 28;
constexpr size_t kMaxName = 1024;

template <typename... Parts> absl::Status invalid(const Parts &...parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

std::string shapeText(const google::protobuf::RepeatedField<int64_t> &shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool isSymbol(const std::string &text) {
  auto isWord = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') &&
         std::all_of(text.begin(), text.end(), isWord);
}

/// The number of elements of a shape; an error for rank, sign or overflow.
absl::StatusOr<uint64_t>
elements(const google::protobuf::RepeatedField<int64_t> &shape) {
  if (shape.size() > kMaxRank)
    return invalid("rank ", shape.size(), ", the most is ", kMaxRank);
  uint64_t count = 1;
  for (int64_t size : shape)
    if (size < 1)
      return invalid("a dimension of ", size, ", the least is 1");
    else if (__builtin_mul_overflow(count, uint64_t(size), &count))
      return invalid("more elements than 64 bits can count");
  return count;
}

class Validator {
public:
  explicit Validator(const bundle::Bundle &plan) : plan(plan) {}

  absl::Status run() {
    QWEN35_RETURN_IF_ERROR(names());
    QWEN35_RETURN_IF_ERROR(targets());
    QWEN35_RETURN_IF_ERROR(ranks());
    QWEN35_RETURN_IF_ERROR(kernels());
    QWEN35_RETURN_IF_ERROR(arenas());
    QWEN35_RETURN_IF_ERROR(buffers());
    QWEN35_RETURN_IF_ERROR(disjoint());
    QWEN35_RETURN_IF_ERROR(params());
    QWEN35_RETURN_IF_ERROR(model());
    QWEN35_RETURN_IF_ERROR(io());
    QWEN35_RETURN_IF_ERROR(rankVars());
    return programs();
  }

private:
  template <typename Field>
  static absl::Status uniqueNames(const char *kind, const Field &field) {
    std::set<std::string> seen;
    for (const auto &entry : field)
      if (entry.name().empty())
        return invalid("one of the ", field.size(), " ", kind, "s has no name");
      else if (entry.name().size() > kMaxName)
        return invalid(kind, " ", quoted(entry.name()), " has a name of ",
                       entry.name().size(), " bytes, the most is ", kMaxName);
      else if (!seen.insert(entry.name()).second)
        return invalid("two ", kind, "s are named ", quoted(entry.name()));
    return absl::OkStatus();
  }

  absl::Status names() {
    QWEN35_RETURN_IF_ERROR(uniqueNames("blob", plan.blobs()));
    QWEN35_RETURN_IF_ERROR(uniqueNames("arena", plan.arenas()));
    QWEN35_RETURN_IF_ERROR(uniqueNames("buffer", plan.buffers()));
    QWEN35_RETURN_IF_ERROR(uniqueNames("param", plan.params()));
    return uniqueNames("program", plan.programs());
  }

  absl::Status targets() {
    if (plan.targets_size() != 1)
      return invalid("the bundle has ", plan.targets_size(),
                     " targets, expected one");
    const bundle::Target &target = plan.targets(0);
    gpu = target.kind() == "cuda";
    if (gpu)
      return gpuTarget(target);
    if (target.kind() != "cpu")
      return absl::UnimplementedError(
          absl::StrCat("the target is of kind ", quoted(target.kind()),
                       ", this reader knows 'cpu' and 'cuda'"));
    if (target.triple() != "x86_64-unknown-linux-gnu")
      return absl::UnimplementedError(absl::StrCat(
          "the target's triple is ", quoted(target.triple()),
          ", this runtime is built for 'x86_64-unknown-linux-gnu'"));
    static const std::set<std::string> kLevels = {"x86-64", "x86-64-v2",
                                                  "x86-64-v3", "x86-64-v4"};
    if (!kLevels.count(target.cpu()))
      return absl::UnimplementedError(
          absl::StrCat("the target's CPU is ", quoted(target.cpu()),
                       ", expected one of ", absl::StrJoin(kLevels, ", ")));
    if (target.blob() >= static_cast<uint32_t>(plan.blobs_size()))
      return invalid("the target's code is blob ", target.blob(),
                     ", but there are ", plan.blobs_size(), " blobs");
    return absl::OkStatus();
  }

  static absl::Status gpuTarget(const bundle::Target &target) {
    const std::string &arch = target.arch();
    if (arch == "emulated" || arch == "emulated_sm_90a") // the GPUs of tests
      return absl::OkStatus();
    size_t at = 3;
    while (at < arch.size() && arch[at] >= '0' && arch[at] <= '9')
      ++at;
    bool suffix = at + 1 == arch.size() && (arch[at] == 'a' || arch[at] == 'f');
    if (arch.compare(0, 3, "sm_") != 0 || at < 5 || at > 6 ||
        at + suffix != arch.size())
      return absl::UnimplementedError(
          absl::StrCat("the target's architecture is ", quoted(arch),
                       ", expected sm_90a or the like"));
    return absl::OkStatus();
  }

  absl::Status gpuKernel(const bundle::Kernel &kernel) {
    if (!(kernel.flops() >= 0) || !std::isfinite(kernel.flops()))
      return invalid("kernel ", kernel.symbol(), " takes ", kernel.flops(),
                     " flops, expected a finite number >= 0");
    if (!(kernel.bytes() >= 0) || !std::isfinite(kernel.bytes()))
      return invalid("kernel ", kernel.symbol(), " moves ", kernel.bytes(),
                     " bytes, expected a finite number >= 0");
    if (kernel.has_gemm())
      return gemm(kernel);
    if (kernel.blob() >= static_cast<uint32_t>(plan.blobs_size()))
      return invalid("the code of kernel ", kernel.symbol(), " is blob ",
                     kernel.blob(), ", but there are ", plan.blobs_size(),
                     " blobs");
    if (kernel.threads() < 1 || kernel.threads() > kMaxThreads)
      return invalid("kernel ", kernel.symbol(), " has ", kernel.threads(),
                     " threads in a block, expected 1 to ", kMaxThreads);
    if (kernel.shared_bytes() > kMaxShared)
      return invalid("kernel ", kernel.symbol(), " has ", kernel.shared_bytes(),
                     " bytes of shared memory, the most is ", kMaxShared);
    if (kernel.cluster() > kMaxCluster)
      return invalid("kernel ", kernel.symbol(), " has clusters of ",
                     kernel.cluster(), " blocks, the most is ", kMaxCluster);
    return absl::OkStatus();
  }

  /// What a product says of itself; where its operands lie is checked with
  /// every launch.
  absl::Status gemm(const bundle::Kernel &kernel) {
    const bundle::Gemm &gemm = kernel.gemm();
    auto wrong = [&](const auto &...parts) {
      return invalid("product ", kernel.symbol(), " ", parts...);
    };
    if (kernel.blob() != 0 || kernel.threads() != 0 ||
        kernel.shared_bytes() != 0 || kernel.cluster() > 1)
      return wrong("has code of its own");
    for (auto [name, size] :
         {std::pair("m", gemm.m()), std::pair("n", gemm.n()),
          std::pair("k", gemm.k())})
      if (size < 1 || size > kMaxExtent)
        return wrong("has ", name, " = ", size, ", expected 1 to ", kMaxExtent);
    for (auto [name, ld, least] :
         {std::tuple("lda", gemm.lda(), gemm.trans_a() ? gemm.m() : gemm.k()),
          std::tuple("ldb", gemm.ldb(), gemm.trans_b() ? gemm.k() : gemm.n()),
          std::tuple("ldd", gemm.ldd(), gemm.n())})
      if (ld < least || ld > kMaxExtent)
        return wrong("has ", name, " = ", ld, ", expected ", least, " to ",
                     kMaxExtent);
    for (auto [name, type] :
         {std::pair("a", gemm.a_type()), std::pair("b", gemm.b_type()),
          std::pair("d", gemm.d_type())})
      if (type != bundle::F32 && type != bundle::BF16 && type != bundle::F16)
        return wrong("has operand ", name, " of ", dtypeName(type),
                     ", expected f32, bf16 or f16");
    if (gemm.a_type() != gemm.b_type())
      return wrong("multiplies ", dtypeName(gemm.a_type()), " by ",
                   dtypeName(gemm.b_type()), ", expected one type");
    for (auto [name, operand] :
         {std::pair("a", &gemm.a()), std::pair("b", &gemm.b()),
          std::pair("d", &gemm.d()), std::pair("workspace", &gemm.workspace())})
      if (operand->arg() >= kernel.args())
        return wrong("has operand ", name, " in argument ", operand->arg(),
                     ", but takes ", kernel.args());
    return absl::OkStatus();
  }

  /// The operands of a product lie within the arguments of its launch.
  absl::Status gemmLaunch(const std::string &who, const bundle::Kernel &kernel,
                          const bundle::Launch &launch) {
    const bundle::Gemm &gemm = kernel.gemm();
    // Rows of ld elements, the last one of `columns`.
    auto extent = [](int64_t rows, int64_t columns, int64_t ld,
                     bundle::DType type) {
      return (static_cast<uint64_t>(rows - 1) * static_cast<uint64_t>(ld) +
              static_cast<uint64_t>(columns)) *
             dtypeBytes(type);
    };
    struct Operand {
      const char *name;
      const bundle::GemmOperand *place;
      uint64_t bytes, align;
      bool write;
    };
    int64_t m = gemm.m(), n = gemm.n(), k = gemm.k();
    for (const Operand &operand :
         {Operand{"a", &gemm.a(),
                  extent(gemm.trans_a() ? k : m, gemm.trans_a() ? m : k,
                         gemm.lda(), gemm.a_type()),
                  dtypeBytes(gemm.a_type()), false},
          Operand{"b", &gemm.b(),
                  extent(gemm.trans_b() ? n : k, gemm.trans_b() ? k : n,
                         gemm.ldb(), gemm.b_type()),
                  dtypeBytes(gemm.b_type()), false},
          Operand{"d", &gemm.d(), extent(m, n, gemm.ldd(), gemm.d_type()),
                  dtypeBytes(gemm.d_type()), true},
          Operand{"workspace", &gemm.workspace(), gemm.workspace_bytes(), 1,
                  gemm.workspace_bytes() != 0}}) {
      const bundle::Arg &arg =
          launch.args(static_cast<int>(operand.place->arg()));
      uint64_t offset = operand.place->offset();
      if (offset > arg.bytes() || operand.bytes > arg.bytes() - offset)
        return invalid(who, ": operand ", operand.name, " of product ",
                       kernel.symbol(), " has ", operand.bytes,
                       " bytes at offset ", offset, " of argument ",
                       operand.place->arg(), ", which has ", arg.bytes());
      uint64_t begin = plan.buffers(static_cast<int>(arg.buffer())).offset() +
                       arg.offset() + offset;
      if (begin % operand.align != 0)
        return invalid(who, ": operand ", operand.name, " of product ",
                       kernel.symbol(), " begins at byte ", begin,
                       " of its arena, expected a multiple of ", operand.align);
      if (operand.write && !arg.write())
        return invalid(who, ": product ", kernel.symbol(), " writes operand ",
                       operand.name, ", but argument ", operand.place->arg(),
                       " is only read");
    }
    return absl::OkStatus();
  }

  absl::Status kernels() {
    std::set<std::string> seen;
    for (const bundle::Kernel &kernel : plan.kernels()) {
      if (!isSymbol(kernel.symbol()) || kernel.symbol().size() > kMaxName)
        return invalid("kernel symbol ", quoted(kernel.symbol()),
                       " is not a C identifier of at most ", kMaxName,
                       " bytes");
      if (!seen.insert(kernel.symbol()).second)
        return invalid("two kernels are named ", quoted(kernel.symbol()));
      if (kernel.op().empty() || kernel.op().size() > kMaxName)
        return invalid("kernel ", kernel.symbol(), " has an op class of ",
                       kernel.op().size(), " bytes, expected 1 to ", kMaxName);
      if (kernel.args() < 1 || kernel.args() > kMaxArgs)
        return invalid("kernel ", kernel.symbol(), " takes ", kernel.args(),
                       " arguments, expected 1 to ", kMaxArgs);
      if (gpu)
        QWEN35_RETURN_IF_ERROR(gpuKernel(kernel));
      else if (kernel.has_gemm())
        return invalid("kernel ", kernel.symbol(),
                       " is a library product, which only CUDA plans have");
    }
    return absl::OkStatus();
  }

  absl::Status arenas() {
    uint64_t total = 0;
    for (int i = 0; i < plan.arenas_size(); ++i) {
      const bundle::Arena &arena = plan.arenas(i);
      if (arena.name() != "state" && arena.name() != "io" &&
          arena.name() != "act")
        return invalid("an arena is named ", quoted(arena.name()),
                       ", expected state, io or act");
      if (arena.bytes() > kMaxArenaBytes)
        return invalid("arena ", arena.name(), " has ", arena.bytes(),
                       " bytes, the most is ", kMaxArenaBytes);
      if (arena.align() == 0 || (arena.align() & (arena.align() - 1)) != 0 ||
          arena.align() > kMaxAlign)
        return invalid("arena ", arena.name(), " is aligned to ", arena.align(),
                       " bytes, expected a power of two of at most ",
                       kMaxAlign);
      if (arena.name() == "act")
        act = i;
      total += arena.bytes();
    }
    uint64_t planned = plan.provenance().planned_peak();
    if (planned != 0 && planned != total)
      return invalid("the planned peak is ", planned,
                     " bytes, but the arenas have ", total);
    return absl::OkStatus();
  }

  absl::Status buffers() {
    for (const bundle::Buffer &buffer : plan.buffers()) {
      std::string who = absl::StrCat("buffer ", quoted(buffer.name()));
      if (buffer.arena() >= static_cast<uint32_t>(plan.arenas_size()))
        return invalid(who, " lies in arena ", buffer.arena(),
                       ", but there are ", plan.arenas_size(), " arenas");
      const bundle::Arena &arena =
          plan.arenas(static_cast<int>(buffer.arena()));
      if (buffer.bytes() == 0)
        return invalid(who, " has no bytes");
      if (buffer.offset() > arena.bytes() ||
          buffer.bytes() > arena.bytes() - buffer.offset())
        return invalid(who, " has ", buffer.bytes(), " bytes at offset ",
                       buffer.offset(), ", but arena ", arena.name(), " has ",
                       arena.bytes(), " bytes");
      QWEN35_RETURN_IF_ERROR(bufferShape(who, buffer));
      if (buffer.category().empty() || buffer.category().size() > kMaxName)
        return invalid(who, " has a category of ", buffer.category().size(),
                       " bytes, expected 1 to ", kMaxName);
    }
    return absl::OkStatus();
  }

  static absl::Status bufferShape(const std::string &who,
                                  const bundle::Buffer &buffer) {
    uint64_t width = dtypeBytes(buffer.dtype());
    if (width == 0 && buffer.dtype() != bundle::DTYPE_NONE)
      return absl::UnimplementedError(
          absl::StrCat(who, " has dtype ", static_cast<int>(buffer.dtype()),
                       ", the highest this reader knows is ",
                       static_cast<int>(bundle::DType_MAX)));
    if (width == 0) {
      if (buffer.shape_size() != 0)
        return invalid(who, " has the shape ", shapeText(buffer.shape()),
                       " but no dtype");
      return absl::OkStatus();
    }
    if (buffer.offset() % width != 0)
      return invalid(who, " begins at offset ", buffer.offset(),
                     ", which is no multiple of the ", width, " bytes of ",
                     dtypeName(buffer.dtype()));
    absl::StatusOr<uint64_t> count = elements(buffer.shape());
    if (!count.ok())
      return invalid(who, " has ", count.status().message());
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(*count, width, &bytes))
      return invalid(who, " has ", *count, " elements of ", width,
                     " bytes, more than 64 bits can count");
    // Without dimensions it is a scalar, or workspace with a preferred type.
    bool fits = buffer.shape_size() != 0 ? bytes == buffer.bytes()
                                         : buffer.bytes() % width == 0;
    if (!fits)
      return invalid(who, " has ", buffer.bytes(), " bytes, but ",
                     dtypeName(buffer.dtype()), shapeText(buffer.shape()),
                     " takes ", bytes);
    return absl::OkStatus();
  }

  /// Outside act, buffers live for the whole run, so none may share bytes.
  absl::Status disjoint() {
    std::vector<const bundle::Buffer *> order;
    for (const bundle::Buffer &buffer : plan.buffers())
      if (static_cast<int>(buffer.arena()) != act)
        order.push_back(&buffer);
    std::sort(order.begin(), order.end(),
              [](const bundle::Buffer *a, const bundle::Buffer *b) {
                return std::pair(a->arena(), a->offset()) <
                       std::pair(b->arena(), b->offset());
              });
    for (size_t i = 1; i < order.size(); ++i) {
      const bundle::Buffer &a = *order[i - 1], &b = *order[i];
      if (a.arena() == b.arena() && a.offset() + a.bytes() > b.offset())
        return invalid("buffers ", quoted(a.name()), " and ", quoted(b.name()),
                       " share bytes of arena ",
                       plan.arenas(static_cast<int>(a.arena())).name(),
                       ", where every buffer lives for the whole run");
    }
    return absl::OkStatus();
  }

  /// Reserves a buffer for one role, which must outlive a program.
  absl::Status claim(const std::string &role, uint32_t index) {
    if (index >= static_cast<uint32_t>(plan.buffers_size()))
      return invalid(role, " is buffer ", index, ", but there are ",
                     plan.buffers_size(), " buffers");
    const bundle::Buffer &buffer = plan.buffers(static_cast<int>(index));
    if (static_cast<int>(buffer.arena()) == act)
      return invalid(role, " is buffer ", quoted(buffer.name()),
                     " of arena act, which lasts for one program only");
    auto [it, fresh] = roles.emplace(index, role);
    if (!fresh)
      return invalid("buffer ", quoted(buffer.name()), " is both ", it->second,
                     " and ", role);
    return absl::OkStatus();
  }

  absl::Status
  claimTyped(const std::string &role, uint32_t index, bundle::DType dtype,
             const google::protobuf::RepeatedField<int64_t> &shape) {
    QWEN35_RETURN_IF_ERROR(claim(role, index));
    const bundle::Buffer &buffer = plan.buffers(static_cast<int>(index));
    bool same = std::equal(shape.begin(), shape.end(), buffer.shape().begin(),
                           buffer.shape().end()) &&
                (shape.size() != 0 || buffer.bytes() == dtypeBytes(dtype));
    if (buffer.dtype() != dtype || !same)
      return invalid(role, " is buffer ", quoted(buffer.name()), " with ",
                     dtypeName(buffer.dtype()), shapeText(buffer.shape()),
                     " of ", buffer.bytes(), " bytes, expected ",
                     dtypeName(dtype), shapeText(shape));
    return absl::OkStatus();
  }

  absl::Status params() {
    for (const bundle::Param &param : plan.params()) {
      std::string who = absl::StrCat("param ", quoted(param.name()));
      absl::StatusOr<uint64_t> count = elements(param.shape());
      if (!count.ok())
        return invalid(who, " has ", count.status().message());
      google::protobuf::RepeatedField<int64_t> moments = param.shape(),
                                               gradient = param.shape();
      if (param.has_moments())
        QWEN35_RETURN_IF_ERROR(statePiece(absl::StrCat("m of ", who), param,
                                          param.moments(), param.m(), moments));
      if (param.has_gradient())
        QWEN35_RETURN_IF_ERROR(statePiece(absl::StrCat("gradient of ", who),
                                          param, param.gradient(), param.grad(),
                                          gradient));
      for (auto [role, index, shape] :
           {std::tuple("weight", param.weight(), &param.shape()),
            std::tuple("m", param.m(), &std::as_const(moments)),
            std::tuple("v", param.v(), &std::as_const(moments)),
            std::tuple("gradient", param.grad(), &std::as_const(gradient))})
        QWEN35_RETURN_IF_ERROR(claimTyped(absl::StrCat(role, " of ", who),
                                          index, bundle::F32, *shape));
      if (param.has_work())
        QWEN35_RETURN_IF_ERROR(claimTyped(absl::StrCat("working copy of ", who),
                                          param.work(), bundle::BF16,
                                          param.shape()));
      if (param.has_shard()) {
        QWEN35_RETURN_IF_ERROR(
            validateShard(who, param.shard(), param.shape(), mesh));
        count = elements(param.shard().global_shape());
      }
      QWEN35_RETURN_IF_ERROR(validateGradientAxes(who, param, mesh));
      parameters += *count; // each is at most the bytes of a buffer
      if (absl::StatusOr<ParamInit> init = parseParamInit(param.init());
          !init.ok())
        return invalid(who, ": ", init.status().message());
      if (param.file_dtype() != bundle::F32 &&
          param.file_dtype() != bundle::BF16 &&
          param.file_dtype() != bundle::F16)
        return invalid(who, " is written to files as ",
                       dtypeName(param.file_dtype()),
                       ", expected f32, bf16 or f16");
    }
    return absl::OkStatus();
  }

  /// The moments or the gradient of a rank, where they are another piece than
  /// the weight; `local` becomes its shape.
  absl::Status statePiece(const std::string &who, const bundle::Param &param,
                          const bundle::Shard &shard, uint32_t buffer,
                          google::protobuf::RepeatedField<int64_t> &local) {
    if (buffer >= static_cast<uint32_t>(plan.buffers_size()))
      return invalid(who, " is buffer ", buffer, ", but there are ",
                     plan.buffers_size(), " buffers");
    local = plan.buffers(static_cast<int>(buffer)).shape();
    QWEN35_RETURN_IF_ERROR(validateShard(who, shard, local, mesh));
    const auto &whole =
        param.has_shard() ? param.shard().global_shape() : param.shape();
    const auto &found = shard.global_shape();
    if (!std::equal(whole.begin(), whole.end(), found.begin(), found.end()))
      return invalid(who, " is a piece of ", shapeText(found),
                     ", but the weight of ", shapeText(whole));
    return absl::OkStatus();
  }

  absl::Status model() {
    const bundle::Model &model = plan.model();
    if (model.parameters() != parameters)
      return invalid("the model is said to have ", model.parameters(),
                     " parameters, but its params have ", parameters);
    if (model.vocab_size() < 1 || model.vocab_size() > INT32_MAX)
      return invalid("the model's vocabulary has ", model.vocab_size(),
                     " entries, expected 1 to ", INT32_MAX);
    if (model.byte_vocabulary() && model.vocab_size() != 256)
      return invalid("a vocabulary of bytes has 256 entries, this one ",
                     model.vocab_size());
    for (const std::string &type : model.layer_types())
      if (type != "linear_attention" && type != "full_attention")
        return invalid("a layer is of type ", quoted(type),
                       ", expected linear_attention or full_attention");
    if (!(model.flops_per_token() >= 0) ||
        !std::isfinite(model.flops_per_token()))
      return invalid("the model takes ", model.flops_per_token(),
                     " flops per token, expected a finite number >= 0");
    return absl::OkStatus();
  }

  /// Checks one list of the IoSignature: known names only (what the runtime
  /// does not know it would leave unset), each once, none missing but the
  /// optional.
  absl::Status
  ioList(const char *kind,
         const google::protobuf::RepeatedPtrField<bundle::IoBuffer> &list,
         const std::vector<std::string> &required,
         const std::vector<std::string> &optional, bundle::DType dtype,
         const std::map<std::string, int64_t> &lengths) {
    std::vector<std::string> known = required;
    known.insert(known.end(), optional.begin(), optional.end());
    std::set<std::string> seen;
    for (const bundle::IoBuffer &entry : list) {
      if (absl::c_count(known, entry.name()) == 0)
        return invalid("the step has the ", kind, " ", quoted(entry.name()),
                       ", expected one of ", absl::StrJoin(known, ", "));
      if (!seen.insert(entry.name()).second)
        return invalid("the step has two ", kind, "s named ", entry.name());
      google::protobuf::RepeatedField<int64_t> shape;
      if (auto it = lengths.find(entry.name()); it != lengths.end())
        shape.Add(it->second);
      std::string who = absl::StrCat(kind, " ", entry.name());
      QWEN35_RETURN_IF_ERROR(claimTyped(who, entry.buffer(), dtype, shape));
      if (entry.has_shard() && entry.name() == "seq")
        return invalid(who, " is a table, which is not split");
      if (entry.has_shard())
        QWEN35_RETURN_IF_ERROR(
            validateShard(who, entry.shard(), shape, mesh));
    }
    for (const std::string &name : required)
      if (!seen.count(name))
        return invalid("the step has no ", kind, " named ", name);
    return absl::OkStatus();
  }

  absl::Status io() {
    const bundle::IoSignature &io = plan.io();
    if (io.tokens() < 1 || io.tokens() > kMaxTokens)
      return invalid("a row has ", io.tokens(), " tokens, expected 1 to ",
                     kMaxTokens);
    if (io.max_docs() < 1 || io.max_docs() > io.tokens() + 1)
      return invalid("a row has at most ", io.max_docs(),
                     " documents, expected 1 to ", io.tokens() + 1, " for its ",
                     io.tokens(), " tokens");
    SeqTable table{io.tokens(), io.max_docs()};
    StripeTable stripes{io.tokens(), mesh.shape().cp};
    QWEN35_RETURN_IF_ERROR(ioList("input", io.inputs(),
                                  {"ids", "labels", "seq"}, {"stripes"},
                                  bundle::I32,
                                  {{"ids", io.tokens()},
                                   {"labels", io.tokens()},
                                   {"seq", table.words()},
                                   {"stripes", stripes.words()}}));
    QWEN35_RETURN_IF_ERROR(
        ioList("scalar", io.scalars(),
               {"lr", "inv_count", "bias_correction1", "bias_correction2"},
               {"aux_scale"}, bundle::F32, {}));
    return ioList("output", io.outputs(), {"loss", "grad_norm", "commit"},
                  {"aux_loss", "lm_loss"}, bundle::F32, {});
  }

  /// The mesh and its communicators. Whoever does not know what ranks are must
  /// not run one of them alone, hence the feature.
  absl::Status ranks() {
    absl::StatusOr<Mesh> found = meshOf(plan);
    QWEN35_RETURN_IF_ERROR(found.status());
    mesh = *std::move(found);
    bool feature = absl::c_count(plan.header().features(), kRanksFeature) != 0;
    if (plan.has_mesh() != feature)
      return invalid("the bundle ", plan.has_mesh() ? "has" : "has not",
                     " a mesh, but its header ",
                     feature ? "names" : "does not name",
                     " the feature 'ranks'");
    return validateCommunicators(plan, mesh);
  }

  absl::Status rankVars() {
    for (const bundle::RankVar &entry : plan.rank_vars()) {
      if (entry.communicator() >=
          static_cast<uint32_t>(plan.communicators_size()))
        return invalid("a coordinate is that in communicator ",
                       entry.communicator(), ", but there are ",
                       plan.communicators_size());
      QWEN35_RETURN_IF_ERROR(claimTyped(
          absl::StrCat("the coordinate in communicator ", entry.communicator()),
          entry.buffer(), bundle::I32, {}));
    }
    return absl::OkStatus();
  }

  absl::Status programs() {
    static const std::set<std::string> kKnown = {
        "begin", "first", "accumulate", "finish", "only", "eval", "refresh"};
    std::set<std::string> present;
    for (const bundle::Program &program : plan.programs()) {
      if (!kKnown.count(program.name()))
        return absl::UnimplementedError(absl::StrCat(
            "the bundle has a program named ", quoted(program.name()),
            ", this reader knows ", absl::StrJoin(kKnown, ", ")));
      present.insert(program.name());
      flying.clear();
      for (int i = 0; i < program.entries_size(); ++i)
        QWEN35_RETURN_IF_ERROR(
            entry(absl::StrCat("entry ", i, " of program ", program.name()),
                  program.entries(i)));
      if (!flying.empty())
        return invalid("program ", program.name(), " starts collective ",
                       *flying.begin(), " and never waits for it");
    }
    for (const char *name : {"begin", "accumulate", "finish"})
      if (!present.count(name))
        return invalid("the bundle has no program named ", name);
    for (const bundle::Param &param : plan.params())
      if (param.has_work() && !present.count("refresh"))
        return invalid("param ", quoted(param.name()),
                       " has a working copy, but the bundle has no program "
                       "named refresh to make it");
    return absl::OkStatus();
  }

  absl::Status entry(const std::string &who, const bundle::PlanEntry &entry) {
    if (entry.op_case() == bundle::PlanEntry::OP_NOT_SET)
      return invalid(who,
                     " is empty, expected a launch, memset, collective or "
                     "wait");
    if (entry.has_collective()) {
      if (entry.collective().async())
        flying.insert(sequence);
      return validateCollective(who, plan, entry.collective(), sequence++);
    }
    if (entry.has_wait()) {
      if (!flying.erase(entry.wait().sequence()))
        return invalid(who, " waits for collective ", entry.wait().sequence(),
                       ", which this program has not started or has awaited");
      return absl::OkStatus();
    }
    if (entry.has_memset()) {
      const bundle::Memset &memset = entry.memset();
      if (memset.buffer() >= static_cast<uint32_t>(plan.buffers_size()))
        return invalid(who, " fills buffer ", memset.buffer(),
                       ", but there are ", plan.buffers_size(), " buffers");
      if (memset.value() > 255)
        return invalid(who, " fills with ", memset.value(),
                       ", expected the value of one byte");
      return absl::OkStatus();
    }
    return launch(who, entry.launch());
  }

  absl::Status launch(const std::string &who, const bundle::Launch &launch) {
    if (launch.kernel() >= static_cast<uint32_t>(plan.kernels_size()))
      return invalid(who, " launches kernel ", launch.kernel(),
                     ", but there are ", plan.kernels_size(), " kernels");
    const bundle::Kernel &kernel =
        plan.kernels(static_cast<int>(launch.kernel()));
    int64_t most = gpu ? kMaxGpuGrid : kMaxGrid;
    if (launch.grid() < 1 || launch.grid() > most)
      return invalid(who, " launches ", kernel.symbol(), " with a grid of ",
                     launch.grid(), ", expected 1 to ", most);
    if (kernel.cluster() > 1 && launch.grid() % kernel.cluster() != 0)
      return invalid(who, " launches ", kernel.symbol(), " with a grid of ",
                     launch.grid(), ", expected a multiple of its clusters of ",
                     kernel.cluster());
    if (static_cast<uint32_t>(launch.args_size()) != kernel.args())
      return invalid(who, " gives ", kernel.symbol(), " ", launch.args_size(),
                     " arguments, but it takes ", kernel.args());
    if (launch.tag().size() > kMaxName)
      return invalid(who, " has a tag of ", launch.tag().size(),
                     " bytes, the most is ", kMaxName);
    for (int i = 0; i < launch.args_size(); ++i)
      QWEN35_RETURN_IF_ERROR(arg(who, kernel, i, launch.args(i)));
    if (kernel.has_gemm())
      return gemmLaunch(who, kernel, launch);
    return absl::OkStatus();
  }

  absl::Status arg(const std::string &who, const bundle::Kernel &kernel, int i,
                   const bundle::Arg &arg) {
    auto name = [&] {
      return absl::StrCat(who, ": argument ", i, " of ", kernel.symbol());
    };
    if (arg.buffer() >= static_cast<uint32_t>(plan.buffers_size()))
      return invalid(name(), " is buffer ", arg.buffer(), ", but there are ",
                     plan.buffers_size(), " buffers");
    const bundle::Buffer &buffer = plan.buffers(static_cast<int>(arg.buffer()));
    if (arg.bytes() == 0)
      return invalid(name(), " has no bytes");
    if (arg.offset() > buffer.bytes() ||
        arg.bytes() > buffer.bytes() - arg.offset())
      return invalid(name(), " has ", arg.bytes(), " bytes at offset ",
                     arg.offset(), ", but buffer ", quoted(buffer.name()),
                     " has ", buffer.bytes());
    uint64_t width = dtypeBytes(buffer.dtype());
    if (width != 0 && arg.offset() % width != 0)
      return invalid(name(), " begins at offset ", arg.offset(),
                     ", which is no multiple of the ", width, " bytes of ",
                     dtypeName(buffer.dtype()));
    return absl::OkStatus();
  }

  const bundle::Bundle &plan;
  bool gpu = false;
  int act = -1; // index of the act arena
  uint64_t parameters = 0;
  Mesh mesh;
  uint64_t sequence = 0;                 // of the next collective
  std::set<uint64_t> flying; // started in the program at hand, not awaited
  std::map<uint32_t, std::string> roles; // by buffer
};

} // namespace

uint64_t dtypeBytes(bundle::DType dtype) {
  switch (dtype) {
  case bundle::F64:
  case bundle::I64:
    return 8;
  case bundle::F32:
  case bundle::I32:
    return 4;
  case bundle::BF16:
  case bundle::F16:
    return 2;
  case bundle::U8:
    return 1;
  default:
    return 0;
  }
}

const char *dtypeName(bundle::DType dtype) {
  switch (dtype) {
  case bundle::F32:
    return "f32";
  case bundle::F64:
    return "f64";
  case bundle::BF16:
    return "bf16";
  case bundle::I32:
    return "i32";
  case bundle::I64:
    return "i64";
  case bundle::U8:
    return "u8";
  case bundle::F16:
    return "f16";
  case bundle::DTYPE_NONE:
    return "none";
  default:
    return "unknown";
  }
}

absl::Status validateBundle(const bundle::Bundle &message) {
  for (int i = 0; i <= message.alternatives_size(); ++i) {
    absl::Status status = message.alternatives_size() == 0
                              ? Validator(message).run()
                              : Validator(planMessage(message, i)).run();
    if (!status.ok())
      return ofPlan(i, status);
  }
  return absl::OkStatus();
}

} // namespace qwen35
