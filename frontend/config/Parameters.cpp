#include "frontend/config/Parameters.h"

#include "frontend/config/Text.h"

#include "llvm/ADT/STLExtras.h"

namespace qwen35 {
namespace {

/// Appends parameters of one module, whose name is the prefix.
class Table {
public:
  Table(const ModelConfig &config, std::vector<ParameterSpec> &rows)
      : config(config), rows(rows),
        normal("normal(" + shortestReal(config.initializerRange) + ")") {}

  void weight(const std::string &name, llvm::ArrayRef<int64_t> shape) {
    add(name, shape, normal, config.dtype);
  }
  /// A zero-centred norm: the stored weight is an offset from one.
  void norm(const std::string &name, int64_t size) {
    add(name, {size}, "zeros", config.dtype);
  }
  void add(const std::string &name, llvm::ArrayRef<int64_t> shape,
           const std::string &init, FileType type) {
    rows.push_back({name,
                    {shape.begin(), shape.end()},
                    init,
                    /*decay=*/shape.size() >= 2,
                    type});
  }

  void linearAttention(const std::string &prefix);
  void fullAttention(const std::string &prefix);
  void denseBlock(const std::string &prefix);
  void moeBlock(const std::string &prefix);
  void swiglu(const std::string &prefix, int64_t width);

private:
  const ModelConfig &config;
  std::vector<ParameterSpec> &rows;
  std::string normal;
};

void Table::linearAttention(const std::string &prefix) {
  int64_t hidden = config.hiddenSize, heads = config.linearNumValueHeads;
  int64_t values = config.linearValueDim(), channels = config.linearConvDim();
  add(prefix + "dt_bias", {heads}, "ones", config.dtype);
  // The published files keep these two in float32 among bf16 tensors: a step of
  // training can be below the resolution of A_log in bf16.
  add(prefix + "A_log", {heads}, "log_uniform(0.01,16)", FileType::Float32);
  weight(prefix + "conv1d.weight", {channels, 1, config.linearConvKernelDim});
  add(prefix + "norm.weight", {config.linearValueHeadDim}, "ones",
      FileType::Float32);
  weight(prefix + "out_proj.weight", {hidden, values});
  weight(prefix + "in_proj_qkv.weight", {channels, hidden});
  weight(prefix + "in_proj_z.weight", {values, hidden});
  weight(prefix + "in_proj_b.weight", {heads, hidden});
  weight(prefix + "in_proj_a.weight", {heads, hidden});
}

void Table::fullAttention(const std::string &prefix) {
  int64_t hidden = config.hiddenSize, queries = config.attentionDim();
  int64_t keys = config.numKeyValueHeads * config.headDim;
  weight(prefix + "q_proj.weight", {2 * queries, hidden}); // query and gate
  weight(prefix + "k_proj.weight", {keys, hidden});
  weight(prefix + "v_proj.weight", {keys, hidden});
  weight(prefix + "o_proj.weight", {hidden, queries});
  norm(prefix + "q_norm.weight", config.headDim);
  norm(prefix + "k_norm.weight", config.headDim);
}

void Table::swiglu(const std::string &prefix, int64_t width) {
  weight(prefix + "gate_proj.weight", {width, config.hiddenSize});
  weight(prefix + "up_proj.weight", {width, config.hiddenSize});
  weight(prefix + "down_proj.weight", {config.hiddenSize, width});
}

void Table::denseBlock(const std::string &prefix) {
  swiglu(prefix, config.intermediateSize);
}

void Table::moeBlock(const std::string &prefix) {
  int64_t hidden = config.hiddenSize, experts = config.numExperts;
  int64_t width = config.moeIntermediateSize;
  weight(prefix + "gate.weight", {experts, hidden});
  weight(prefix + "experts.gate_up_proj", {experts, 2 * width, hidden});
  weight(prefix + "experts.down_proj", {experts, hidden, width});
  swiglu(prefix + "shared_expert.", config.sharedExpertIntermediateSize);
  weight(prefix + "shared_expert_gate.weight", {1, hidden});
}

int64_t sum(llvm::ArrayRef<ParameterSpec> rows) {
  int64_t elements = 0;
  for (const ParameterSpec &row : rows)
    elements += row.elements();
  return elements;
}

/// Elements of one module, of whatever config.
template <typename Fill>
int64_t countModule(const ModelConfig &config, Fill fill) {
  std::vector<ParameterSpec> rows;
  Table table(config, rows);
  fill(table);
  return sum(rows);
}

/// Elements of the routed experts that a token does not pass through.
int64_t idleExpertElements(const ModelConfig &config) {
  if (!config.moe)
    return 0;
  return 3 * (config.numExperts - config.numExpertsPerTok) * config.hiddenSize *
         config.moeIntermediateSize;
}

} // namespace

int64_t ParameterSpec::elements() const {
  int64_t elements = 1;
  for (int64_t size : shape)
    elements *= size;
  return elements;
}

std::vector<ParameterSpec> layerParameters(const ModelConfig &config,
                                           int64_t layer) {
  std::vector<ParameterSpec> rows;
  Table table(config, rows);
  std::string prefix = "model.layers." + std::to_string(layer) + ".";
  if (config.layerTypes[layer] == LayerType::FullAttention)
    table.fullAttention(prefix + "self_attn.");
  else
    table.linearAttention(prefix + "linear_attn.");
  if (config.moe)
    table.moeBlock(prefix + "mlp.");
  else
    table.denseBlock(prefix + "mlp.");
  table.norm(prefix + "input_layernorm.weight", config.hiddenSize);
  table.norm(prefix + "post_attention_layernorm.weight", config.hiddenSize);
  return rows;
}

std::vector<ParameterSpec> parameterTable(const ModelConfig &config) {
  std::vector<ParameterSpec> rows;
  Table table(config, rows);
  table.weight("model.embed_tokens.weight",
               {config.vocabSize, config.hiddenSize});
  for (int64_t layer = 0; layer < config.numLayers(); ++layer)
    llvm::append_range(rows, layerParameters(config, layer));
  table.norm("model.norm.weight", config.hiddenSize);
  if (!config.tieWordEmbeddings)
    table.weight("lm_head.weight", {config.vocabSize, config.hiddenSize});
  return rows;
}

ParameterCount countParameters(const ModelConfig &config) {
  ParameterCount count;
  count.attention =
      countModule(config, [](Table &table) { table.fullAttention(""); });
  count.gatedDelta =
      countModule(config, [](Table &table) { table.linearAttention(""); });
  count.feedForward = countModule(config, [&](Table &table) {
    config.moe ? table.moeBlock("") : table.denseBlock("");
  });
  int64_t embedding = config.vocabSize * config.hiddenSize;
  count.total = sum(parameterTable(config));
  count.activeBody = count.total -
                     embedding * (config.tieWordEmbeddings ? 1 : 2) -
                     config.numLayers() * idleExpertElements(config);
  count.activeWithHead = count.activeBody + embedding;
  return count;
}

ForwardFlops forwardFlops(const ModelConfig &config, int64_t documentLength,
                          DeltaRuleCount count) {
  constexpr double chunk = 64;
  double keyDim = double(config.linearKeyHeadDim);
  double valueDim = double(config.linearValueHeadDim);
  double linearLayers = double(config.numLayers(LayerType::LinearAttention));
  double fullLayers = double(config.numLayers(LayerType::FullAttention));

  // Matmul weights are the active ones with two dims: not the convolution.
  int64_t matmul = config.vocabSize * config.hiddenSize; // the head
  for (int64_t layer = 0; layer < config.numLayers(); ++layer)
    for (const ParameterSpec &row : layerParameters(config, layer))
      if (row.decay && !llvm::StringRef(row.name).ends_with("conv1d.weight"))
        matmul += row.elements();
  matmul -= config.numLayers() * idleExpertElements(config);

  double core = 8 * keyDim * valueDim;
  if (count == DeltaRuleCount::Chunked)
    core = 2 * (3 * keyDim * valueDim + chunk * (3 * keyDim + 2 * valueDim) +
                chunk * chunk / 6);

  ForwardFlops flops;
  flops.weights = 2 * double(matmul);
  flops.attention = fullLayers * 4 * double(config.attentionDim()) *
                    (double(documentLength) + 1) / 2;
  flops.conv = linearLayers * 2 * double(config.linearConvKernelDim) *
               double(config.linearConvDim());
  flops.deltaRule = linearLayers * double(config.linearNumValueHeads) * core;
  return flops;
}

double trainingFlops(const ModelConfig &config, int64_t documentLength,
                     DeltaRuleCount count) {
  return 3 * forwardFlops(config, documentLength, count).total();
}

} // namespace qwen35
