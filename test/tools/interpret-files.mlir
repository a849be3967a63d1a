// Results of one run are the arguments of the next, under the names that step functions give them.
// RUN: qwen35-interpret %s --function make --outputs %t.safetensors --fp32
// RUN: qwen35-interpret %s --function step --inputs %t.safetensors --weights %t.safetensors --scalar lr=0.5 --zero-state \
// RUN:     --documents 1,2 | FileCheck %s
// RUN: qwen35-interpret %s --function model --weights %t.safetensors | FileCheck %s --check-prefix=MODEL
// RUN: qwen35-interpret %s --function step --inputs %t.safetensors --weights %t.safetensors --scalar lr=0.5 --zero-state \
// RUN:     --documents 1,2 --outputs %t2.safetensors
// RUN: qwen35-interpret %s --function again --inputs %t2.safetensors | FileCheck %s --check-prefix=AGAIN

// Weights may be a Hugging Face folder.
// RUN: rm -rf %t.dir && mkdir %t.dir
// RUN: qwen35-interpret %s --function folder --outputs %t.dir/model.safetensors --fp32
// RUN: qwen35-interpret %s --function model --weights %t.dir | FileCheck %s --check-prefix=MODEL

// What nobody gives is listed, all of it.
// RUN: not qwen35-interpret %s --function step 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: @step needs model.norm.weight, grad.model.norm.weight, sum.loss, x, ids, seq, lr: give --inputs,

// RUN: not qwen35-interpret %s --function step --documents 1,1,1,1,1 2>&1 | FileCheck %s --check-prefix=DOCUMENTS
// DOCUMENTS: error: --documents 1,1,1,1,1: lengths must be positive and fit !qwen35.seq<3, 2>, padding counting as a document

// RUN: not qwen35-interpret %s --function step --scalar lr=fast 2>&1 | FileCheck %s --check-prefix=SCALAR
// SCALAR: error: --scalar lr=fast: "fast" is no number, expected NAME=VALUE

// RUN: not qwen35-interpret %s --function nothing 2>&1 | FileCheck %s --check-prefix=FUNCTION
// FUNCTION: has no function @nothing, only @make @step @again @folder @model

// RUN: not qwen35-interpret %s --function again --inputs %t.safetensors 2>&1 | FileCheck %s --check-prefix=AGAINMISSING
// AGAINMISSING: error: @again needs grad.model.norm.weight, seq: give

// RUN: not qwen35-interpret %s --function model --weights %t2.safetensors 2>&1 | FileCheck %s --check-prefix=WEIGHTS
// WEIGHTS: error: {{.*}}.safetensors: no tensor model.norm.weight

// RUN: not qwen35-interpret %s --fp64 --fp32 2>&1 | FileCheck %s --check-prefix=BOTH
// BOTH: error: --fp64 and --fp32 exclude each other

// A file may use the names of the composite model.
func.func @make() -> (tensor<2xf32> {qwen35.name = "model.language_model.norm.weight"},
                      tensor<1x2xf32> {qwen35.name = "model.embed_tokens.weight"},
                      tensor<2xf32> {qwen35.name = "x"}, tensor<3xi32> {qwen35.name = "ids"}) {
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %e = arith.constant dense<[[8.0, 9.0]]> : tensor<1x2xf32>
  %ids = arith.constant dense<[3, 2, 1]> : tensor<3xi32>
  return %w, %e, %w, %ids : tensor<2xf32>, tensor<1x2xf32>, tensor<2xf32>, tensor<3xi32>
}

// CHECK:      grad.model.norm.weight = [1.5, 3]
// CHECK-NEXT: sum.loss = 0.5
// CHECK-NEXT: ids = [3, 2, 1]
// CHECK-NEXT: seq = [2, 2, 3,
// CHECK-NEXT: grad.again = [1, 2]
// CHECK-NEXT: result5 = 0.5
func.func @step(%w: tensor<2xf32> {qwen35.name = "model.norm.weight", qwen35.role = "weight"},
                %grad: tensor<2xf32> {qwen35.name = "model.norm.weight", qwen35.role = "grad"},
                %sum: tensor<f32> {qwen35.name = "loss", qwen35.role = "sum"},
                %x: tensor<2xf32> {qwen35.name = "x", qwen35.role = "input"},
                %ids: tensor<3xi32> {qwen35.name = "ids"}, %seq: !qwen35.seq<3, 2> {qwen35.name = "seq"},
                %lr: tensor<f32> {qwen35.name = "lr", qwen35.role = "scalar"})
    -> (tensor<2xf32> {qwen35.alias = 1}, tensor<f32> {qwen35.alias = 2}, tensor<3xi32> {qwen35.name = "ids"},
        !qwen35.seq<3, 2> {qwen35.name = "seq"}, tensor<2xf32> {qwen35.gradient = "again"}, tensor<f32>) {
  %s = qwen35.mul_scalar %w, %lr : tensor<2xf32>, tensor<f32>
  %g = qwen35.add %s, %x : tensor<2xf32>, tensor<2xf32>
  %g1 = qwen35.add %g, %grad : tensor<2xf32>, tensor<2xf32>
  %sum1 = qwen35.add %sum, %lr : tensor<f32>, tensor<f32>
  return %g1, %sum1, %ids, %seq, %w, %lr
      : tensor<2xf32>, tensor<f32>, tensor<3xi32>, !qwen35.seq<3, 2>, tensor<2xf32>, tensor<f32>
}

// Doubles and tables survive the file.
// AGAIN:      result0 = [1.5, 3]
// AGAIN-NEXT: result1 = {{\[\[}}1, 0], [1, 0], [0.5403
func.func @again(%grad: tensor<2xf32> {qwen35.name = "model.norm.weight", qwen35.role = "grad"},
                 %seq: !qwen35.seq<3, 2> {qwen35.name = "seq"}) -> (tensor<2xf32>, tensor<3x2xf32>) {
  %t = qwen35.rope_table %seq <{theta = 4.0, rotary_dim = 2}> : !qwen35.seq<3, 2>
  %r = qwen35.reshape %t : tensor<3x1x2xf32> to tensor<3x2xf32>
  return %grad, %r : tensor<2xf32>, tensor<3x2xf32>
}

func.func @folder() -> (tensor<2xf32> {qwen35.name = "model.language_model.norm.weight"},
                        tensor<1x2xf32> {qwen35.name = "model.language_model.embed_tokens.weight"}) {
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %e = arith.constant dense<[[8.0, 9.0]]> : tensor<1x2xf32>
  return %w, %e : tensor<2xf32>, tensor<1x2xf32>
}

// MODEL:      result0 = [1, 2]
// MODEL-NEXT: result1 = {{\[\[}}8, 9]]
func.func @model() -> (tensor<2xf32>, tensor<1x2xf32>) {
  %w = qwen35.param "model.norm.weight" <{init = "ones", decay = false, file_dtype = "f32"}> : tensor<2xf32>
  %e = qwen35.param "model.embed_tokens.weight" <{init = "ones", decay = false, file_dtype = "f32"}> : tensor<1x2xf32>
  return %w, %e : tensor<2xf32>, tensor<1x2xf32>
}
