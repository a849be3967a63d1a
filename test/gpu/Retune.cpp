// Puts the algorithms of a tuning table into a bundle that is compiled already:
//
//   qwen35_gpu_retune BUNDLE TABLE OUT
//
// qwen35c does so with the table of the repo; a GPU machine has no compiler, and
// gpu-check --tune measures what a table is worth there.

#include "codegen/bundle/bundle_writer.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/schema/gemm_table.h"

#include <cstdio>
#include <fstream>
#include <iterator>

using namespace qwen35;

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: qwen35_gpu_retune BUNDLE TABLE OUT\n");
    return 2;
  }
  auto fail = [](const std::string &why) {
    std::fprintf(stderr, "qwen35_gpu_retune: error: %s\n", why.c_str());
    return 1;
  };
  auto file = BundleFile::open(argv[1]);
  if (!file.ok())
    return fail(std::string(file.status().message()));
  std::ifstream in(argv[2]);
  if (!in)
    return fail(std::string(argv[2]) + " cannot be read");
  GemmTable table;
  std::string wrong = table.parse(
      {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
  if (!wrong.empty())
    return fail(std::string(argv[2]) + ": " + wrong);

  bundle::Bundle message = (*file)->message();
  int products = 0, tuned = 0;
  auto apply = [&](const bundle::Target &target, auto *kernels) {
    for (bundle::Kernel &kernel : *kernels)
      if (kernel.has_gemm()) {
        ++products;
        tuned += table.apply(target.arch(), *kernel.mutable_gemm());
      }
  };
  apply((*file)->target(0), message.mutable_kernels());
  for (auto &alternative : *message.mutable_alternatives())
    apply(alternative.target(), alternative.mutable_kernels());
  std::vector<NamedBlob> blobs;
  for (int i = 0; i < message.blobs_size(); ++i)
    blobs.push_back({message.blobs(i).name(),
                     (*file)->blob(static_cast<uint32_t>(i))});
  message.clear_blobs();
  absl::Status written = writeBundle(argv[3], std::move(message), blobs);
  if (!written.ok())
    return fail(std::string(written.message()));
  std::printf("%d of %d products have an algorithm of the table\n", tuned,
              products);
  return 0;
}
