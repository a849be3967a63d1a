#include "dialect/QDist/IR/QDistDialect.h"
#include "test/unit/interpreter/ModuleTest.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace qwen35::test {
namespace {

struct EvaluatorsTest : ModuleTest {
  void expectAll(StringRef dialect, const llvm::StringSet<> &except) {
    int64_t ops = 0;
    for (RegisteredOperationName name : context.getRegisteredOperations()) {
      if (name.getDialectNamespace() != dialect)
        continue;
      ++ops;
      EXPECT_EQ(interpreter::hasEvaluator(name),
                !except.contains(name.getStringRef()))
          << name.getStringRef().str();
    }
    EXPECT_GT(ops, 0);
  }
};

TEST_F(EvaluatorsTest, EveryModelOpHasOne) { expectAll("qwen35", {}); }

TEST_F(EvaluatorsTest, EveryCollectiveHasOne) {
  context.loadDialect<qdist::QDistDialect>();
  expectAll("qdist", {});
}

// Kernel launches and addresses are not math, a terminator is part of its group.
TEST_F(EvaluatorsTest, EveryLoweredOpButLaunchesHasOne) {
  expectAll("qkern", {"qkern.collective", "qkern.dispatch", "qkern.join", "qkern.view",
                      "qkern.wait",
                      "qkern.yield"});
}

} // namespace
} // namespace qwen35::test
