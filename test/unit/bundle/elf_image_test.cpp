#include "runtime/bundle/elf_image.h"

#include "test/unit/bundle/tiny_bundle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace qwen35 {
namespace {

const std::vector<std::string> kSymbols = {"tiny_forward", "tiny_update"};

std::string verdict(const std::vector<uint8_t> &image,
                    const std::vector<std::string> &symbols = kSymbols) {
  return std::string(checkElfImage(image, symbols).message());
}

TEST(ElfImageTest, AcceptsWhatLinkersMake) {
  EXPECT_EQ(verdict(tinyKernels()), "");
  EXPECT_EQ(verdict(tinyKernels("tiny_gnu_hash.so")), "");
}

TEST(ElfImageTest, RefusesWhatKernelsDoNotNeed) {
  EXPECT_EQ(verdict(tinyKernels("tiny_import.so")),
            "the kernels' ELF image imports 'puts', but kernels may import "
            "only memcpy, memmove and memset");
  EXPECT_EQ(verdict(tinyKernels("tiny_needed.so")),
            "the kernels' ELF image needs another library, but kernels import "
            "nothing");
  EXPECT_EQ(verdict(tinyKernels("tiny_execstack.so")),
            "the kernels' ELF image asks for an executable stack");
  EXPECT_NE(verdict(tinyKernels("tiny_thread_local.so"))
                .find("has a segment of type 7 (thread-local data)"),
            std::string::npos);
  EXPECT_NE(verdict(tinyKernels("tiny_constructor.so"))
                .find("(code run at load), which kernels do not need"),
            std::string::npos);
  EXPECT_NE(verdict(tinyKernels("tiny_ifunc.so")), "");
  EXPECT_EQ(verdict(tinyKernels("tiny_program")),
            "the kernels' ELF image is of type 2, expected a shared object "
            "(3)");
}

TEST(ElfImageTest, WantsEveryKernelDefined) {
  EXPECT_EQ(verdict(tinyKernels(), {"tiny_backward"}),
            "the kernels' ELF image does not define the kernel "
            "'tiny_backward'");
}

TEST(ElfImageTest, RefusesOtherFiles) {
  EXPECT_EQ(verdict({}), "the kernels' ELF image of 0 bytes is not an ELF "
                         "file");
  EXPECT_EQ(verdict(std::vector<uint8_t>(4096, 'x')),
            "the kernels' ELF image of 4096 bytes is not an ELF file");
  std::vector<uint8_t> arm = tinyKernels();
  arm[offsetof(Elf64_Ehdr, e_machine)] = EM_AARCH64;
  EXPECT_EQ(verdict(arm), "the kernels' ELF image is for machine 183, class 2, "
                          "expected x86-64 (62), class 2");
  std::vector<uint8_t> writable = tinyKernels();
  Elf64_Ehdr header;
  std::memcpy(&header, writable.data(), sizeof(header));
  for (int i = 0; i < header.e_phnum; ++i) {
    uint8_t *at = writable.data() + header.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr segment;
    std::memcpy(&segment, at, sizeof(segment));
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X))
      segment.p_flags |= PF_W;
    std::memcpy(at, &segment, sizeof(segment));
  }
  EXPECT_NE(verdict(writable).find("both writable and executable"),
            std::string::npos);
}

TEST(ElfImageTest, SurvivesEveryTruncation) {
  std::vector<uint8_t> image = tinyKernels();
  for (size_t length = 0; length < image.size(); ++length)
    checkElfImage(absl::MakeConstSpan(image.data(), length), kSymbols)
        .IgnoreError();
}

/// True if the dynamic loader survives the image. It runs in a child process
/// and calls nothing: only what the loader itself does is at stake.
bool loaderSurvives(const std::vector<uint8_t> &image) {
  int fd = memfd_create("elf_image_test", 0);
  EXPECT_EQ(write(fd, image.data(), image.size()), ssize_t(image.size()));
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    std::string path = "/proc/self/fd/" + std::to_string(fd);
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) {
      for (const std::string &symbol : kSymbols)
        dlsym(handle, symbol.c_str());
      dlclose(handle);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(fd);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The point of the check: whatever it lets through, the loader can handle.
TEST(ElfImageTest, WhatItAcceptsTheLoaderSurvives) {
  std::vector<uint8_t> image = tinyKernels();
  ASSERT_TRUE(loaderSurvives(image));
  std::mt19937 random(35);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint8_t> changed = image;
    // Headers, dynamic table, symbols, hashes and relocations are the first and
    // the last parts; between them is code.
    std::string where;
    for (int k = 0; k < 1 + int(random() % 3); ++k) {
      size_t at = random() % changed.size();
      changed[at] = uint8_t(random());
      where +=
          ", byte " + std::to_string(at) + " = " + std::to_string(changed[at]);
    }
    if (!checkElfImage(changed, kSymbols).ok()) {
      ++refused;
      continue;
    }
    ++accepted;
    ASSERT_TRUE(loaderSurvives(changed)) << "change " << i << where;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

} // namespace
} // namespace qwen35
