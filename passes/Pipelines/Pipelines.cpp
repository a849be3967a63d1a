#include "passes/Pipelines/Pipelines.h"

#include "passes/Autodiff/Passes.h"
#include "passes/Fusion/Passes.h"
#include "passes/Kernels/Passes.h"
#include "passes/Memory/Passes.h"
#include "passes/Partition/Passes.h"
#include "passes/Sharding/Passes.h"
#include "passes/Verify/Passes.h"

#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace qwen35 {

void buildModelPipeline(OpPassManager &pm,
                        const ModelPipelineOptions &options) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  if (options.compute != "fp32") {
    MixedPrecisionOptions precision;
    precision.compute = options.compute;
    pm.addPass(createMixedPrecision(precision));
  }
  pm.addPass(createVerifyS0());
}

void buildAutodiffPipeline(OpPassManager &pm,
                           const AutodiffPipelineOptions &options) {
  pm.addPass(createAutodiff());
  OptimizerOptions optimizer;
  optimizer.beta1 = options.beta1;
  optimizer.beta2 = options.beta2;
  optimizer.eps = options.eps;
  optimizer.weightDecay = options.weightDecay;
  optimizer.gradClip = options.gradClip;
  pm.addPass(createOptimizer(optimizer));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createVerifyS1());
}

void buildShardPipeline(OpPassManager &pm,
                        const PartitionPipelineOptions &options) {
  ShardSeedOptions seed;
  seed.mesh = options.mesh;
  seed.zero = options.zero;
  pm.addPass(createShardSeed(seed));
  pm.addPass(createShardPropagate());
  pm.addPass(createVerifyS2());
}

void buildSplitPipeline(OpPassManager &pm,
                        const PartitionPipelineOptions &options) {
  qwen35::PartitionOptions partition;
  partition.regather = options.regather;
  pm.addPass(createPartition(partition));
  pm.addNestedPass<func::FuncOp>(createCommSimplify());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  BucketOptions bucket;
  bucket.bytes = options.bucketBytes;
  pm.addNestedPass<func::FuncOp>(createBucket(bucket));
  pm.addPass(createVerifyS3());
}

void buildPartitionPipeline(OpPassManager &pm,
                            const PartitionPipelineOptions &options) {
  buildShardPipeline(pm, options);
  buildSplitPipeline(pm, options);
}

void buildSchedulePipeline(OpPassManager &pm,
                           const SchedulePipelineOptions &options) {
  RematOptions remat;
  remat.policy = options.remat;
  OpPassManager &functions = pm.nest<func::FuncOp>();
  functions.addPass(createRemat(remat));
  functions.addPass(createCanonicalizerPass()); // what is only recomputed
  if (options.fuse)
    functions.addPass(createFuse());
  if (options.overlap) {
    ScheduleOptions schedule;
    schedule.inFlight = options.inFlight;
    functions.addPass(createSchedule(schedule));
  }
  pm.addPass(createVerifyS4());
}

void buildKernelsPipeline(OpPassManager &pm,
                          const KernelsPipelineOptions &options) {
  OpPassManager &functions = pm.nest<func::FuncOp>();
  functions.addPass(createLowerGdn());
  functions.addPass(createCSEPass());
  ToKernelsOptions kernels;
  kernels.target = options.target;
  functions.addPass(createToKernels(kernels));
  pm.addPass(createVerifyS5());
}

void buildPlanPipeline(OpPassManager &pm) {
  pm.addPass(createPlanMemory());
  pm.addPass(createVerifyS6());
}

/// Every stage, with the options of all of them.
static void buildWholePipeline(OpPassManager &pm,
                               const WholePipelineOptions &options) {
  ModelPipelineOptions model;
  model.compute = options.compute;
  buildModelPipeline(pm, model);
  AutodiffPipelineOptions autodiff;
  autodiff.beta1 = options.beta1;
  autodiff.beta2 = options.beta2;
  autodiff.eps = options.eps;
  autodiff.weightDecay = options.weightDecay;
  autodiff.gradClip = options.gradClip;
  buildAutodiffPipeline(pm, autodiff);
  SchedulePipelineOptions schedule;
  schedule.remat = options.remat;
  buildSchedulePipeline(pm, schedule);
  KernelsPipelineOptions kernels;
  kernels.target = options.target;
  buildKernelsPipeline(pm, kernels);
  buildPlanPipeline(pm);
}

void registerAllPasses() {
  registerAutodiffPasses();
  registerFusionPasses();
  registerKernelPasses();
  registerMemoryPasses();
  registerPartitionPasses();
  registerShardingPasses();
  registerVerifyPasses();
  PassPipelineRegistration<ModelPipelineOptions>(
      "qwen35-pipeline-model", "Bring S0 into canonical form",
      buildModelPipeline);
  PassPipelineRegistration<AutodiffPipelineOptions>(
      "qwen35-pipeline-autodiff", "S0 to S1: gradients and optimizer",
      buildAutodiffPipeline);
  PassPipelineRegistration<PartitionPipelineOptions>(
      "qwen35-pipeline-partition", "S1 to S3: the program of one rank",
      buildPartitionPipeline);
  PassPipelineRegistration<SchedulePipelineOptions>(
      "qwen35-pipeline-schedule", "S1 to S4: rematerialization",
      buildSchedulePipeline);
  PassPipelineRegistration<KernelsPipelineOptions>(
      "qwen35-pipeline-kernels", "S4 to S5: kernel launches",
      buildKernelsPipeline);
  PassPipelineRegistration<>("qwen35-pipeline-plan", "S5 to S6: memory",
                             buildPlanPipeline);
  PassPipelineRegistration<WholePipelineOptions>(
      "qwen35-pipeline", "S0 to S6: all of the above", buildWholePipeline);
}

} // namespace qwen35
