// Writes the bundles that qwen35_gpu_ranks runs, each for the CPU and for a
// GPU:
//
//   qwen35_rank_bundles FOLDER [TARGET]

#include "test/unit/ranks/RankCases.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

using namespace qwen35::test;

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: qwen35_rank_bundles FOLDER [TARGET]\n");
    return 2;
  }
  RankBundle compiler;
  for (const char *name : {"four", "one"})
    for (std::string target : {"cpu", argc == 3 ? argv[2] : "sm_90a"}) {
      bool four = name[0] == 'f';
      RankCases cases = four ? RankCases::ofFour() : RankCases::ofOne();
      compiler.target = target;
      std::string bytes = cases.compile(compiler);
      std::string path = std::string(argv[1]) + "/ranks-" + name +
                         (target == "cpu" ? "-cpu.q35" : "-gpu.q35");
      std::ofstream out(path, std::ios::binary);
      out << bytes;
      out.close();
      if (bytes.empty() || !out) {
        std::fprintf(stderr, "qwen35_rank_bundles: cannot make %s\n",
                     path.c_str());
        return 1;
      }
    }
  return 0;
}
