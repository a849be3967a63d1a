#include "test/unit/ranks/RankCases.h"

#include "runtime/bundle/ranks.h"

#include <gtest/gtest.h>

namespace qwen35::test {
namespace {

const char *kFour[] = {
    // Joined outside, cut inside.
    R"(%0 = qdist.all_gather %w over ["tp"] <{dim = 0}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
       %1 = qdist.reduce_scatter %0 over ["tp"] <{dim = 1}> : (tensor<8x8xf32>) -> tensor<8x4xf32>
       %2 = qwen35.reshape %1 : tensor<8x4xf32> to tensor<4x8xf32>
       %y = qwen35.scale %2 <{factor = 2.0}> : tensor<4x8xf32>)",
    // Joined inside, cut outside.
    R"(%0 = qdist.all_gather %w over ["dps"] <{dim = 1}> : (tensor<4x8xf32>) -> tensor<4x16xf32>
       %1 = qdist.reduce_scatter %0 over ["dps", "tp"] <{dim = 0}> : (tensor<4x16xf32>) -> tensor<1x16xf32>
       %2 = qdist.all_gather %1 over ["tp"] <{dim = 0}> : (tensor<1x16xf32>) -> tensor<2x16xf32>
       %3 = qwen35.reshape %2 : tensor<2x16xf32> to tensor<4x8xf32>
       %y = qwen35.scale %3 <{factor = 2.0}> : tensor<4x8xf32>)",
    R"(%0 = qdist.all_to_all %w over ["dps", "tp"] <{split_dim = 1, concat_dim = 0}> : (tensor<4x8xf32>) -> tensor<16x2xf32>
       %1 = qdist.all_to_all %0 over ["tp"] <{split_dim = 0, concat_dim = 1}> : (tensor<16x2xf32>) -> tensor<8x4xf32>
       %2 = qwen35.reshape %1 : tensor<8x4xf32> to tensor<4x8xf32>
       %y = qwen35.scale %2 <{factor = 2.0}> : tensor<4x8xf32>)",
    R"(%0 = qdist.shift %w over ["dps"] <{offset = 1}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
       %1 = qdist.shift %w over ["dps", "tp"] <{offset = -2}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
       %y = qwen35.add %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>)",
    R"(%0 = qdist.all_gather %w over ["tp"] <{dim = 1}> : (tensor<4x8xf32>) -> tensor<4x16xf32>
       %1 = qdist.all_slice %0 over ["dps"] <{dim = 1}> : (tensor<4x16xf32>) -> tensor<4x8xf32>
       %2 = qdist.all_slice %0 over ["dps"] <{dim = 0}> : (tensor<4x16xf32>) -> tensor<2x16xf32>
       %3 = qwen35.reshape %2 : tensor<2x16xf32> to tensor<4x8xf32>
       %y = qwen35.add %1, %3 : tensor<4x8xf32>, tensor<4x8xf32>)",
    // Several parts, one of them of another type, and a narrow wire.
    R"(%0 = qwen35.scale %w <{factor = 0.5}> : tensor<4x8xf32>
       %1 = qwen35.slice %w <{axis = 1, start = 4, size = 4}> : tensor<4x8xf32>
       %2:3 = qdist.all_reduce %0, %ids_f, %1 over ["dps", "tp"] <{wire = #qdist.wire<type = bf16, acc = f32>}>
           : (tensor<4x8xf32>, tensor<f32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<f32>, tensor<4x4xf32>)
       %3 = qwen35.concat %2#2, %2#2 <{axis = 1}> : tensor<4x4xf32>, tensor<4x4xf32>
       %4 = qwen35.mul_scalar %3, %2#1 : tensor<4x8xf32>, tensor<f32>
       %y = qwen35.add %2#0, %4 : tensor<4x8xf32>, tensor<4x8xf32>)",
    // The gradient sum, reduced where it is.
    R"(%0 = qwen35.add %g, %w : tensor<4x8xf32>, tensor<4x8xf32>
       %y = qdist.all_reduce %0 over ["dps"] : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
    R"(%0 = qwen35.scale %w <{factor = -1.5}> : tensor<4x8xf32>
       %y = qdist.all_reduce %0 over ["dps", "tp"] <{kind = "max"}> : (tensor<4x8xf32>) -> tensor<4x8xf32>)",
    // Ids, and rows of the rank's own part of a table.
    R"(%0 = qdist.all_gather %ids over ["dps"] <{dim = 0}> : (tensor<4xi32>) -> tensor<8xi32>
       %1 = qdist.all_slice %0 over ["dps"] <{dim = 0}> : (tensor<8xi32>) -> tensor<4xi32>
       %2 = qdist.local_ids %1 over ["tp"] <{size = 4}> : tensor<4xi32>
       %y = qwen35.embed %2, %w : tensor<4xi32>, tensor<4x8xf32>)",
};

/// What exchanges over one rank become is nothing, so a world of one needs them
/// put back: at the end of programs, from weights to gradients, or in place.
void addExchangesOfOne(bundle::Bundle &message) {
  message.mutable_header()->add_features("ranks");
  bundle::Mesh &mesh = *message.mutable_mesh();
  for (auto set :
       {&bundle::Mesh::set_pp, &bundle::Mesh::set_dpr, &bundle::Mesh::set_dps,
        &bundle::Mesh::set_cp, &bundle::Mesh::set_tp, &bundle::Mesh::set_ep})
    (mesh.*set)(1);
  bundle::Communicator &group = *message.add_communicators();
  group.add_groups()->add_ranks(0);
  auto bufferOf = [&](const std::string &name) {
    for (int i = 0; i < message.buffers_size(); ++i)
      if (message.buffers(i).name() == name)
        return static_cast<uint32_t>(i);
    return ~0u;
  };
  uint64_t sequence = 0;
  for (bundle::Program &program : *message.mutable_programs()) {
    if (program.name() != "accumulate" && program.name() != "finish")
      continue;
    int i = 0;
    for (auto [kind, reduction] :
         {std::pair(bundle::Collective::ALL_REDUCE, bundle::Collective::SUM),
          std::pair(bundle::Collective::ALL_REDUCE, bundle::Collective::MAX),
          std::pair(bundle::Collective::ALL_GATHER, bundle::Collective::SUM),
          std::pair(bundle::Collective::REDUCE_SCATTER,
                    bundle::Collective::SUM),
          std::pair(bundle::Collective::ALL_TO_ALL, bundle::Collective::SUM)}) {
      bundle::Collective &one = *program.add_entries()->mutable_collective();
      bool inPlace = kind == bundle::Collective::ALL_REDUCE;
      std::string name = "p" + std::to_string(i++);
      one.set_kind(kind);
      one.set_reduction(reduction);
      one.set_dtype(bundle::F32);
      one.set_sequence(sequence++);
      one.set_tag("exchange " + name);
      bundle::Collective::Part &part = *one.add_parts();
      part.set_count(32);
      part.set_send_outer(1);
      part.set_receive_outer(1);
      for (bundle::Arg *arg : {part.mutable_send(), part.mutable_receive()}) {
        bool from = arg == &part.send() && !inPlace;
        arg->set_buffer(bufferOf((from ? "weight:" : "grad:") + name));
        arg->set_bytes(128);
        arg->set_write(arg == &part.receive());
      }
    }
  }
}

std::string replaced(std::string text, const std::string &from,
                     const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

} // namespace

RankCases RankCases::ofFour() {
  return {"dps = 2, tp = 2", {std::begin(kFour), std::end(kFour)}};
}

RankCases RankCases::ofOne() {
  std::string body = "%y = qwen35.scale %w <{factor = 2.0}> : tensor<4x8xf32>";
  return {"dps = 1", std::vector<std::string>(5, body)};
}

void RankCases::withoutWire() {
  for (std::string &body : bodies)
    body =
        replaced(body, " <{wire = #qdist.wire<type = bf16, acc = f32>}>", "");
}

std::string RankCases::moduleText() const {
  std::string weights, states, grads, types, results, body;
  for (size_t i = 0; i < bodies.size(); ++i) {
    std::string n = std::to_string(i), name = ", qwen35.name = \"p" + n + "\"";
    auto argument = [&](const std::string &value, const std::string &role,
                        const std::string &more = "") {
      return "%" + value + n + ": tensor<4x8xf32> {qwen35.role = \"" + role +
             "\"" + name + more + "}, ";
    };
    weights += argument("w", "weight",
                        ", qwen35.decay = false, qwen35.init = \"ones\", "
                        "qwen35.file_dtype = \"f32\", "
                        "qdist.sharding = #qdist.sharding<[{dps}, {tp}]>");
    states += argument("m", "m") + argument("v", "v");
    grads += argument("g", "grad");
    types += (i ? ", " : "") + std::string("tensor<4x8xf32>");
    results += (i ? ", " : "") + std::string("%y") + n;
    std::string text = bodies[i];
    for (const char *value : {"%w", "%g", "%y", "%0", "%1", "%2", "%3", "%4"})
      text = replaced(text, value, "%_" + n + (value + 1));
    text = replaced(text, "%_" + n + "ords", "%words");
    for (const char *value : {"w", "g", "y"})
      text = replaced(text, "%_" + n + value, std::string("%") + value + n);
    body += text + "\n";
  }
  size_t count = bodies.size();
  std::string aliases;
  for (size_t i = 0; i < count; ++i)
    aliases += (i ? ", " : "") +
               std::string("tensor<4x8xf32> {qwen35.alias = ") +
               std::to_string(count + i) + "}";
  std::string words = std::to_string(kWords);
  std::string inputs =
      "%ids: tensor<4xi32> {qwen35.role = \"input\", qwen35.name = \"ids\", "
      "qdist.sharding = #qdist.sharding<[{dps}]>}, "
      "%labels: tensor<4xi32> {qwen35.role = \"input\", "
      "qwen35.name = \"labels\"}, "
      "%seq: tensor<" +
      words +
      "xi32> {qwen35.role = \"input\", "
      "qwen35.name = \"seq\"}, "
      "%ids_f: tensor<f32> {qwen35.role = \"scalar\", "
      "qwen35.name = \"inv_count\"}";
  std::string scalars;
  for (const char *name : {"lr", "bias_correction1", "bias_correction2"})
    scalars += std::string(", %") + name +
               ": tensor<f32> {qwen35.role = \"scalar\", qwen35.name = \"" +
               name + "\"}";
  return "module attributes {qdist.mesh = #qdist.mesh<" + mesh +
         ">} {\n"
         "func.func @accumulate(" +
         weights + grads + inputs + ") -> (" + aliases + ") {\n" + body +
         "return " + results + " : " + types +
         "\n}\n"
         "func.func @finish(" +
         weights + states + grads +
         "%loss: tensor<f32> {qwen35.role = \"sum\", qwen35.name = "
         "\"loss\"}, " +
         inputs + scalars +
         ") -> (tensor<f32> {qwen35.alias = " + std::to_string(4 * count) +
         "}, tensor<f32> {qwen35.name = \"grad_norm\"}, tensor<f32> "
         "{qwen35.name = \"commit\"}) {\n"
         "%l = qwen35.add %loss, %lr : tensor<f32>, tensor<f32>\n"
         "%n = qwen35.scale %lr <{factor = 2.0}> : tensor<f32>\n"
         "%c = qwen35.scale %lr <{factor = 3.0}> : tensor<f32>\n"
         "%r = qdist.all_reduce %n over [\"dps\"] : (tensor<f32>) -> "
         "tensor<f32>\n"
         "return %l, %r, %c : tensor<f32>, tensor<f32>, tensor<f32>\n}\n}\n";
}

std::string
RankCases::compile(RankBundle &compiler,
                   const std::function<void(bundle::Bundle &)> &change) const {
  return compiler.compile(compiler.parse(moduleText()), kTokens, kMaxDocs,
                          [&](bundle::Bundle &message) {
                            absl::StatusOr<Mesh> mesh = meshOf(message);
                            ASSERT_TRUE(mesh.ok()) << mesh.status();
                            message.mutable_model()->set_parameters(
                                static_cast<int64_t>(bodies.size()) * 32 *
                                mesh->ranks());
                            if (mesh->ranks() == 1)
                              addExchangesOfOne(message);
                            if (change)
                              change(message);
                          });
}

} // namespace qwen35::test
