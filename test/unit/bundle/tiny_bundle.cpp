#include "test/unit/bundle/tiny_bundle.h"

#include "codegen/bundle/bundle_writer.h"
#include "runtime/schema/bundle_format.h"
#include "runtime/schema/seq_table.h"
#include "test/unit/bundle/tiny_kernels.h"

#include <sodium/crypto_hash_sha256.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>

namespace qwen35 {
namespace {

[[noreturn]] void die(const std::string &text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::abort();
}

/// Lays out one arena, 64 bytes apart or at a given place.
class ArenaBuilder {
public:
  ArenaBuilder(bundle::Bundle &message, const std::string &name)
      : message(message), index(message.arenas_size()) {
    bundle::Arena *arena = message.add_arenas();
    arena->set_name(name);
    arena->set_align(4096);
  }

  uint32_t add(const std::string &name, bundle::DType dtype, uint64_t width,
               std::initializer_list<int64_t> shape,
               const std::string &category, int64_t at = -1) {
    uint64_t offset = at >= 0 ? uint64_t(at) : next;
    bundle::Buffer *buffer = message.add_buffers();
    buffer->set_name(name);
    buffer->set_arena(index);
    buffer->set_offset(offset);
    uint64_t bytes = width;
    for (int64_t size : shape) {
      buffer->add_shape(size);
      bytes *= uint64_t(size);
    }
    buffer->set_bytes(bytes);
    buffer->set_dtype(dtype);
    buffer->set_category(category);
    next = std::max(next, (offset + bytes + 63) / 64 * 64);
    message.mutable_arenas(int(index))->set_bytes(next);
    return uint32_t(message.buffers_size() - 1);
  }
  uint32_t f32(const std::string &name, std::initializer_list<int64_t> shape,
               const std::string &category) {
    return add(name, bundle::F32, 4, shape, category);
  }

private:
  bundle::Bundle &message;
  uint32_t index;
  uint64_t next = 0;
};

struct Operand {
  const char *buffer;
  bool write = false;
};

void addKernel(bundle::Bundle &message, const char *symbol, const char *op,
               uint32_t args) {
  bundle::Kernel *kernel = message.add_kernels();
  kernel->set_symbol(symbol);
  kernel->set_op(op);
  kernel->set_args(args);
}

void addLaunch(bundle::Bundle &message, bundle::Program *program,
               const std::string &symbol, int64_t grid,
               std::initializer_list<Operand> operands) {
  bundle::Launch *launch = program->add_entries()->mutable_launch();
  for (int i = 0; i < message.kernels_size(); ++i)
    if (message.kernels(i).symbol() == symbol)
      launch->set_kernel(uint32_t(i));
  launch->set_grid(grid);
  launch->set_tag("tiny/" + message.kernels(int(launch->kernel())).op());
  for (const Operand &operand : operands) {
    uint32_t index = bufferIndex(message, operand.buffer);
    bundle::Arg *arg = launch->add_args();
    arg->set_buffer(index);
    arg->set_bytes(message.buffers(int(index)).bytes());
    arg->set_write(operand.write);
  }
}

void addMemset(bundle::Bundle &message, bundle::Program *program,
               const std::string &buffer) {
  program->add_entries()->mutable_memset()->set_buffer(
      bufferIndex(message, buffer));
}

void addForward(bundle::Bundle &message, bundle::Program *program) {
  addLaunch(message, program, "tiny_forward", kTokens / kChunk,
            {{"w"}, {"ids"}, {"labels"}, {"error", true}});
  addLaunch(message, program, "tiny_loss", 1,
            {{"error"}, {"inv_count"}, {"loss", true}});
}

void addBackward(bundle::Bundle &message, bundle::Program *program) {
  addLaunch(message, program, "tiny_gradient", kWords / kBlock,
            {{"error"}, {"ids"}, {"inv_count"}, {"w.grad", true}});
}

void addUpdate(bundle::Bundle &message, bundle::Program *program) {
  addLaunch(message, program, "tiny_norm_partial", kWords / kBlock,
            {{"w.grad"}, {"partial", true}});
  addLaunch(message, program, "tiny_norm", 1,
            {{"partial"}, {"grad_norm", true}, {"commit", true}});
  addLaunch(message, program, "tiny_update", kWords / kBlock,
            {{"w", true},
             {"w.m", true},
             {"w.v", true},
             {"w.grad"},
             {"lr"},
             {"commit"}});
}

bundle::Program *addProgram(bundle::Bundle &message, const char *name) {
  bundle::Program *program = message.add_programs();
  program->set_name(name);
  return program;
}

void addBuffers(bundle::Bundle &message, const SeqTable &table) {
  bundle::Param *param = message.add_params();
  param->set_name("model.w");
  param->add_shape(kWords);
  param->set_init("normal(0.02)");
  param->set_file_dtype(bundle::BF16);
  ArenaBuilder state(message, "state");
  param->set_weight(state.f32("w", {kWords}, "weights"));
  param->set_m(state.f32("w.m", {kWords}, "optimizer"));
  param->set_v(state.f32("w.v", {kWords}, "optimizer"));
  param->set_grad(state.f32("w.grad", {kWords}, "gradients"));

  bundle::IoSignature *io = message.mutable_io();
  auto named = [](bundle::IoBuffer *entry, const char *name, uint32_t buffer) {
    entry->set_name(name);
    entry->set_buffer(buffer);
  };
  ArenaBuilder arena(message, "io");
  io->set_tokens(table.tokens);
  io->set_max_docs(table.maxDocs);
  for (const char *name : {"ids", "labels"})
    named(io->add_inputs(), name,
          arena.add(name, bundle::I32, 4, {kTokens}, "io"));
  named(io->add_inputs(), "seq",
        arena.add("seq", bundle::I32, 4, {table.words()}, "io"));
  for (const char *name :
       {"lr", "inv_count", "bias_correction1", "bias_correction2"})
    named(io->add_scalars(), name, arena.f32(name, {}, "io"));
  for (const char *name : {"loss", "grad_norm", "commit"})
    named(io->add_outputs(), name, arena.f32(name, {}, "io"));

  ArenaBuilder act(message, "act");
  act.f32("error", {kTokens}, "activations");
  act.add("partial", bundle::F64, 8, {kWords / kBlock}, "workspace", 64);
}

} // namespace

bundle::Bundle tinyMessage() {
  bundle::Bundle message;
  message.mutable_header()->set_major(BundleFormat::kMajor);
  bundle::Target *target = message.add_targets();
  target->set_kind("cpu");
  target->set_triple("x86_64-unknown-linux-gnu");
  target->set_cpu("x86-64");
  bundle::Model *model = message.mutable_model();
  model->set_name("tiny");
  model->set_config_json("{}");
  model->set_parameters(kWords);
  model->set_byte_vocabulary(true);
  model->set_vocab_size(256);
  model->set_flops_per_token(4);
  addBuffers(message, SeqTable{kTokens, 4});

  addKernel(message, "tiny_forward", "forward", 4);
  addKernel(message, "tiny_loss", "loss", 3);
  addKernel(message, "tiny_gradient", "gradient", 4);
  addKernel(message, "tiny_norm_partial", "norm", 2);
  addKernel(message, "tiny_norm", "norm", 3);
  addKernel(message, "tiny_update", "update", 6);

  bundle::Program *begin = addProgram(message, "begin");
  addMemset(message, begin, "w.grad");
  addMemset(message, begin, "loss");
  bundle::Program *accumulate = addProgram(message, "accumulate");
  addForward(message, accumulate);
  addBackward(message, accumulate);
  bundle::Program *finish = addProgram(message, "finish");
  addForward(message, finish);
  addBackward(message, finish);
  addUpdate(message, finish);
  bundle::Program *eval = addProgram(message, "eval");
  addMemset(message, eval, "loss");
  addForward(message, eval);

  uint64_t planned = 0;
  for (const bundle::Arena &arena : message.arenas())
    planned += arena.bytes();
  message.mutable_provenance()->set_compiler("tiny_bundle.cpp");
  message.mutable_provenance()->set_planned_peak(planned);
  return message;
}

void addWorkingCopy(bundle::Bundle &message) {
  bundle::Arena *state = message.mutable_arenas(0);
  bundle::Buffer *work = message.add_buffers();
  work->set_name("w.work");
  work->set_offset(state->bytes());
  work->set_bytes(2 * kWords);
  work->set_dtype(bundle::BF16);
  work->add_shape(kWords);
  work->set_category("weights");
  state->set_bytes(state->bytes() + work->bytes());
  bundle::Provenance *provenance = message.mutable_provenance();
  provenance->set_planned_peak(provenance->planned_peak() + work->bytes());
  uint32_t index = bufferIndex(message, "w.work");
  message.mutable_params(0)->set_work(index);

  bundle::Launch *update = launch(message, "finish", "tiny_update");
  bundle::Kernel *kernel = message.mutable_kernels(int(update->kernel()));
  kernel->set_args(kernel->args() + 1);
  bundle::Arg *arg = update->add_args();
  arg->set_buffer(index);
  arg->set_bytes(work->bytes());
  arg->set_write(true);
  addKernel(message, "tiny_refresh", "cast", 2);
  addLaunch(message, addProgram(message, "refresh"), "tiny_refresh", 1,
            {{"w"}, {"w.work", true}});
}

std::vector<uint8_t> tinyKernels(const std::string &file) {
  std::string path = std::string(QWEN35_TINY_KERNELS) + "/" + file;
  std::ifstream stream(path, std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(stream)),
                             std::istreambuf_iterator<char>());
  if (bytes.empty())
    die("cannot read " + path);
  return bytes;
}

std::string tinyBundle(const std::function<void(bundle::Bundle &)> &change) {
  bundle::Bundle message = tinyMessage();
  if (change)
    change(message);
  std::vector<uint8_t> kernels = tinyKernels();
  absl::StatusOr<std::string> file =
      serializeBundle(message, {{"kernels.so", kernels}});
  if (!file.ok())
    die(file.status().ToString());
  return *std::move(file);
}

bundle::Bundle tinyGpuMessage(uint32_t blob) {
  bundle::Bundle message = tinyMessage();
  message.clear_targets();
  bundle::Target *target = message.add_targets();
  target->set_kind("cuda");
  target->set_arch("emulated");
  for (bundle::Kernel &kernel : *message.mutable_kernels()) {
    kernel.set_blob(blob);
    kernel.set_threads(32);
    kernel.set_flops(100);
  }
  return message;
}

std::string
tinyGpuBundle(TinyPlans plans,
              const std::function<void(bundle::Bundle &)> &change) {
  bool both = plans == TinyPlans::CpuAndGpu;
  std::vector<uint8_t> host = tinyKernels(), gpu = tinyKernels("tiny_gpu.so");
  bundle::Bundle message = tinyGpuMessage(both ? 1 : 0);
  if (change)
    change(message);
  std::vector<NamedBlob> blobs;
  if (both) {
    bundle::Bundle first = tinyMessage();
    bundle::Plan *plan = first.add_alternatives();
    *plan->mutable_target() = message.targets(0);
    *plan->mutable_kernels() = message.kernels();
    *plan->mutable_arenas() = message.arenas();
    *plan->mutable_buffers() = message.buffers();
    *plan->mutable_params() = message.params();
    *plan->mutable_io() = message.io();
    *plan->mutable_programs() = message.programs();
    plan->set_planned_peak(message.provenance().planned_peak());
    message = std::move(first);
    blobs.push_back({"kernels.so", host});
  }
  blobs.push_back({"gpu.so", gpu});
  absl::StatusOr<std::string> file = serializeBundle(message, blobs);
  if (!file.ok())
    die(file.status().ToString());
  return *std::move(file);
}

uint32_t bufferIndex(const bundle::Bundle &message, const std::string &name) {
  for (int i = 0; i < message.buffers_size(); ++i)
    if (message.buffers(i).name() == name)
      return uint32_t(i);
  die("no buffer " + name);
}

bundle::Program *program(bundle::Bundle &message, const std::string &name) {
  for (bundle::Program &entry : *message.mutable_programs())
    if (entry.name() == name)
      return &entry;
  die("no program " + name);
}

bundle::Launch *launch(bundle::Bundle &message, const std::string &name,
                       const std::string &kernel) {
  for (bundle::PlanEntry &entry : *program(message, name)->mutable_entries())
    if (entry.has_launch() &&
        message.kernels(int(entry.launch().kernel())).symbol() == kernel)
      return entry.mutable_launch();
  die("no launch of " + kernel);
}

std::string messageOf(const std::string &file) {
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i)
    length |= uint64_t(uint8_t(file[BundleFormat::kLengthOffset + i]))
              << (8 * i);
  return file.substr(BundleFormat::kMessageOffset, length);
}

std::string withMessage(const std::string &file, const std::string &message) {
  std::string result = file.substr(0, BundleFormat::kLengthOffset);
  for (int i = 0; i < 8; ++i)
    result.push_back(char(message.size() >> (8 * i)));
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest,
                     reinterpret_cast<const unsigned char *>(message.data()),
                     message.size());
  result.append(reinterpret_cast<const char *>(digest), sizeof(digest));
  result += message;
  uint64_t oldEnd = BundleFormat::pageAligned(BundleFormat::kMessageOffset +
                                              messageOf(file).size());
  result.resize(BundleFormat::pageAligned(result.size()), '\0');
  return result + file.substr(oldEnd);
}

} // namespace qwen35
