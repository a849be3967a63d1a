#ifndef QWEN35_PASSES_PIPELINES_PIPELINES_H
#define QWEN35_PASSES_PIPELINES_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

namespace qwen35 {

struct ModelPipelineOptions : mlir::PassPipelineOptions<ModelPipelineOptions> {
  Option<std::string> compute{
      *this, "compute", llvm::cl::desc("Type of activations: fp32 or bf16"),
      llvm::cl::init("fp32")};
};

/// --qwen35-pipeline-autodiff and what it hands to --qwen35-optimizer.
struct AutodiffPipelineOptions
    : mlir::PassPipelineOptions<AutodiffPipelineOptions> {
  Option<double> beta1{*this, "beta1", llvm::cl::desc("AdamW beta1"),
                       llvm::cl::init(0.9)};
  Option<double> beta2{*this, "beta2", llvm::cl::desc("AdamW beta2"),
                       llvm::cl::init(0.95)};
  Option<double> eps{*this, "eps", llvm::cl::desc("AdamW eps"),
                     llvm::cl::init(1e-8)};
  Option<double> weightDecay{*this, "weight-decay",
                             llvm::cl::desc("Decoupled weight decay"),
                             llvm::cl::init(0.1)};
  Option<double> gradClip{*this, "grad-clip",
                          llvm::cl::desc("Largest global norm, 0 for none"),
                          llvm::cl::init(1.0)};
};

struct PartitionPipelineOptions
    : mlir::PassPipelineOptions<PartitionPipelineOptions> {
  Option<std::string> mesh{
      *this, "mesh", llvm::cl::desc("pp=1,dpr=1,dps=2,cp=1,tp=2,ep=4"),
      llvm::cl::init("")};
  Option<int64_t> zero{*this, "zero",
                       llvm::cl::desc("Split over data ranks are 1: moments, 2: "
                                      "gradient sums too, 3: weights too"),
                       llvm::cl::init(0)};
  Option<bool> regather{
      *this, "regather",
      llvm::cl::desc("Gather again in backward what forward has gathered"),
      llvm::cl::init(false)};
  Option<int64_t> bucketBytes{
      *this, "bucket-bytes",
      llvm::cl::desc("What a bucket of collectives moves at most, 0 for none"),
      llvm::cl::init(32 << 20)};
};

struct SchedulePipelineOptions
    : mlir::PassPipelineOptions<SchedulePipelineOptions> {
  Option<std::string> remat{*this, "remat",
                            llvm::cl::desc("none, selective or full"),
                            llvm::cl::init("none")};
  Option<bool> fuse{*this, "fuse",
                    llvm::cl::desc("Group ops that share rows"),
                    llvm::cl::init(true)};
  Option<bool> overlap{*this, "overlap",
                       llvm::cl::desc("Start collectives early, wait late"),
                       llvm::cl::init(false)};
  Option<int64_t> inFlight{
      *this, "in-flight",
      llvm::cl::desc("Bytes of collectives that fly at most"),
      llvm::cl::init(int64_t(1) << 30)};
};

struct KernelsPipelineOptions
    : mlir::PassPipelineOptions<KernelsPipelineOptions> {
  Option<std::string> target{*this, "target", llvm::cl::desc("cpu, sm_90a ..."),
                             llvm::cl::init("cpu")};
};

/// --qwen35-pipeline takes the options of every stage.
struct WholePipelineOptions : AutodiffPipelineOptions {
  Option<std::string> compute{
      *this, "compute", llvm::cl::desc("Type of activations: fp32 or bf16"),
      llvm::cl::init("fp32")};
  Option<std::string> remat{*this, "remat",
                            llvm::cl::desc("none, selective or full"),
                            llvm::cl::init("none")};
  Option<std::string> target{*this, "target", llvm::cl::desc("cpu, sm_90a ..."),
                             llvm::cl::init("cpu")};
};

/// S0: canonical form, the types of activations, then what S0 promises.
void buildModelPipeline(mlir::OpPassManager &pm,
                        const ModelPipelineOptions &options = {});
/// S0 to S1.
void buildAutodiffPipeline(mlir::OpPassManager &pm,
                           const AutodiffPipelineOptions &options);
/// S1 to S2: how every value is split over the ranks of a mesh; the batch of S1
/// is that of all of them.
void buildShardPipeline(mlir::OpPassManager &pm,
                        const PartitionPipelineOptions &options);
/// S2 to S3: the program of one rank.
void buildSplitPipeline(mlir::OpPassManager &pm,
                        const PartitionPipelineOptions &options);
/// S1 to S3: both.
void buildPartitionPipeline(mlir::OpPassManager &pm,
                            const PartitionPipelineOptions &options);
/// S1 to S4.
void buildSchedulePipeline(mlir::OpPassManager &pm,
                           const SchedulePipelineOptions &options);
/// S4 to S5.
void buildKernelsPipeline(mlir::OpPassManager &pm,
                          const KernelsPipelineOptions &options);
/// S5 to S6.
void buildPlanPipeline(mlir::OpPassManager &pm);

/// Makes every pass and every --qwen35-pipeline-* known to command lines.
void registerAllPasses();

} // namespace qwen35

#endif // QWEN35_PASSES_PIPELINES_PIPELINES_H
