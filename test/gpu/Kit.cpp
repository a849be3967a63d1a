#include "test/gpu/Kit.h"

#include <cstring>
#include <functional>
#include <iostream>
#include <set>

namespace qwen35::test {
namespace {

std::string &rootFolder() {
  static std::string folder;
  return folder;
}

std::vector<const KitBundle *> &registry() {
  static std::vector<const KitBundle *> bundles;
  return bundles;
}

constexpr const char *kTools[] = {"qwen35-run", "qwen35-verify", "qwen35-data"};
constexpr const char *kGolden[] = {"dense", "dense_tied", "moe", "real_heads"};

/// `only`: of the bundles, those whose file names have it.
int prepare(const std::string &target, const std::string &only) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const char *part : {"bin", "bundles", "golden"})
    fs::create_directories(kit::root() + "/" + part, error);
  for (const char *name : kTools) {
    fs::copy_file(tool(name), kit::tool(name),
                  fs::copy_options::overwrite_existing, error);
    if (error)
      break;
    (void)run("strip " + kit::tool(name));
  }
  for (const char *model : kGolden)
    if (!error)
      fs::copy(std::string(QWEN35_SOURCE_DIR) + "/test/golden/" + model,
               kit::golden(model),
               fs::copy_options::update_existing | fs::copy_options::recursive,
               error);
  if (error) {
    std::cerr << "cannot fill " << kit::root() << ": " << error.message()
              << "\n";
    return 1;
  }
  writeFile(kit::root() + "/target", target);
  int failed = 0;
  std::set<std::string> made;
  for (const KitBundle *bundle : registry()) {
    if (!made.insert(bundle->path()).second ||
        bundle->path().find(only) == std::string::npos)
      continue; // of another test
    std::string arguments = bundle->arguments;
    if (arguments.find("--target") == std::string::npos)
      arguments += " --target TARGET";
    for (size_t at; (at = arguments.find("TARGET")) != std::string::npos;)
      arguments.replace(at, std::strlen("TARGET"), target);
    std::string model = bundle->model;
    std::string config =
        std::string(QWEN35_SOURCE_DIR) + "/test/gpu/models/" + model + ".json";
    if (fs::exists(kit::golden(model)))
      model = kit::golden(model);
    else if (fs::exists(config))
      model = config;
    CommandResult compiled = run(tool("qwen35c") + " " + model + " " +
                                 arguments + " -q -o " + bundle->path());
    std::cout << (compiled.ok() ? "ok      " : "FAILED  ") << bundle->model
              << " " << arguments << "\n"
              << compiled.output << std::flush;
    failed += !compiled.ok();
  }
  return failed != 0;
}

} // namespace

KitBundle::KitBundle(std::string model, std::string arguments)
    : model(std::move(model)), arguments(std::move(arguments)) {
  registry().push_back(this);
}

std::string KitBundle::path() const {
  // Told apart by what they are compiled from; the name is for people.
  std::string name = model + "-" + arguments;
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.')
      c = '_';
  return kit::root() + "/bundles/" + name + ".q35";
}

const std::vector<const KitBundle *> &KitBundle::all() { return registry(); }

namespace kit {

std::string root() { return rootFolder(); }
std::string tool(const std::string &name) { return root() + "/bin/" + name; }
std::string golden(const std::string &model) {
  return root() + "/golden/" + model;
}
bool emulated() { return readFile(root() + "/target") == "emulated"; }

} // namespace kit
} // namespace qwen35::test

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string target = "sm_90a", only;
  bool prepares = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string flag = argv[i];
    if (flag == "--target")
      target = argv[i + 1];
    else if (flag == "--only")
      only = argv[i + 1];
    else if (flag == "--kit" || flag == "--prepare") {
      qwen35::test::rootFolder() =
          std::filesystem::absolute(argv[i + 1]).string();
      prepares |= flag == "--prepare";
    }
  }
  if (qwen35::test::kit::root().empty()) {
    std::cerr << "usage: qwen35_gpu_test --prepare KIT [--target sm_90a] "
                 "[--only TEXT] | --kit KIT [GoogleTest flags]\n";
    return 2;
  }
  return prepares ? qwen35::test::prepare(target, only) : RUN_ALL_TESTS();
}
