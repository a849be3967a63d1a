#include "runtime/bundle/bundle_reader.h"
#include "test/unit/bundle/tiny_bundle.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qwen35 {
namespace {

using bundle::Bundle;

bundle::Buffer *buffer(Bundle &message, const std::string &name) {
  return message.mutable_buffers(int(bufferIndex(message, name)));
}

/// One thing wrong with the tiny bundle, and what the reader says about it.
struct Fault {
  std::function<void(Bundle &)> change;
  const char *message;
};

class ValidateTest : public ::testing::Test {
protected:
  static void expect(const std::vector<Fault> &faults) {
    for (const Fault &fault : faults) {
      Bundle message = tinyMessage();
      message.add_blobs()->set_name("kernels.so");
      ASSERT_TRUE(validateBundle(message).ok()) << validateBundle(message);
      fault.change(message);
      absl::Status status = validateBundle(message);
      EXPECT_EQ(std::string(status.message()), fault.message);
    }
  }
};

TEST_F(ValidateTest, Targets) {
  expect({
      {[](Bundle &m) { m.clear_targets(); },
       "the bundle has 0 targets, expected one"},
      {[](Bundle &m) { *m.add_targets() = m.targets(0); },
       "the bundle has 2 targets, expected one"},
      {[](Bundle &m) { m.mutable_targets(0)->set_kind("cuda"); },
       "the target's architecture is '', expected sm_90a or the like"},
      {[](Bundle &m) { m.mutable_targets(0)->set_triple("riscv64"); },
       "the target's triple is 'riscv64', this runtime is built for "
       "'x86_64-unknown-linux-gnu'"},
      {[](Bundle &m) { m.mutable_targets(0)->set_cpu("znver5"); },
       "the target's CPU is 'znver5', expected one of x86-64, x86-64-v2, "
       "x86-64-v3, x86-64-v4"},
      {[](Bundle &m) { m.mutable_targets(0)->set_blob(1); },
       "the target's code is blob 1, but there are 1 blobs"},
  });
}

TEST_F(ValidateTest, Names) {
  expect({
      {[](Bundle &m) { m.mutable_buffers(1)->set_name("w"); },
       "two buffers are named 'w'"},
      {[](Bundle &m) { m.mutable_buffers(1)->set_name(""); },
       "one of the 16 buffers has no name"},
      {[](Bundle &m) { m.mutable_params(0)->set_name(""); },
       "one of the 1 params has no name"},
      {[](Bundle &m) { m.mutable_arenas(0)->set_name("act"); },
       "two arenas are named 'act'"},
      {[](Bundle &m) { m.mutable_programs(0)->set_name("eval"); },
       "two programs are named 'eval'"},
      {[](Bundle &m) { *m.add_blobs() = m.blobs(0); },
       "two blobs are named 'kernels.so'"},
      {[](Bundle &m) {
         m.mutable_buffers(0)->set_name(std::string(1025, 'x'));
       },
       "buffer "
       "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
       "xxxxxxxxxxxxxxxx...' has a name of 1025 bytes, the most is 1024"},
  });
}

TEST_F(ValidateTest, Kernels) {
  expect({
      {[](Bundle &m) { m.mutable_kernels(0)->set_symbol("a b\n"); },
       "kernel symbol 'a b\\n' is not a C identifier of at most 1024 bytes"},
      {[](Bundle &m) { m.mutable_kernels(0)->set_symbol(""); },
       "kernel symbol '' is not a C identifier of at most 1024 bytes"},
      {[](Bundle &m) { m.mutable_kernels(0)->set_symbol("tiny_norm"); },
       "two kernels are named 'tiny_norm'"},
      {[](Bundle &m) { m.mutable_kernels(0)->set_op(""); },
       "kernel tiny_forward has an op class of 0 bytes, expected 1 to 1024"},
      {[](Bundle &m) { m.mutable_kernels(0)->set_args(0); },
       "kernel tiny_forward takes 0 arguments, expected 1 to 4096"},
      {[](Bundle &m) { m.mutable_kernels(0)->set_args(5000); },
       "kernel tiny_forward takes 5000 arguments, expected 1 to 4096"},
  });
}

TEST_F(ValidateTest, Arenas) {
  expect({
      {[](Bundle &m) { m.mutable_arenas(0)->set_name("stash"); },
       "an arena is named 'stash', expected state, io or act"},
      {[](Bundle &m) { m.mutable_arenas(0)->set_bytes(UINT64_MAX); },
       "arena state has 18446744073709551615 bytes, the most is "
       "70368744177664"},
      {[](Bundle &m) { m.mutable_arenas(0)->set_align(0); },
       "arena state is aligned to 0 bytes, expected a power of two of at most "
       "2097152"},
      {[](Bundle &m) { m.mutable_arenas(0)->set_align(48); },
       "arena state is aligned to 48 bytes, expected a power of two of at most "
       "2097152"},
      {[](Bundle &m) { m.mutable_provenance()->set_planned_peak(1); },
       "the planned peak is 1 bytes, but the arenas have 5632"},
  });
}

TEST_F(ValidateTest, Buffers) {
  expect({
      {[](Bundle &m) { buffer(m, "w")->set_arena(3); },
       "buffer 'w' lies in arena 3, but there are 3 arenas"},
      {[](Bundle &m) { buffer(m, "w")->set_bytes(0); },
       "buffer 'w' has no bytes"},
      {[](Bundle &m) { buffer(m, "w")->set_offset(UINT64_MAX - 3); },
       "buffer 'w' has 1024 bytes at offset 18446744073709551612, but arena "
       "state has 4096 bytes"},
      {[](Bundle &m) { buffer(m, "w")->set_bytes(UINT64_MAX); },
       "buffer 'w' has 18446744073709551615 bytes at offset 0, but arena state "
       "has 4096 bytes"},
      {[](Bundle &m) { buffer(m, "lr")->set_offset(1090); },
       "buffer 'lr' begins at offset 1090, which is no multiple of the 4 bytes "
       "of f32"},
      {[](Bundle &m) { buffer(m, "w")->set_shape(0, 255); },
       "buffer 'w' has 1024 bytes, but f32[255] takes 1020"},
      {[](Bundle &m) { buffer(m, "w")->set_shape(0, -1); },
       "buffer 'w' has a dimension of -1, the least is 1"},
      {[](Bundle &m) {
         for (int i = 0; i < 7; ++i)
           buffer(m, "w")->add_shape(INT64_MAX);
       },
       "buffer 'w' has more elements than 64 bits can count"},
      {[](Bundle &m) {
         for (int i = 0; i < 8; ++i)
           buffer(m, "w")->add_shape(1);
       },
       "buffer 'w' has rank 9, the most is 8"},
      {[](Bundle &m) { buffer(m, "w")->set_shape(0, int64_t(1) << 62); },
       "buffer 'w' has 4611686018427387904 elements of 4 bytes, more than 64 "
       "bits can count"},
      {[](Bundle &m) { buffer(m, "lr")->set_bytes(6); },
       "buffer 'lr' has 6 bytes, but f32[] takes 4"},
      {[](Bundle &m) { buffer(m, "w")->set_dtype(bundle::DType(99)); },
       "buffer 'w' has dtype 99, the highest this reader knows is 7"},
      {[](Bundle &m) { buffer(m, "w")->set_dtype(bundle::DTYPE_NONE); },
       "buffer 'w' has the shape [256] but no dtype"},
      {[](Bundle &m) { buffer(m, "w")->set_category(""); },
       "buffer 'w' has a category of 0 bytes, expected 1 to 1024"},
      {[](Bundle &m) { buffer(m, "w.m")->set_offset(512); },
       "buffers 'w' and 'w.m' share bytes of arena state, where every buffer "
       "lives for the whole run"},
  });
}

TEST_F(ValidateTest, ParamsAndModel) {
  expect({
      {[](Bundle &m) { m.mutable_params(0)->set_weight(16); },
       "weight of param 'model.w' is buffer 16, but there are 16 buffers"},
      {[](Bundle &m) { m.mutable_params(0)->set_m(0); },
       "buffer 'w' is both weight of param 'model.w' and m of param "
       "'model.w'"},
      {[](Bundle &m) { m.mutable_params(0)->set_shape(0, 128); },
       "weight of param 'model.w' is buffer 'w' with f32[256] of 1024 bytes, "
       "expected f32[128]"},
      {[](Bundle &m) { buffer(m, "w.v")->set_dtype(bundle::I32); },
       "v of param 'model.w' is buffer 'w.v' with i32[256] of 1024 bytes, "
       "expected f32[256]"},
      {[](Bundle &m) {
         m.mutable_params(0)->set_grad(bufferIndex(m, "error"));
       },
       "gradient of param 'model.w' is buffer 'error' of arena act, which "
       "lasts "
       "for one program only"},
      {[](Bundle &m) {
         addWorkingCopy(m);
         buffer(m, "w.work")->set_dtype(bundle::F16);
       },
       "working copy of param 'model.w' is buffer 'w.work' with f16[256] of "
       "512 bytes, expected bf16[256]"},
      {[](Bundle &m) {
         addWorkingCopy(m);
         m.mutable_params(0)->set_work(m.params(0).m());
       },
       "buffer 'w.m' is both m of param 'model.w' and working copy of param "
       "'model.w'"},
      {[](Bundle &m) {
         addWorkingCopy(m);
         m.mutable_programs()->RemoveLast();
       },
       "param 'model.w' has a working copy, but the bundle has no program "
       "named refresh to make it"},
      {[](Bundle &m) { m.mutable_params(0)->set_init("random"); },
       "param 'model.w': init 'random' is not zeros, ones, normal(STD) with "
       "STD "
       ">= 0, or log_uniform(LO,HI) with 0 < LO < HI"},
      {[](Bundle &m) { m.mutable_params(0)->set_file_dtype(bundle::I64); },
       "param 'model.w' is written to files as i64, expected f32, bf16 or f16"},
      {[](Bundle &m) { m.mutable_model()->set_parameters(255); },
       "the model is said to have 255 parameters, but its params have 256"},
      {[](Bundle &m) { m.mutable_model()->set_vocab_size(0); },
       "the model's vocabulary has 0 entries, expected 1 to 2147483647"},
      {[](Bundle &m) { m.mutable_model()->set_vocab_size(512); },
       "a vocabulary of bytes has 256 entries, this one 512"},
      {[](Bundle &m) { m.mutable_model()->add_layer_types("mamba"); },
       "a layer is of type 'mamba', expected linear_attention or "
       "full_attention"},
      {[](Bundle &m) { m.mutable_model()->set_flops_per_token(NAN); },
       "the model takes nan flops per token, expected a finite number >= 0"},
  });
}

TEST_F(ValidateTest, Io) {
  expect({
      {[](Bundle &m) { m.mutable_io()->set_tokens(0); },
       "a row has 0 tokens, expected 1 to 268435456"},
      {[](Bundle &m) { m.mutable_io()->set_max_docs(50); },
       "a row has at most 50 documents, expected 1 to 49 for its 48 tokens"},
      {[](Bundle &m) { m.mutable_io()->set_max_docs(5); },
       "input seq is buffer 'seq' with i32[126] of 504 bytes, expected "
       "i32[131]"},
      {[](Bundle &m) { m.mutable_io()->set_tokens(47); },
       "input ids is buffer 'ids' with i32[48] of 192 bytes, expected "
       "i32[47]"},
      {[](Bundle &m) { buffer(m, "labels")->set_dtype(bundle::F32); },
       "input labels is buffer 'labels' with f32[48] of 192 bytes, expected "
       "i32[48]"},
      {[](Bundle &m) { m.mutable_io()->mutable_inputs(0)->set_name("x"); },
       "the step has the input 'x', expected one of ids, labels, seq, stripes"},
      {[](Bundle &m) { m.mutable_io()->mutable_inputs()->RemoveLast(); },
       "the step has no input named seq"},
      {[](Bundle &m) { m.mutable_io()->mutable_inputs(1)->set_name("ids"); },
       "the step has two inputs named ids"},
      {[](Bundle &m) { m.mutable_io()->mutable_inputs(1)->set_buffer(4); },
       "buffer 'ids' is both input ids and input labels"},
      {[](Bundle &m) { m.mutable_io()->mutable_scalars(1)->set_name("lr"); },
       "the step has two scalars named lr"},
      {[](Bundle &m) { m.mutable_io()->mutable_scalars()->RemoveLast(); },
       "the step has no scalar named bias_correction2"},
      {[](Bundle &m) { buffer(m, "lr")->add_shape(1); },
       "scalar lr is buffer 'lr' with f32[1] of 4 bytes, expected f32[]"},
      {[](Bundle &m) { m.mutable_io()->mutable_outputs(0)->set_name("nll"); },
       "the step has the output 'nll', expected one of loss, grad_norm, "
       "commit, aux_loss, lm_loss"},
      {[](Bundle &m) { m.mutable_io()->mutable_outputs(0)->set_buffer(1000); },
       "output loss is buffer 1000, but there are 16 buffers"},
  });
}

TEST_F(ValidateTest, Programs) {
  expect({
      {[](Bundle &m) { program(m, "eval")->set_name("export"); },
       "the bundle has a program named 'export', this reader knows "
       "accumulate, begin, eval, finish, first, only, refresh"},
      {[](Bundle &m) { m.mutable_programs()->DeleteSubrange(2, 1); },
       "the bundle has no program named finish"},
      {[](Bundle &m) { program(m, "begin")->add_entries(); },
       "entry 2 of program begin is empty, expected a launch, memset, collective or wait"},
      {[](Bundle &m) {
         program(m, "begin")
             ->mutable_entries(0)
             ->mutable_memset()
             ->set_buffer(16);
       },
       "entry 0 of program begin fills buffer 16, but there are 16 buffers"},
      {[](Bundle &m) {
         program(m, "begin")
             ->mutable_entries(0)
             ->mutable_memset()
             ->set_value(256);
       },
       "entry 0 of program begin fills with 256, expected the value of one "
       "byte"},
      {[](Bundle &m) { launch(m, "eval", "tiny_loss")->set_kernel(6); },
       "entry 2 of program eval launches kernel 6, but there are 6 kernels"},
      {[](Bundle &m) { launch(m, "eval", "tiny_loss")->set_grid(0); },
       "entry 2 of program eval launches tiny_loss with a grid of 0, expected "
       "1 to 67108864"},
      {[](Bundle &m) { launch(m, "eval", "tiny_loss")->set_grid(1 << 27); },
       "entry 2 of program eval launches tiny_loss with a grid of 134217728, "
       "expected 1 to 67108864"},
      {[](Bundle &m) { launch(m, "eval", "tiny_loss")->add_args(); },
       "entry 2 of program eval gives tiny_loss 4 arguments, but it takes 3"},
      {[](Bundle &m) {
         launch(m, "eval", "tiny_loss")->set_tag(std::string(1025, 'x'));
       },
       "entry 2 of program eval has a tag of 1025 bytes, the most is 1024"},
      {[](Bundle &m) {
         launch(m, "eval", "tiny_loss")->mutable_args(1)->set_buffer(99);
       },
       "entry 2 of program eval: argument 1 of tiny_loss is buffer 99, but "
       "there are 16 buffers"},
      {[](Bundle &m) {
         launch(m, "eval", "tiny_loss")->mutable_args(1)->set_bytes(0);
       },
       "entry 2 of program eval: argument 1 of tiny_loss has no bytes"},
      {[](Bundle &m) {
         launch(m, "eval", "tiny_loss")->mutable_args(0)->set_bytes(193);
       },
       "entry 2 of program eval: argument 0 of tiny_loss has 193 bytes at "
       "offset 0, but buffer 'error' has 192"},
      {[](Bundle &m) {
         launch(m, "eval", "tiny_loss")
             ->mutable_args(0)
             ->set_offset(UINT64_MAX);
       },
       "entry 2 of program eval: argument 0 of tiny_loss has 192 bytes at "
       "offset 18446744073709551615, but buffer 'error' has 192"},
      {[](Bundle &m) {
         bundle::Arg *arg = launch(m, "eval", "tiny_loss")->mutable_args(0);
         arg->set_offset(6);
         arg->set_bytes(8);
       },
       "entry 2 of program eval: argument 0 of tiny_loss begins at offset 6, "
       "which is no multiple of the 4 bytes of f32"},
  });
}

TEST_F(ValidateTest, AcceptsWhatTheSchemaLeavesOpen) {
  Bundle message = tinyMessage();
  message.add_blobs()->set_name("kernels.so");
  buffer(message, "error")->set_category("anything");
  bundle::Buffer *raw = message.add_buffers(); // workspace without a type
  raw->set_name("workspace");
  raw->set_arena(2);
  raw->set_bytes(13);
  raw->set_category("workspace");
  bundle::IoBuffer *extra = message.mutable_io()->add_scalars();
  extra->set_name("aux_scale");
  bundle::Buffer *scale = message.add_buffers();
  *scale = *buffer(message, "lr");
  scale->set_name("aux_scale");
  scale->set_offset(message.arenas(1).bytes());
  message.mutable_arenas(1)->set_bytes(message.arenas(1).bytes() + 4);
  message.mutable_provenance()->set_planned_peak(0);
  extra->set_buffer(bufferIndex(message, "aux_scale"));
  message.mutable_programs()->RemoveLast(); // eval is optional
  EXPECT_TRUE(validateBundle(message).ok()) << validateBundle(message);
}

} // namespace
} // namespace qwen35
