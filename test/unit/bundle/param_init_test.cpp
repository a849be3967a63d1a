#include "runtime/bundle/param_init.h"

#include <gtest/gtest.h>

namespace qwen35 {
namespace {

TEST(ParamInitTest, ParsesEveryForm) {
  EXPECT_EQ(parseParamInit("zeros")->kind, ParamInit::Kind::Zeros);
  EXPECT_EQ(parseParamInit("ones")->kind, ParamInit::Kind::Ones);
  auto normal = parseParamInit("normal(0.02)");
  ASSERT_TRUE(normal.ok());
  EXPECT_EQ(normal->kind, ParamInit::Kind::Normal);
  EXPECT_EQ(normal->a, 0.02);
  auto uniform = parseParamInit("log_uniform(1e-3, 16)");
  ASSERT_TRUE(uniform.ok());
  EXPECT_EQ(uniform->kind, ParamInit::Kind::LogUniform);
  EXPECT_EQ(uniform->a, 1e-3);
  EXPECT_EQ(uniform->b, 16);
}

TEST(ParamInitTest, RefusesTheRest) {
  for (const char *text :
       {"", "zero", "normal", "normal()", "normal(-1)", "normal(nan)",
        "normal(inf)", "normal(1,2)", "normal(1", "log_uniform(1)",
        "log_uniform(0,1)", "log_uniform(2,1)", "log_uniform(1,1)",
        "log_uniform(1,2,3)", "ones "}) {
    auto result = parseParamInit(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.status().message().find("log_uniform(LO,HI)"),
              absl::string_view::npos);
  }
}

} // namespace
} // namespace qwen35
