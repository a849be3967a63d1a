#include "runtime/step/kernel_library.h"

#include "test/unit/bundle/tiny_bundle.h"
#include "test/unit/bundle/tiny_kernels.h"

#include <gtest/gtest.h>
#include <sodium/crypto_hash_sha256.h>

namespace qwen35 {
namespace {

const std::vector<std::string> kSymbols = {"tiny_norm_partial", "tiny_clear"};

std::string digest(const std::vector<uint8_t> &bytes) {
  std::string result(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256(reinterpret_cast<unsigned char *>(result.data()),
                     bytes.data(), bytes.size());
  return result;
}

absl::StatusOr<std::unique_ptr<KernelLibrary>>
load(const std::vector<uint8_t> &image,
     const std::vector<std::string> &symbols = kSymbols) {
  return KernelLibrary::load(image, digest(image), symbols);
}

TEST(KernelLibraryTest, CallsKernels) {
  auto library = load(tinyKernels());
  ASSERT_TRUE(library.ok()) << library.status();
  float grad[kWords];
  double partial[kWords / kBlock] = {};
  for (float &value : grad)
    value = 2;
  void *args[] = {grad, partial};
  (*library)->kernel(0)(args, 3);
  EXPECT_EQ(partial[3], 4.0 * int(kBlock));
  EXPECT_EQ(partial[2], 0);
  (*library)->kernel(1)(args, 0); // through memset, the one import
  EXPECT_EQ(grad[kWords - 1], 0);
}

// Two bundles may hold kernels of the same names, and one may be loaded twice.
TEST(KernelLibraryTest, KeepsLibrariesApart) {
  auto first = load(tinyKernels());
  auto second = load(tinyKernels("tiny_other.so"));
  auto third = load(tinyKernels());
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_NE((*first)->kernel(0), (*second)->kernel(0));
  EXPECT_NE((*first)->kernel(0), (*third)->kernel(0));
  first->reset();
  auto fourth = load(tinyKernels("tiny_other.so"));
  ASSERT_TRUE(fourth.ok());
  float grad[kWords] = {};
  double partial[kWords / kBlock] = {1};
  void *args[] = {grad, partial};
  (*fourth)->kernel(0)(args, 0);
  EXPECT_EQ(partial[0], -1) << "the other library's kernel";
  partial[0] = 1;
  (*third)->kernel(0)(args, 0);
  EXPECT_EQ(partial[0], 0);
}

TEST(KernelLibraryTest, RefusesHostileImages) {
  for (const char *file :
       {"tiny_import.so", "tiny_thread_local.so", "tiny_constructor.so",
        "tiny_ifunc.so", "tiny_needed.so", "tiny_execstack.so",
        "tiny_program"}) {
    auto library = load(tinyKernels(file));
    ASSERT_FALSE(library.ok()) << file;
    EXPECT_EQ(library.status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(load({}).ok());
  auto library = load(tinyKernels(), {"missing"});
  EXPECT_EQ(std::string(library.status().message()),
            "the kernels' ELF image does not define the kernel 'missing'");
}

TEST(KernelLibraryTest, RefusesBytesThatChangedAfterTheCheck) {
  std::vector<uint8_t> image = tinyKernels();
  std::string expected = digest(image);
  image[image.size() / 2] ^= 1;
  auto library = KernelLibrary::load(image, expected, kSymbols);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kDataLoss);
}

} // namespace
} // namespace qwen35
