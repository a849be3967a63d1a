#include "frontend/config/ConfigJson.h"

#include "frontend/config/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace qwen35 {
namespace {

namespace json = llvm::json;

constexpr llvm::StringRef kSupportedTypes =
    "qwen3_5, qwen3_5_text, qwen3_5_moe or qwen3_5_moe_text";

// Keys of the text level that change the model, or must have one value.
constexpr llvm::StringRef kTextKeys[] = {
    "attention_bias",
    "attention_dropout",
    "attn_output_gate",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "full_attention_interval",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "initializer_range",
    "layer_types",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "max_position_embeddings",
    "mlp_only_layers",
    "model_type",
    "mrope_interleaved",
    "mrope_section",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "output_gate_type",
    "pad_token_id",
    "partial_rotary_factor",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "tie_word_embeddings",
    "torch_dtype",
    "vocab_size",
};
constexpr llvm::StringRef kDenseKeys[] = {"intermediate_size"};
constexpr llvm::StringRef kMoeKeys[] = {
    // intermediate_size may sit in a MoE file; no layer uses it.
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "output_router_logits",
    "router_aux_loss_coef",
    "shared_expert_intermediate_size",
};
constexpr llvm::StringRef kRopeKeys[] = {
    "mrope_interleaved", "mrope_section", "partial_rotary_factor",
    "rope_theta",        "rope_type",     "type",
};
// Keys that describe a file, another model part or inference: known, and
// without any effect on a training step of the text model.
constexpr llvm::StringRef kInertKeys[] = {
    "_name_or_path",
    "architectures",
    "chunk_size_feed_forward",
    "id2label",
    "image_token_id",
    "is_encoder_decoder",
    "label2id",
    "language_model_only",
    "mamba_ssm_dtype",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "output_attentions",
    "output_hidden_states",
    "problem_type",
    "return_dict",
    "text_config",
    "transformers_version",
    "use_cache",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
};

/// The value as a reader of the file would recognise it.
std::string found(const json::Value &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  if (text.size() > 60)
    text = text.substr(0, 57) + "...";
  return text;
}

/// One object of the file, with the prefix its keys have in messages.
struct Level {
  const json::Object *object = nullptr;
  std::string prefix;

  const json::Value *find(llvm::StringRef key) const {
    const json::Value *value = object ? object->get(key) : nullptr;
    return value && value->kind() != json::Value::Null ? value : nullptr;
  }
};

/// A value and the full name of the key it came from.
struct Entry {
  const json::Value *value = nullptr;
  std::string key;

  explicit operator bool() const { return value; }
};

Entry lookUp(llvm::ArrayRef<const Level *> levels, llvm::StringRef key) {
  for (const Level *level : levels)
    if (const json::Value *value = level->find(key))
      return {value, level->prefix + key.str()};
  return {};
}

llvm::Error wrongValue(const Entry &entry, const llvm::Twine &expected) {
  return configError(entry.key + ": found " + found(*entry.value) +
                     ", expected " + expected);
}

/// Reads the file level by level. Every `read` leaves the field at its default
/// when the key is missing.
class Reader {
public:
  explicit Reader(const json::Object &root) : top{&root, ""} {}

  llvm::Expected<ParsedConfig> run();

private:
  llvm::Error findLevels();
  llvm::Error decideKind();
  llvm::Error readText();
  llvm::Error readLayers();
  llvm::Error readRope();
  llvm::Error readSharedKeys();
  llvm::Error readTokenIds();
  llvm::Error refuseVariants();
  void warnUnknown(const Level &level, llvm::ArrayRef<llvm::StringRef> known,
                   bool isTop);
  void warnAll();

  llvm::Error read(const Entry &entry, int64_t &field);
  llvm::Error read(const Entry &entry, double &field);
  llvm::Error read(const Entry &entry, bool &field);
  template <typename T> llvm::Error readTextKey(llvm::StringRef key, T &field) {
    return read(lookUp({&text}, key), field);
  }
  llvm::Expected<FileType> fileType(const Entry &entry);

  bool composite() const { return text.object != top.object; }

  ParsedConfig result;
  Level top, text, rope;
};

llvm::Error Reader::read(const Entry &entry, int64_t &field) {
  if (!entry)
    return llvm::Error::success();
  std::optional<int64_t> number = entry.value->getAsInteger();
  if (!number)
    return wrongValue(entry, "an integer");
  field = *number;
  return llvm::Error::success();
}

llvm::Error Reader::read(const Entry &entry, double &field) {
  if (!entry)
    return llvm::Error::success();
  std::optional<double> number = entry.value->getAsNumber();
  if (!number)
    return wrongValue(entry, "a number");
  field = *number;
  return llvm::Error::success();
}

llvm::Error Reader::read(const Entry &entry, bool &field) {
  if (!entry)
    return llvm::Error::success();
  std::optional<bool> flag = entry.value->getAsBoolean();
  if (!flag)
    return wrongValue(entry, "true or false");
  field = *flag;
  return llvm::Error::success();
}

llvm::Error Reader::findLevels() {
  text = top;
  if (const json::Value *value = top.find("text_config")) {
    text = {value->getAsObject(), "text_config."};
    if (!text.object)
      return wrongValue({value, "text_config"}, "an object");
  }
  Entry ropeEntry = lookUp({&text}, "rope_parameters");
  Entry legacy = lookUp({&text}, "rope_scaling");
  if (ropeEntry && legacy)
    return configError(legacy.key + ": found together with rope_parameters, "
                                    "expected only one of the two");
  if (!ropeEntry)
    ropeEntry = legacy;
  if (ropeEntry) {
    rope = {ropeEntry.value->getAsObject(), ropeEntry.key + "."};
    if (!rope.object)
      return wrongValue(ropeEntry, "an object");
  }
  return llvm::Error::success();
}

llvm::Error Reader::decideKind() {
  auto kind = [](const Entry &entry) -> llvm::Expected<bool> {
    std::optional<llvm::StringRef> name = entry.value->getAsString();
    if (name && (*name == "qwen3_5" || *name == "qwen3_5_text"))
      return false;
    if (name && (*name == "qwen3_5_moe" || *name == "qwen3_5_moe_text"))
      return true;
    return wrongValue(entry, kSupportedTypes);
  };

  Entry outer = lookUp({&top}, "model_type");
  Entry inner = composite() ? lookUp({&text}, "model_type") : Entry();
  if (!outer && !inner)
    return configError("model_type: not found, expected " + kSupportedTypes);
  std::optional<bool> outerMoe;
  if (outer)
    if (llvm::Error error = kind(outer).moveInto(outerMoe))
      return error;
  std::optional<bool> innerMoe;
  if (inner)
    if (llvm::Error error = kind(inner).moveInto(innerMoe))
      return error;
  if (outerMoe && innerMoe && *outerMoe != *innerMoe)
    return configError(llvm::formatv(
        "model_type: found {0} outside and {1} in text_config, expected both "
        "to be dense or both to be MoE",
        found(*outer.value), found(*inner.value)));
  result.config.moe = innerMoe ? *innerMoe : *outerMoe;
  return llvm::Error::success();
}

llvm::Error Reader::readText() {
  ModelConfig &config = result.config;
  if (config.moe) { // The defaults that differ from the dense ones.
    config.hiddenSize = 2048;
    config.numKeyValueHeads = 2;
    config.intermediateSize = 0;
    config.numExperts = 256;
    config.numExpertsPerTok = 8;
    config.moeIntermediateSize = 512;
    config.sharedExpertIntermediateSize = 512;
  }
  struct SizeKey {
    llvm::StringRef key;
    int64_t *field;
  };
  llvm::SmallVector<SizeKey, 20> sizes = {
      {"vocab_size", &config.vocabSize},
      {"hidden_size", &config.hiddenSize},
      {"max_position_embeddings", &config.maxPositionEmbeddings},
      {"num_attention_heads", &config.numAttentionHeads},
      {"num_key_value_heads", &config.numKeyValueHeads},
      {"head_dim", &config.headDim},
      {"linear_conv_kernel_dim", &config.linearConvKernelDim},
      {"linear_key_head_dim", &config.linearKeyHeadDim},
      {"linear_value_head_dim", &config.linearValueHeadDim},
      {"linear_num_key_heads", &config.linearNumKeyHeads},
      {"linear_num_value_heads", &config.linearNumValueHeads},
  };
  if (config.moe) {
    sizes.push_back({"num_experts", &config.numExperts});
    sizes.push_back({"num_experts_per_tok", &config.numExpertsPerTok});
    sizes.push_back({"moe_intermediate_size", &config.moeIntermediateSize});
    sizes.push_back({"shared_expert_intermediate_size",
                     &config.sharedExpertIntermediateSize});
  } else {
    sizes.push_back({"intermediate_size", &config.intermediateSize});
  }
  for (const SizeKey &size : sizes)
    if (llvm::Error error = readTextKey(size.key, *size.field))
      return error;

  if (llvm::Error error =
          readTextKey("initializer_range", config.initializerRange))
    return error;
  if (llvm::Error error = readTextKey("rms_norm_eps", config.rmsNormEps))
    return error;
  if (!config.moe)
    return llvm::Error::success();
  if (llvm::Error error =
          readTextKey("output_router_logits", config.outputRouterLogits))
    return error;
  return readTextKey("router_aux_loss_coef", config.routerAuxLossCoef);
}

llvm::Error Reader::readLayers() {
  int64_t layers = result.config.moe ? 40 : 32;
  if (llvm::Error error = readTextKey("num_hidden_layers", layers))
    return error;
  // A vector of this length is made below, so its limit cannot wait.
  if (layers < 1 || layers > 4096)
    return configError(
        llvm::formatv("{0}num_hidden_layers: found {1}, expected an integer "
                      "from 1 to 4096",
                      text.prefix, layers));

  Entry types = lookUp({&text}, "layer_types");
  if (!types) {
    int64_t interval = 4;
    if (llvm::Error error = readTextKey("full_attention_interval", interval))
      return error;
    if (interval < 1)
      return configError(
          llvm::formatv("{0}full_attention_interval: found {1}, expected an "
                        "integer of at least 1",
                        text.prefix, interval));
    result.config.layerTypes = layerPattern(layers, interval);
    return llvm::Error::success();
  }

  const json::Array *list = types.value->getAsArray();
  if (!list)
    return wrongValue(types, "a list with one entry per layer");
  if (int64_t(list->size()) != layers)
    return configError(llvm::formatv(
        "{0}: found {1} entries, expected num_hidden_layers, which is {2}",
        types.key, list->size(), layers));
  for (const auto &[index, item] : llvm::enumerate(*list)) {
    std::optional<llvm::StringRef> name = item.getAsString();
    if (name && *name == "linear_attention")
      result.config.layerTypes.push_back(LayerType::LinearAttention);
    else if (name && *name == "full_attention")
      result.config.layerTypes.push_back(LayerType::FullAttention);
    else
      return wrongValue({&item, llvm::formatv("{0}[{1}]", types.key, index)},
                        "\"linear_attention\" or \"full_attention\"");
  }
  return llvm::Error::success();
}

llvm::Error Reader::readRope() {
  ModelConfig &config = result.config;
  Entry type = lookUp({&rope}, "rope_type");
  if (!type)
    type = lookUp({&rope}, "type");
  if (type && type.value->getAsString() != llvm::StringRef("default"))
    return wrongValue(type, "\"default\", the only rotary type that is "
                            "implemented (yarn and the others are not)");

  // Both keys may stand beside the rope object or inside it. Either is fine,
  // two different values are not: no reading of such a file is safe.
  auto readBoth = [&](llvm::StringRef key, double &field) -> llvm::Error {
    Entry beside = lookUp({&text}, key), inside = lookUp({&rope}, key);
    if (llvm::Error error = read(inside, field))
      return error;
    double inner = field;
    if (llvm::Error error = read(beside, field))
      return error;
    if (beside && inside && field != inner)
      return configError(llvm::formatv(
          "{0}: found {1}, but {2} is {3}, expected the two to agree",
          beside.key, shortestReal(field), inside.key, shortestReal(inner)));
    return llvm::Error::success();
  };
  if (!lookUp({&text, &rope}, "rope_theta"))
    return configError(text.prefix +
                       "rope_parameters.rope_theta: not found, expected the "
                       "base of the rotary frequencies (published models have "
                       "10000000); it has no default");
  if (llvm::Error error = readBoth("rope_theta", config.ropeTheta))
    return error;
  if (llvm::Error error =
          readBoth("partial_rotary_factor", config.partialRotaryFactor))
    return error;

  bool interleaved = true;
  Entry layout = lookUp({&text, &rope}, "mrope_interleaved");
  if (llvm::Error error = read(layout, interleaved))
    return error;
  if (!interleaved)
    return wrongValue(layout, "true, the only layout of this family");

  Entry section = lookUp({&text, &rope}, "mrope_section");
  if (!section)
    return llvm::Error::success();
  const json::Array *counts = section.value->getAsArray();
  if (!counts || counts->size() != 3)
    return wrongValue(section, "a list of three integers");
  for (const auto &[index, item] : llvm::enumerate(*counts))
    if (llvm::Error error =
            read({&item, llvm::formatv("{0}[{1}]", section.key, index)},
                 config.mropeSection[index]))
      return error;
  return llvm::Error::success();
}

llvm::Expected<FileType> Reader::fileType(const Entry &entry) {
  llvm::StringRef name = entry.value->getAsString().value_or("");
  name.consume_front("torch.");
  if (name == "bfloat16")
    return FileType::BFloat16;
  if (name == "float32")
    return FileType::Float32;
  if (name == "float16") { // bf16 has fewer bits of mantissa: widen instead.
    result.warnings.push_back(
        entry.key + ": float16 is not written; a checkpoint without an "
                    "original to follow is written as float32");
    return FileType::Float32;
  }
  return wrongValue(entry, "\"bfloat16\", \"float32\" or \"float16\"");
}

/// The fields that a composite file may carry at both levels.
llvm::Error Reader::readSharedKeys() {
  ModelConfig &config = result.config;
  Entry tied = lookUp({&text, &top}, "tie_word_embeddings");
  if (llvm::Error error = read(tied, config.tieWordEmbeddings))
    return error;
  Entry copy = composite() ? lookUp({&top}, "tie_word_embeddings") : Entry();
  bool outer = config.tieWordEmbeddings;
  if (llvm::Error error = read(copy, outer))
    return error;
  if (outer != config.tieWordEmbeddings)
    result.warnings.push_back(llvm::formatv(
        "tie_word_embeddings: found {0} at the top level, overruled by {1} in "
        "text_config",
        outer, config.tieWordEmbeddings));

  Entry dtype;
  for (const Level *level : {&text, &top})
    for (llvm::StringRef key : {"dtype", "torch_dtype"})
      if (!dtype)
        dtype = lookUp({level}, key);
  if (dtype)
    return fileType(dtype).moveInto(config.dtype);
  return llvm::Error::success();
}

llvm::Error Reader::readTokenIds() {
  ModelConfig &config = result.config;
  auto readId = [&](llvm::StringRef key,
                    std::optional<int64_t> &field) -> llvm::Error {
    Entry entry = lookUp({&text}, key);
    if (!entry)
      return llvm::Error::success();
    int64_t id = 0;
    if (llvm::Error error = read(entry, id))
      return error;
    field = id;
    return llvm::Error::success();
  };
  if (llvm::Error error = readId("pad_token_id", config.padTokenId))
    return error;
  if (config.padTokenId)
    result.warnings.push_back(llvm::formatv(
        "{0}pad_token_id: found {1}; its embedding row is trained like any "
        "other, transformers would keep it out of the lookup's gradient",
        text.prefix, *config.padTokenId));
  if (llvm::Error error = readId("bos_token_id", config.bosTokenId))
    return error;

  Entry eos = lookUp({&text}, "eos_token_id");
  if (!eos)
    return llvm::Error::success();
  const json::Array *list = eos.value->getAsArray();
  if (!list) {
    std::optional<int64_t> id = eos.value->getAsInteger();
    if (!id)
      return wrongValue(eos, "an integer or a list of integers");
    config.eosTokenIds = {*id};
    return llvm::Error::success();
  }
  for (const json::Value &item : *list) {
    std::optional<int64_t> id = item.getAsInteger();
    if (!id)
      return wrongValue(eos, "an integer or a list of integers");
    config.eosTokenIds.push_back(*id);
  }
  return llvm::Error::success();
}

/// Values that ask for another model than the one implemented here.
llvm::Error Reader::refuseVariants() {
  Entry act = lookUp({&text}, "hidden_act");
  if (act && act.value->getAsString() != llvm::StringRef("silu"))
    return wrongValue(act, "\"silu\", the activation of this family");

  Entry gate = lookUp({&text}, "attn_output_gate");
  bool gated = true;
  if (llvm::Error error = read(gate, gated))
    return error;
  if (!gated)
    return wrongValue(gate, "true: attention of this family is always gated");

  Entry kind = lookUp({&text}, "output_gate_type");
  if (kind && kind.value->getAsString() != llvm::StringRef("swish") &&
      kind.value->getAsString() != llvm::StringRef("silu"))
    return wrongValue(kind, "\"swish\" or \"silu\", the gate of the "
                            "GatedDeltaNet norm");

  Entry bias = lookUp({&text}, "attention_bias");
  bool biased = false;
  if (llvm::Error error = read(bias, biased))
    return error;
  if (biased)
    return wrongValue(bias,
                      "false: biases of q, k, v and o are not implemented");

  Entry dropout = lookUp({&text}, "attention_dropout");
  double rate = 0;
  if (llvm::Error error = read(dropout, rate))
    return error;
  if (rate != 0)
    return wrongValue(dropout, "0: dropout is not implemented");

  Entry quantized = lookUp({&text, &top}, "quantization_config");
  if (quantized)
    return wrongValue(quantized, "none: train from the bf16 release, quantized "
                                 "weights are not a training format");
  return llvm::Error::success();
}

void Reader::warnUnknown(const Level &level,
                         llvm::ArrayRef<llvm::StringRef> known, bool isTop) {
  std::vector<std::string> unknown;
  for (const auto &[key, value] : *level.object) {
    llvm::StringRef name = key;
    if (llvm::is_contained(known, name) ||
        (isTop && llvm::is_contained(kInertKeys, name)))
      continue;
    unknown.push_back(name.str());
  }
  llvm::sort(unknown); // The object is a hash map.
  for (const std::string &name : unknown) {
    std::string warning =
        level.prefix + name + ": not a key of this model, ignored";
    llvm::StringRef near = nearestName(name, known);
    if (!near.empty() && !level.find(near))
      warning += "; did you mean " + near.str() + "?";
    result.warnings.push_back(std::move(warning));
  }
}

void Reader::warnAll() {
  std::vector<llvm::StringRef> known(std::begin(kTextKeys),
                                     std::end(kTextKeys));
  if (result.config.moe)
    llvm::append_range(known, kMoeKeys);
  else
    llvm::append_range(known, kDenseKeys);
  if (composite()) {
    // Only these are read at the top level of a composite file.
    constexpr llvm::StringRef topKeys[] = {
        "bos_token_id", "dtype",
        "eos_token_id", "model_type",
        "pad_token_id", "quantization_config",
        "torch_dtype",  "tie_word_embeddings",
    };
    warnUnknown(top, topKeys, /*isTop=*/true);
  }
  warnUnknown(text, known, /*isTop=*/true);
  if (rope.object)
    warnUnknown(rope, kRopeKeys, /*isTop=*/false);

  Entry mlpOnly = lookUp({&text}, "mlp_only_layers");
  if (mlpOnly &&
      (!mlpOnly.value->getAsArray() || !mlpOnly.value->getAsArray()->empty()))
    result.warnings.push_back(mlpOnly.key + ": found " + found(*mlpOnly.value) +
                              ", ignored: every layer of this family has the "
                              "same kind of feed-forward block");
}

llvm::Expected<ParsedConfig> Reader::run() {
  if (llvm::Error error = findLevels())
    return error;
  if (llvm::Error error = decideKind())
    return error;
  if (llvm::Error error = refuseVariants())
    return error;
  if (llvm::Error error = readText())
    return error;
  if (llvm::Error error = readLayers())
    return error;
  if (llvm::Error error = readRope())
    return error;
  if (llvm::Error error = readSharedKeys())
    return error;
  if (llvm::Error error = readTokenIds())
    return error;
  if (llvm::Error error = checkConfig(result.config))
    return error;
  warnAll();
  return std::move(result);
}

/// Whether brackets nest deeper than `limit` outside of strings. LLVM's parser
/// recurses without a limit of its own, so a hostile file could end the stack.
bool nestsDeeper(llvm::StringRef text, int limit) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit)
        return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

} // namespace

llvm::Expected<ParsedConfig> parseConfigJson(llvm::StringRef text) {
  constexpr int kMaxDepth = 64;
  if (nestsDeeper(text, kMaxDepth))
    return configError(llvm::formatv(
        "brackets nest deeper than {0}, which no config.json does", kMaxDepth));
  llvm::Expected<json::Value> root = json::parse(text);
  if (!root)
    return configError("not valid JSON: " + llvm::toString(root.takeError()));
  const json::Object *object = root->getAsObject();
  if (!object)
    return configError("found " + found(*root) +
                       ", expected a JSON object at the top of the file");
  return Reader(*object).run();
}

std::string toConfigJson(const ModelConfig &config) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  json::OStream out(stream, /*IndentSize=*/2);
  auto real = [&](llvm::StringRef key, double value) {
    std::string digits = shortestReal(value);
    if (llvm::all_of(digits, llvm::isDigit)) // Python's classes want a float.
      digits += ".0";
    out.attributeBegin(key);
    out.rawValue(digits);
    out.attributeEnd();
  };
  auto id = [&](llvm::StringRef key, std::optional<int64_t> value) {
    out.attribute(key, value ? json::Value(*value) : json::Value(nullptr));
  };

  out.objectBegin(); // Keys in alphabetical order, as transformers sorts them.
  out.attributeArray("architectures", [&] {
    out.value(config.moe ? "Qwen3_5MoeForCausalLM" : "Qwen3_5ForCausalLM");
  });
  out.attribute("attention_bias", false);
  real("attention_dropout", 0);
  id("bos_token_id", config.bosTokenId);
  out.attribute("dtype",
                config.dtype == FileType::Float32 ? "float32" : "bfloat16");
  if (config.eosTokenIds.size() > 1)
    out.attributeArray("eos_token_id", [&] {
      for (int64_t token : config.eosTokenIds)
        out.value(token);
    });
  else if (config.eosTokenIds.size() == 1)
    out.attribute("eos_token_id", config.eosTokenIds.front());
  else
    out.attribute("eos_token_id", nullptr);
  out.attribute("head_dim", config.headDim);
  out.attribute("hidden_act", "silu");
  out.attribute("hidden_size", config.hiddenSize);
  real("initializer_range", config.initializerRange);
  if (!config.moe)
    out.attribute("intermediate_size", config.intermediateSize);
  out.attributeArray("layer_types", [&] {
    for (LayerType type : config.layerTypes)
      out.value(layerTypeName(type));
  });
  out.attribute("linear_conv_kernel_dim", config.linearConvKernelDim);
  out.attribute("linear_key_head_dim", config.linearKeyHeadDim);
  out.attribute("linear_num_key_heads", config.linearNumKeyHeads);
  out.attribute("linear_num_value_heads", config.linearNumValueHeads);
  out.attribute("linear_value_head_dim", config.linearValueHeadDim);
  out.attribute("max_position_embeddings", config.maxPositionEmbeddings);
  out.attribute("model_type", config.moe ? "qwen3_5_moe_text" : "qwen3_5_text");
  if (config.moe)
    out.attribute("moe_intermediate_size", config.moeIntermediateSize);
  out.attribute("num_attention_heads", config.numAttentionHeads);
  if (config.moe) {
    out.attribute("num_experts", config.numExperts);
    out.attribute("num_experts_per_tok", config.numExpertsPerTok);
  }
  out.attribute("num_hidden_layers", config.numLayers());
  out.attribute("num_key_value_heads", config.numKeyValueHeads);
  if (config.moe)
    out.attribute("output_router_logits", config.outputRouterLogits);
  id("pad_token_id", config.padTokenId);
  real("rms_norm_eps", config.rmsNormEps);
  out.attributeObject("rope_parameters", [&] {
    out.attribute("mrope_interleaved", true);
    out.attributeArray("mrope_section", [&] {
      for (int64_t count : config.mropeSection)
        out.value(count);
    });
    real("partial_rotary_factor", config.partialRotaryFactor);
    real("rope_theta", config.ropeTheta);
    out.attribute("rope_type", "default");
  });
  if (config.moe) {
    real("router_aux_loss_coef", config.routerAuxLossCoef);
    out.attribute("shared_expert_intermediate_size",
                  config.sharedExpertIntermediateSize);
  }
  out.attribute("tie_word_embeddings", config.tieWordEmbeddings);
  out.attribute("use_cache", true);
  out.attribute("vocab_size", config.vocabSize);
  out.objectEnd();
  stream << '\n';
  return text;
}

} // namespace qwen35
