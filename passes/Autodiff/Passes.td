#ifndef QWEN35_PASSES_AUTODIFF_PASSES_TD
#define QWEN35_PASSES_AUTODIFF_PASSES_TD

include "mlir/Pass/PassBase.td"

def MixedPrecision : Pass<"qwen35-mixed-precision", "mlir::ModuleOp"> {
  let summary = "Compute in bf16, keep parameters and statistics in f32";
  let description = [{
    Before: `@model` in f32. After: parameters that products and lookups read as matrices (projections, embedding, head,
    experts) pass through one `qwen35.cast`, and the types of everything that follows are inferred anew: activations are
    bf16, statistics (rstd, lse, gates, router probabilities, losses) are f32. The projection in front of a router has the
    result type f32.

    - **Stage.** S0.
    - **Leaves alone.** Small parameters: norm and convolution weights, `A_log`, `dt_bias`. Everything if compute is fp32.
    - **Numerics.** Every activation is rounded once to bf16; sums inside an op are f32. In exact arithmetic, as the
      interpreter has it in fp64, nothing changes.
  }];
  let options = [Option<"compute", "compute", "std::string", /*default=*/"\"bf16\"",
                        "Element type of activations: bf16 or fp32">];
  let dependentDialects = ["::qwen35::Qwen35Dialect", "::mlir::func::FuncDialect"];
}

def Autodiff : Pass<"qwen35-autodiff", "mlir::ModuleOp"> {
  let summary = "Differentiate the model with respect to its parameters";
  let description = [{
    Before: `@model` with results loss, ... After: `@gradients` beside it, the same arguments, results and then one
    gradient per `qwen35.param`, in order, each with `qwen35.gradient` naming it.

    A reverse walk over the ops between parameters and loss: the first contribution to a cotangent is stored, later ones
    are added. Slices of one tensor join into a concat. Backward ops read forward values directly; the loss head's
    gradient op takes over the loss, so that logits are formed once.

    - **Stage.** S0 to S1, first half.
    - **Leaves alone.** Ops that no parameter reaches; `@model`, from which evaluation is made.
    - **Numerics.** Fan-in of cotangents is summed in the element type of the value, in reverse program order. The gradients
      of parameters are f32 as products and sums leave them, also where the parameter is cast to bf16 before it is read.
  }];
  let dependentDialects = ["::qwen35::Qwen35Dialect", "::mlir::func::FuncDialect"];
}

def Optimizer : Pass<"qwen35-optimizer", "mlir::ModuleOp"> {
  let summary = "Turn gradients into the functions of a training step";
  let description = [{
    Before: `@model` and `@gradients`. After: `@eval`, `@accumulate` and `@finish` (docs/stages.md, S1); parameters are
    arguments, their updates results. A parameter that is cast before it is read has the result of the cast as an argument
    too, a working copy that `adamw` writes anew with the weight: no step casts weights. `@refresh`, where there are such
    copies, makes them from the weights.

    - **Stage.** S0 to S1, second half.
    - **Leaves alone.** The math of the two functions.
    - **Numerics.** grad' = grad + gradient of the microbatch. The global norm is a chain of `norm_sq` over the
      parameters in order, in f64; `adamw` multiplies each gradient by the clip factor.
  }];
  let options = [
    Option<"beta1", "beta1", "double", /*default=*/"0.9", "Decay of the first moment">,
    Option<"beta2", "beta2", "double", /*default=*/"0.95", "Decay of the second moment">,
    Option<"eps", "eps", "double", /*default=*/"1e-8", "Added to the root of the second moment">,
    Option<"weightDecay", "weight-decay", "double", /*default=*/"0.1", "Decoupled decay of the parameters whose decay is true">,
    Option<"gradClip", "grad-clip", "double", /*default=*/"1.0", "Largest global gradient norm; 0 clips nothing">];
  let dependentDialects = ["::qwen35::Qwen35Dialect", "::mlir::func::FuncDialect"];
}

#endif
