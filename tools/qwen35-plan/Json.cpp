#include "tools/qwen35-plan/Json.h"

#include "llvm/Support/JSON.h"

namespace qwen35::plan {

static void writeMesh(llvm::json::OStream &json, const MeshShape &shape,
                      int64_t zero) {
  json.attributeObject("mesh", [&] {
    json.attribute("pp", shape.pp);
    json.attribute("dpr", shape.dpr);
    json.attribute("dps", shape.dps);
    json.attribute("cp", shape.cp);
    json.attribute("tp", shape.tp);
    json.attribute("ep", shape.ep);
  });
  json.attribute("zero", zero);
}

static void writeClasses(llvm::json::OStream &json, const char *name,
                         const std::vector<ClassTime> &classes) {
  json.attributeArray(name, [&] {
    for (const ClassTime &c : classes)
      json.object([&] {
        json.attribute("name", c.name);
        json.attribute("count", c.count);
        json.attribute("seconds", c.seconds);
        json.attribute("flops", c.flops);
        json.attribute("bytes", c.bytes);
        json.attribute("exposed_seconds", c.exposed);
      });
  });
}

void writeJson(const PlannedMesh *mesh, const Ranking *ranking,
               const Simulation *simulation, const std::string &model,
               const Hardware &hardware, llvm::raw_ostream &out) {
  llvm::json::OStream json(out, 2);
  json.object([&] {
    json.attribute("model", model);
    json.attribute("hardware", hardware.name);
    if (ranking)
      json.attributeObject("ranking", [&] {
        json.attribute("rows", ranking->rows);
        json.attribute("legal", ranking->legal);
        json.attribute("too_large", ranking->tooLarge);
        json.attribute("seconds", ranking->seconds);
        json.attributeArray("meshes", [&] {
          for (const RankedMesh &m : ranking->meshes)
            json.object([&] {
              writeMesh(json, m.shape, m.zero);
              json.attribute("remat", m.remat);
              json.attribute("memory_bytes", m.bytes);
              json.attribute("step_seconds", m.seconds);
              json.attribute("exposed_seconds", m.exposed);
              json.attribute("fits", m.fits);
              json.attribute("limit", m.limit);
            });
        });
      });
    if (mesh)
      json.attributeObject("plan", [&] {
        writeMesh(json, mesh->step.mesh, mesh->step.zero);
        json.attribute("rows", mesh->rows);
        json.attribute("row_tokens", mesh->step.rowTokens);
        json.attribute("microbatches", mesh->microbatches);
        json.attribute("fits", mesh->fits);
        json.attribute("step_seconds", mesh->timeline.seconds);
        json.attribute("one_stream_seconds", mesh->oneStream.seconds);
        json.attribute("compute_seconds", mesh->timeline.compute);
        json.attribute("communication_seconds", mesh->timeline.communication);
        json.attribute("exposed_seconds", mesh->timeline.exposed);
        json.attribute("tokens_per_second", mesh->tokensPerSecond);
        json.attribute("mfu", mesh->mfu);
        json.attributeObject("memory_bytes", [&] {
          for (const auto &[what, bytes] : mesh->step.memory)
            json.attribute(what, bytes);
          json.attribute("total", mesh->step.totalBytes);
        });
        writeClasses(json, "kernels", mesh->timeline.kernels);
        writeClasses(json, "collectives", mesh->timeline.collectives);
      });
    if (simulation)
      json.attributeObject("simulation", [&] {
        json.attribute("step_seconds", simulation->seconds);
        json.attribute("collectives", simulation->events);
        json.attributeArray("waited_seconds", [&] {
          for (double seconds : simulation->waited)
            json.value(seconds);
        });
      });
  });
  out << "\n";
}

} // namespace qwen35::plan
