#include "runtime/recipe/recipe.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

using namespace qwen35;

namespace {

std::string messageOf(const std::string &text) {
  Recipe recipe;
  std::string before = printRecipe(recipe);
  absl::Status status = applyRecipeText(text, "run.toml", recipe);
  EXPECT_FALSE(status.ok()) << text;
  EXPECT_EQ(printRecipe(recipe), before) << "changed by a refused text";
  return std::string(status.message());
}

std::string setMessage(const std::string &assignment) {
  Recipe recipe;
  return std::string(applyRecipeSet(assignment, recipe).message());
}

} // namespace

TEST(RecipeTest, ReadsEveryKeyOfEverySection) {
  Recipe r;
  ASSERT_TRUE(applyRecipeText(R"(
[optim]
lr = 1e-3
betas = [0.8, 0.99]
eps = 1e-6
weight_decay = 0.05
grad_clip = 2
[schedule]
kind = "wsd"
warmup_steps = 10
min_lr = 1e-5
decay_steps = 20
[loss]
aux = "pooled"
aux_coef = 0.01
[train]
steps = 200
rows = 4
save_every = 50
keep_last = 3
seed = 42
[data]
tokens = 256
max_docs = 6
[parallel]
pp = 1
dpr = 2
dps = 2
cp = 1
tp = 2
ep = 4
zero = 0
[compute]
dtype = "bf16"
[memory]
remat = "selective"
budget_gb = 16.5
)",
                              "run.toml", r)
                  .ok());
  EXPECT_EQ(r.optim.lr, 1e-3);
  EXPECT_EQ(r.optim.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(r.optim.eps, 1e-6);
  EXPECT_EQ(r.optim.weightDecay, 0.05);
  EXPECT_EQ(r.optim.gradClip, 2);
  EXPECT_EQ(r.schedule.kind, "wsd");
  EXPECT_EQ(r.schedule.warmupSteps, 10);
  EXPECT_EQ(r.schedule.minLr, 1e-5);
  EXPECT_EQ(r.schedule.decaySteps, 20);
  EXPECT_EQ(r.loss.aux, "pooled");
  EXPECT_EQ(r.loss.auxCoef, 0.01);
  EXPECT_EQ(r.train.steps, 200);
  EXPECT_EQ(r.train.rows, 4);
  EXPECT_EQ(r.train.saveEvery, 50);
  EXPECT_EQ(r.train.keepLast, 3);
  EXPECT_EQ(r.train.seed, 42);
  EXPECT_EQ(r.data.tokens, 256);
  EXPECT_EQ(r.data.maxDocs, 6);
  EXPECT_EQ(r.parallel.dpr, 2);
  EXPECT_EQ(r.parallel.dps, 2);
  EXPECT_EQ(r.parallel.tp, 2);
  EXPECT_EQ(r.parallel.ep, 4);
  EXPECT_EQ(r.parallel.zero, 0);
  EXPECT_EQ(r.compute.dtype, "bf16");
  EXPECT_EQ(r.memory.remat, "selective");
  EXPECT_EQ(r.memory.budgetGb, 16.5);
  EXPECT_TRUE(validateRecipe(r).ok());
  EXPECT_EQ(r.origin.at("optim.betas"), "run.toml:4");
  EXPECT_EQ(recipeKeys().size(), r.origin.size()) << "a key is untested";
}

TEST(RecipeTest, PrintsBytesThatReadBackTheSame) {
  Recipe first;
  ASSERT_TRUE(applyRecipeSet("optim.lr=0.1", first).ok());
  ASSERT_TRUE(applyRecipeSet("optim.eps=1.0000000000000002e-8", first).ok());
  ASSERT_TRUE(applyRecipeSet("optim.grad_clip=3", first).ok());
  ASSERT_TRUE(applyRecipeSet("train.seed=9007199254740992", first).ok());
  std::string text = printRecipe(first);
  Recipe second;
  ASSERT_TRUE(applyRecipeText(text, "resolved.toml", second).ok()) << text;
  EXPECT_EQ(printRecipe(second), text);
  EXPECT_EQ(second.optim.eps, first.optim.eps);
  EXPECT_EQ(second.train.seed, int64_t{1} << 53);
}

TEST(RecipeTest, PrintsDefaultsAsDocumented) {
  EXPECT_EQ(printRecipe(Recipe()), R"([optim]
lr = 3e-04
betas = [0.9, 0.95]
eps = 1e-08
weight_decay = 0.1
grad_clip = 1.0

[schedule]
kind = "cosine"
warmup_steps = 0
min_lr = 0.0
decay_steps = 0

[loss]
aux = "none"
aux_coef = 0.001

[train]
steps = 1000
rows = 8
save_every = 0
keep_last = 2
seed = 0

[data]
tokens = 2048
max_docs = 16

[parallel]
pp = 1
dpr = 1
dps = 1
cp = 1
tp = 1
ep = 1
zero = 1

[compute]
dtype = "auto"

[memory]
remat = "none"
budget_gb = 0.0
)");
}

TEST(RecipeTest, LaterValueWinsAndFlagsWinOverFiles) {
  Recipe r;
  ASSERT_TRUE(applyRecipeText("[optim]\nlr = 1.0\n", "a.toml", r).ok());
  ASSERT_TRUE(applyRecipeText("optim.lr = 2.0\n", "b.toml", r).ok());
  EXPECT_EQ(r.optim.lr, 2.0);
  EXPECT_EQ(r.origin["optim.lr"], "b.toml:1");
  ASSERT_TRUE(applyRecipeSet("optim.lr=3", r).ok());
  EXPECT_EQ(r.optim.lr, 3.0);
  ASSERT_TRUE(applyRecipeSet("train.steps=7", r, "--steps").ok());
  EXPECT_EQ(r.origin["train.steps"], "--steps");
}

TEST(RecipeTest, UnknownKeyNamesTheNearestOneAndTheLine) {
  EXPECT_EQ(messageOf("[optim]\nlr = 1.0\nweigth_decay = 0.1\n"),
            "run.toml:3: unknown key optim.weigth_decay; did you mean "
            "optim.weight_decay?");
  EXPECT_EQ(messageOf("[optm]\neps = 0.1\n"),
            "run.toml:2: unknown key optm.eps; did you mean optim.eps?");
  EXPECT_EQ(messageOf("lr = 1\n"),
            "run.toml:1: unknown key lr; did you mean optim.lr?");
  EXPECT_EQ(messageOf("[schedule]\nlr = 1\n"),
            "run.toml:2: unknown key schedule.lr; did you mean optim.lr?");
  EXPECT_EQ(messageOf("[train.rows]\nx = 1\n"),
            "run.toml:1: train.rows must be an integer, from 1 to 16777216; "
            "found a table");
  EXPECT_NE(messageOf("[lora]\n").find("run.toml:1: unknown key lora"),
            std::string::npos);
  EXPECT_EQ(setMessage("train.step=4"),
            "--set: unknown key train.step; did you mean train.steps?");
}

TEST(RecipeTest, FirstFaultOfTheFileIsTheOneReported) {
  EXPECT_EQ(messageOf("[train]\nrows = 0\n[data]\ntokenz = 1\n").substr(0, 11),
            "run.toml:2:");
}

TEST(RecipeTest, WrongTypesAndRangesAreOneClearErrorEach) {
  EXPECT_EQ(messageOf("[optim]\nlr = \"big\"\n"),
            "run.toml:2: optim.lr must be a number, at least 0; found \"big\" "
            "(a string)");
  EXPECT_EQ(messageOf("[optim]\nlr = nan\n"),
            "run.toml:2: optim.lr must be a number, at least 0; found nan (a "
            "float)");
  EXPECT_EQ(messageOf("[optim]\neps = 0\n"),
            "run.toml:2: optim.eps must be a number, greater than 0; found 0 "
            "(an integer)");
  EXPECT_EQ(messageOf("[optim]\nbetas = [0.9, 1.0]\n"),
            "run.toml:2: optim.betas must be a list of two numbers, each from "
            "0 to below 1; found a list of 2");
  EXPECT_EQ(messageOf("[train]\nsteps = 1.5\n"),
            "run.toml:2: train.steps must be an integer, from 1 to 1e+12; "
            "found 1.5 (a float)");
  EXPECT_EQ(messageOf("[train]\nseed = -1\n"),
            "run.toml:2: train.seed must be an integer, from 0 to "
            "9007199254740992; found -1 (an integer)");
  EXPECT_EQ(messageOf("[loss]\naux = \"pool\"\n"),
            "run.toml:2: loss.aux must be one of \"none\", \"pooled\", "
            "\"per_layer\"; found \"pool\" (a string)");
  EXPECT_EQ(messageOf("[memory]\nremat = true\n"),
            "run.toml:2: memory.remat must be one of \"none\", \"selective\", "
            "\"full\"; found true (a boolean)");
  EXPECT_EQ(messageOf("[train]\nsteps = 2026-01-01\n"),
            "run.toml:2: train.steps must be an integer, from 1 to 1e+12; "
            "found a date or time");
}

TEST(RecipeTest, SyntaxErrorNamesTheLine) {
  std::string message = messageOf("[optim]\nlr = 1.0\nlr = 2.0\n");
  EXPECT_EQ(message.substr(0, 28), "run.toml:3: not valid TOML: ") << message;
  message = messageOf("[optim\n");
  EXPECT_EQ(message.substr(0, 28), "run.toml:1: not valid TOML: ") << message;
}

TEST(RecipeTest, MalformedTextIsAnErrorNotACrash) {
  // What fuzzing found in the parser underneath.
  for (const char *text :
       {"[:x]", "[a\n", "\xef\xbb\xaf[op", "=", "[[", "a = {", "\"", "a.\"",
        "a = [1,", "a = 1__0", "a = 0x", "a = 1979-13-01", "\xff\xfe\x00"})
    EXPECT_EQ(messageOf(text).substr(0, 9), "run.toml:") << text;
}

TEST(RecipeTest, CommentsMayHoldAnyScript) {
  Recipe r;
  ASSERT_TRUE(applyRecipeText("\xef\xbb\xbf# \xc3\xa4\xe5\xad\x97 \xff\n"
                              "[optim] # \xc3\xa9\nlr = 1.0\n",
                              "run.toml", r)
                  .ok());
  EXPECT_EQ(r.origin["optim.lr"], "run.toml:3");
  EXPECT_EQ(messageOf("[optim]\nl\xc3\xa4r = 1\n").substr(0, 11),
            "run.toml:2:");
}

TEST(RecipeTest, SetTakesBareWordsPairsAndToml) {
  Recipe r;
  EXPECT_TRUE(applyRecipeSet("loss.aux=per_layer", r).ok());
  EXPECT_EQ(r.loss.aux, "per_layer");
  EXPECT_TRUE(applyRecipeSet("loss.aux = 'none'", r).ok());
  EXPECT_EQ(r.loss.aux, "none");
  EXPECT_TRUE(applyRecipeSet("optim.betas=0.5,0.75", r).ok());
  EXPECT_TRUE(applyRecipeSet("optim.betas=[0.5, 0.75]", r).ok());
  EXPECT_EQ(r.optim.betas, (std::array<double, 2>{0.5, 0.75}));
  EXPECT_TRUE(applyRecipeSet("optim.lr=1e-4", r).ok());
  EXPECT_EQ(r.optim.lr, 1e-4);
}

TEST(RecipeTest, SetRefusesWhatIsNotOneValue) {
  EXPECT_EQ(setMessage("optim.lr"),
            "--set: expected section.key=value, found \"optim.lr\"");
  EXPECT_EQ(setMessage("optim.lr="),
            "--set: optim.lr must be a number, at least 0; found nothing");
  EXPECT_EQ(setMessage("optim.lr=fast"),
            "--set: optim.lr must be a number, at least 0; found fast");
  EXPECT_NE(setMessage("optim.lr=1\nx=2"), "");
  EXPECT_EQ(setMessage("optim.betas=0.9"),
            "--set: optim.betas must be a list of two numbers, each from 0 to "
            "below 1; found a list of 1");
}

TEST(RecipeTest, ValidateChecksKeysAgainstEachOther) {
  Recipe r;
  ASSERT_TRUE(applyRecipeSet("schedule.min_lr=1", r).ok());
  EXPECT_EQ(std::string(validateRecipe(r).message()),
            "schedule.min_lr is 1 (--set), above optim.lr, which is 0.0003");
  r = Recipe();
  ASSERT_TRUE(applyRecipeSet("parallel.dps=3", r).ok());
  EXPECT_EQ(std::string(validateRecipe(r).message()),
            "train.rows is 8, not a multiple of the 3 data ranks "
            "(parallel.dpr x parallel.dps)");
  r = Recipe();
  ASSERT_TRUE(applyRecipeText("[parallel]\nep = 3\ntp = 2", "m.toml", r).ok());
  EXPECT_EQ(std::string(validateRecipe(r).message()),
            "parallel.ep is 3 (m.toml:2), which does not divide dps x cp x tp "
            "= 2");
}

TEST(RecipeTest, RunMayChangeWhatIsNotCompiledIn) {
  Recipe bundle, run;
  for (const char *change :
       {"optim.lr=1", "schedule.kind=wsd", "schedule.warmup_steps=3",
        "schedule.min_lr=0.1", "schedule.decay_steps=9", "train.steps=5",
        "train.rows=2", "train.save_every=1", "train.keep_last=0",
        "train.seed=5"})
    ASSERT_TRUE(applyRecipeSet(change, run).ok()) << change;
  EXPECT_TRUE(checkBakedKeys(bundle, run).ok());
  // The same value said again is no conflict.
  ASSERT_TRUE(applyRecipeSet("optim.betas=[0.9,0.95]", run).ok());
  EXPECT_TRUE(checkBakedKeys(bundle, run).ok());

  for (const char *change :
       {"optim.betas=0.5,0.5", "optim.eps=1", "optim.weight_decay=0",
        "optim.grad_clip=0", "loss.aux=pooled", "loss.aux_coef=0",
        "data.tokens=64", "data.max_docs=2", "parallel.pp=2", "parallel.dpr=2",
        "parallel.dps=2", "parallel.cp=2", "parallel.tp=2", "parallel.ep=2",
        "parallel.zero=0", "compute.dtype=bf16", "memory.remat=full",
        "memory.budget_gb=1"}) {
    Recipe other = run;
    ASSERT_TRUE(applyRecipeSet(change, other).ok()) << change;
    absl::Status status = checkBakedKeys(bundle, other);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << change;
  }
  ASSERT_TRUE(applyRecipeText("[optim]\neps = 1e-6", "run.toml", run).ok());
  EXPECT_EQ(std::string(checkBakedKeys(bundle, run).message()),
            "optim.eps is built into the bundle as 1e-08; the run asks for "
            "1e-06 (run.toml:2). Compile again with qwen35c --set "
            "optim.eps=1e-06, or leave it out");
}

TEST(RecipeTest, FilesThatCannotBeReadAreNamed) {
  Recipe r;
  absl::Status status = applyRecipeFile("/no/such/recipe.toml", r);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()),
            "cannot open recipe /no/such/recipe.toml: No such file or "
            "directory");
  status = applyRecipeFile("/", r);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);

  std::string path = testing::TempDir() + "/recipe_test.toml";
  std::ofstream(path) << "[train]\nsteps = 12\n";
  ASSERT_TRUE(applyRecipeFile(path, r).ok());
  EXPECT_EQ(r.train.steps, 12);
  EXPECT_EQ(r.origin["train.steps"], path + ":2");
}

TEST(RecipeTest, EveryKeyIsDocumented) {
  for (const RecipeKeyInfo &key : recipeKeys()) {
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.rule.empty()) << key.name;
    EXPECT_EQ(recipeValue(Recipe(), key.name).value(), key.defaultValue);
  }
  EXPECT_FALSE(recipeValue(Recipe(), "optim.llr").ok());
}

TEST(RecipeTest, GuideListsTheKeysAsTheyAre) {
  std::ifstream file(QWEN35_SOURCE_DIR "/docs/guides/recipe.md");
  std::string guide(std::istreambuf_iterator<char>(file), {});
  std::string table = "| key | default | | |\n|---|---|---|---|\n";
  for (const RecipeKeyInfo &key : recipeKeys())
    table += "| `" + key.name + "` | `" + key.defaultValue + "` | " + key.help +
             "; " + key.rule + " | " + (key.baked ? "compiled" : "") + " |\n";
  size_t begin = guide.find("compares) -->\n");
  size_t end = guide.find("<!-- keys: end -->");
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos);
  begin += 14;
  EXPECT_EQ(guide.substr(begin, end - begin), table)
      << "docs/guides/recipe.md should have:\n"
      << table;
}
