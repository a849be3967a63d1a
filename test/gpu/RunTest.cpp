// Training runs on a GPU from outside: one graph, the same bits in every
// process, kills, weights in and out, and the errors of the CPU.

#include "test/gpu/Door.h"

#include <algorithm>
#include <map>

namespace qwen35 {
namespace {

using namespace test;

const KitBundle kDebug("debug",
                       "--target cpu,TARGET --tokens 256 --max-docs 17 "
                       "--set train.rows=2 --set optim.lr=1e-3");
const KitBundle kDocuments("debug",
                           "--target cpu,TARGET --tokens 256 --max-docs 17 "
                           "--set train.rows=1");
const KitBundle
    kDense32("dense", "--target cpu,TARGET --set compute.dtype=fp32 --tokens "
                      "303 --set optim.lr=1e-3 --set schedule.kind=constant "
                      "--max-docs 4");
const KitBundle kDense16("dense", "--set compute.dtype=bf16 --tokens 303 --set "
                                  "optim.lr=1e-3 --set schedule.kind=constant "
                                  "--max-docs 4");

class GpuRun : public testing::Test {
protected:
  GpuRun() { writeFile(folder / "text", sampleText()); }

  std::string train(const std::string &name, int steps,
                    const std::string &more = "",
                    const std::string &target = "cuda") {
    return kit::tool("qwen35-run") + " " + kDebug.path() + " --target " +
           target + " --init 7 --data " + (folder / "text") + " --steps " +
           std::to_string(steps) +
           " --set train.steps=" + std::to_string(steps) + " --out " +
           (folder / name) + " --export-hf " + (folder / (name + "-hf")) + " " +
           more;
  }

  std::vector<nlohmann::json> records(const std::string &name) {
    std::istringstream lines(readFile(folder / (name + "/metrics.jsonl")));
    std::vector<nlohmann::json> result;
    for (std::string line; std::getline(lines, line);)
      result.push_back(nlohmann::json::parse(line, nullptr, false));
    return result;
  }

  /// loss and grad_norm of every step, as written.
  std::vector<std::string> curve(const std::string &name) {
    std::vector<std::string> result;
    for (const nlohmann::json &record : records(name))
      result.push_back(record["step"].dump() + " " + record["loss"].dump() +
                       " " + record["grad_norm"].dump());
    return result;
  }

  void expectSameCurve(const std::string &a, const std::string &b, int steps) {
    auto x = curve(a), y = curve(b);
    ASSERT_EQ(x.size(), size_t(steps)) << a;
    ASSERT_EQ(y.size(), size_t(steps)) << b;
    for (int i = 0; i < steps; ++i)
      ASSERT_EQ(x[i], y[i]) << a << " and " << b;
  }

  void expectSameFile(const std::string &a, const std::string &b) {
    std::string left = readFile(folder / a), right = readFile(folder / b);
    ASSERT_FALSE(left.empty()) << a;
    ASSERT_EQ(left.size(), right.size()) << a << " and " << b;
    size_t at = std::mismatch(left.begin(), left.end(), right.begin()).first -
                left.begin();
    EXPECT_EQ(at, left.size())
        << "first byte of " << a << " and " << b << " that differs";
  }

  void expectSameWeights(const std::string &a, const std::string &b) {
    expectSameFile(a + "-hf/model.safetensors", b + "-hf/model.safetensors");
  }

  int steps(int full, int emulated) const {
    return kit::emulated() ? emulated : full;
  }

  TempFolder folder;
};

// Steps of exactly one, three and seventeen documents of changing lengths, in
// whatever order the data comes, are launches of one graph: documents that fill
// the row of 256, that fill a third of it, and ones of which seventeen, all
// that a row may have, leave room.
TEST_F(GpuRun, A28OneGraphForEveryNumberOfDocuments) {
  std::string text;
  uint32_t state = 28;
  auto add = [&](int least, int most) {
    state = state * 1664525u + 1013904223u;
    text += std::string(least + (state >> 16) % (most - least + 1) - 1,
                        static_cast<char>('a' + (state >> 8) % 26)) +
            "\n\n"; // a token ends a document
  };
  for (int round = 0; round < 40; ++round) {
    add(256, 256);
    for (int i = 0; i < 2; ++i)
      add(83, 85);
    for (int i = 0; i < 9; ++i)
      add(8, 15);
  }
  writeFile(folder / "text", text);
  const int count = 60;
  std::string output = quiet(
      kit::tool("qwen35-run") + " " + kDocuments.path() +
      " --target cuda --init 7 --data " + (folder / "text") + " --steps " +
      std::to_string(count) + " --no-save --out " + (folder / "documents"));
  std::map<int, int> stepsOf;
  for (const nlohmann::json &record : records("documents"))
    ++stepsOf[record["documents"].get<int>()];
  std::string found;
  for (auto [documents, times] : stepsOf)
    found += " " + std::to_string(times) + " of " + std::to_string(documents);
  for (int documents : {1, 3, 17})
    EXPECT_GE(stepsOf[documents], 2) << found;
  auto graph = nlohmann::json::parse(
      readFile(folder / "documents/summary.json"))["graph"];
  EXPECT_EQ(graph["captures"], 1);
  EXPECT_EQ(graph["launches"], count);
  EXPECT_TRUE(contains(output, "graph   "));
  std::printf("parity: steps by their documents:%s\n", found.c_str());
}

TEST_F(GpuRun, A29FreshProcessesGiveTheSameCurve) {
  int count = steps(20, 2);
  for (const char *name : {"a", "b", "c"})
    quiet(train(name, count));
  expectSameCurve("a", "b", count);
  expectSameCurve("a", "c", count);
  expectSameWeights("a", "c");
  // Eager launches and memory full of NaN are the same work.
  quiet(train("eager", count, "--eager"));
  quiet(train("poisoned", count, "--poison"));
  expectSameCurve("a", "eager", count);
  expectSameCurve("a", "poisoned", count);
  expectSameWeights("a", "eager");
  expectSameWeights("a", "poisoned");
}

TEST_F(GpuRun, KilledAndResumedGivesTheSameWeights) {
  int count = steps(60, 4), kills = steps(6, 1);
  quiet(train("straight", count, "--set train.save_every=2"));
  std::string metrics = folder / "killed/metrics.jsonl",
              command = train("killed", count,
                              "--set train.save_every=2 --resume auto");
  for (int i = 0; i < kills; ++i) {
    // Killed with SIGKILL while it computes or saves, some steps after the
    // ones that are there.
    auto killed =
        run(command + " >" + (folder / "log") + " 2>&1 & p=$!; want=" +
            std::to_string(std::min(count - 1, 1 + 7 * i + i % 2)) +
            "; while kill -0 $p 2>/dev/null && [ $(cat " + metrics +
            " 2>/dev/null | wc -l) -lt $want ]; do sleep 0.002; done; "
            "kill -9 $p 2>/dev/null; wait $p");
    ASSERT_TRUE(killed.status == 137 || killed.ok())
        << killed.status << " " << readFile(folder / "log");
  }
  quiet(command);
  expectSameWeights("straight", "killed");
  expectSameCurve("straight", "killed", count); // every step once
}

TEST_F(GpuRun, SigtermSavesAndResumes) {
  auto ended =
      run("timeout --foreground --preserve-status -s TERM " +
          std::string(kit::emulated() ? "20 " : "3 ") + train("term", 1000000));
  ASSERT_EQ(ended.status, 0) << ended.output.substr(0, 500);
  size_t done = records("term").size();
  EXPECT_GT(done, 0u);
  std::string output = quiet(train("term", static_cast<int>(done) + 2,
                                   "--resume auto --set train.steps=1000000"));
  EXPECT_TRUE(contains(output, "resume  step " + std::to_string(done) + " of"))
      << output;
  EXPECT_EQ(records("term").size(), done + 2);
}

// What a GPU run exports has its loss on either target, and the export of a
// run of no steps is the file that went in.
TEST_F(GpuRun, ReloadedExportHasTheSameLoss) {
  std::string output = quiet(train("eval", steps(5, 2), "--eval-loss"));
  auto lossAt = [](const std::string &text, const std::string &where) {
    size_t at = text.find(where);
    if (at == std::string::npos) {
      ADD_FAILURE() << where << " in\n" << text;
      return std::string();
    }
    size_t line = text.rfind("eval loss ", at);
    return text.substr(line + 10, text.find(' ', line + 10) - line - 10);
  };
  std::string trained =
      lossAt(output, "(step " + std::to_string(steps(5, 2)) + ")");
  EXPECT_EQ(trained, lossAt(output, "(reloaded"));
  for (const char *target : {"cpu", "cuda"}) {
    std::string again = quiet(
        kit::tool("qwen35-run") + " " + kDebug.path() + " --target " + target +
        " --weights " + (folder / "eval-hf") + " --data " + (folder / "text") +
        " --steps 0 --eval-loss --out " + (folder / target) + " --export-hf " +
        (folder / (std::string(target) + "-hf")));
    EXPECT_NEAR(std::stod(trained), std::stod(lossAt(again, "(start)")), 1e-4);
    expectSameWeights("eval", target);
  }
}

// A published layout: bf16 with float32 A_log and norm.
TEST_F(GpuRun, A14DtypesAndBytesComeBack) {
  std::vector<RawTensor> tensors =
      readTensors(kit::golden("dense") + "/model.safetensors");
  for (RawTensor &tensor : tensors) {
    if (contains(tensor.name, "A_log") ||
        contains(tensor.name, "linear_attn.norm.weight"))
      continue;
    tensor.dtype = "BF16";
    std::string bytes;
    for (size_t i = 0; i + 4 <= tensor.bytes.size(); i += 4)
      bytes.append(tensor.bytes, i + 2, 2);
    tensor.bytes = bytes;
  }
  std::filesystem::create_directory(folder / "model");
  std::filesystem::copy(kit::golden("dense") + "/config.json",
                        folder / "model/config.json");
  writeTensors(folder / "model/model.safetensors", tensors);
  for (auto [bundle, name] :
       {std::pair(&kDense32, "fp32"), std::pair(&kDense16, "bf16")}) {
    SCOPED_TRACE(name);
    auto passThrough = [&, bundle = bundle](int count, const std::string &to) {
      quiet(kit::tool("qwen35-run") + " " + bundle->path() +
            " --target cuda --weights " + (folder / "model") + " --data " +
            (folder / "text") + " --set train.rows=1 --steps " +
            std::to_string(count) + " --out " + (folder / (to + "-run")) +
            " --export-hf " + (folder / to));
    };
    std::string same = std::string(name) + "-same",
                trained = std::string(name) + "-trained";
    passThrough(0, same);
    expectSameFile("model/model.safetensors", same + "/model.safetensors");
    passThrough(2, trained);
    auto after = readTensors(folder / (trained + "/model.safetensors"));
    ASSERT_EQ(after.size(), tensors.size());
    int changed = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(after[i].name, tensors[i].name);
      EXPECT_EQ(after[i].dtype, tensors[i].dtype) << tensors[i].name;
      EXPECT_EQ(after[i].shape, tensors[i].shape) << tensors[i].name;
      changed += after[i].bytes != tensors[i].bytes;
    }
    // A small vector may stay where bf16 rounds it.
    EXPECT_GT(changed, int(tensors.size()) / 2);
  }
}

// A33: what runs is said and written down; without a driver a bundle with both
// plans says why it takes the CPU, and one that is told to take the GPU stops.
TEST_F(GpuRun, A33TheChosenPathIsPrintedAndRecorded) {
  std::string output = quiet(train("paths", 1));
  std::string record = readFile(folder / "paths/run.json");
  for (const char *part : {"target  cuda ", "3 x linear_attention: ",
                           "1 x full_attention: ", "gdn_scan"})
    EXPECT_TRUE(contains(output, part)) << part << " in\n" << output;
  for (const char *part : {"gdn_scan", "attention_bwd", "cuda"})
    EXPECT_TRUE(contains(record, part)) << part;
  std::string hidden = "QWEN35_LIBCUDA=/nowhere/libcuda.so.1 ";
  output = quiet(hidden + train("cpu", 1, "", "auto"));
  for (const char *part : {"target  cpu ", "cannot load /nowhere/libcuda.so.1",
                           "NVIDIA driver 580 or newer (CUDA 13.0)"})
    EXPECT_TRUE(contains(output, part)) << part << " in\n" << output;
  auto refused = run(hidden + train("refused", 1));
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.output, "driver 580 or newer"))
      << refused.output;
  EXPECT_TRUE(contains(refused.output, "error: ")) << refused.output;
}

struct BadCase {
  const char *name;
  std::function<std::string(const TempFolder &)> arguments; // after qwen35-run
  const char *says;
};

std::string onBatch(const TempFolder &f) {
  return kDense32.path() + " --weights " + kit::golden("dense") + " --batch " +
         (f / "batch") + " --dump " + (f / "out");
}

std::string onText(const TempFolder &f, const std::string &model,
                   const std::string &more = "") {
  writeFile(f / "text", sampleText());
  return kDense32.path() + " --weights " + model + " --data " + (f / "text") +
         " --steps 2 --set train.rows=1 --out " + (f / "run") + " " + more;
}

/// A copy of the dense golden model with `from` of its header as `to`.
std::string patched(const TempFolder &f, const std::string &from,
                    const std::string &to) {
  std::filesystem::create_directory(f / "model");
  std::filesystem::copy_file(kit::golden("dense") + "/config.json",
                             f / "model/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::string bytes = readFile(kit::golden("dense") + "/model.safetensors");
  size_t at = bytes.find(from);
  if (at != std::string::npos)
    bytes.replace(at, from.size(), to);
  else
    ADD_FAILURE() << from;
  writeFile(f / "model/model.safetensors", bytes);
  return f / "model";
}

std::string batchOf(const TempFolder &f, const DocumentRow &row) {
  writeRow(f / "batch", row.ids, row.labels, row.cuSeqlens);
  return onBatch(f);
}

const std::vector<BadCase> &badCases() {
  static const std::vector<BadCase> cases = {
      {"truncated_bundle",
       [](const TempFolder &f) {
         writeFile(f / "b.q35", readFile(kDense32.path()).substr(0, 5000));
         return (f / "b.q35") + " --init 1 --batch x --dump y";
       },
       "bytes"},
      {"flipped_bit_in_code",
       [](const TempFolder &f) {
         std::string bytes = readFile(kDense32.path());
         bytes[bytes.size() - 2000] ^= 4;
         writeFile(f / "b.q35", bytes);
         return (f / "b.q35") + " --init 1 --batch x --dump y";
       },
       "SHA-256"},
      {"wrong_weight_name",
       [](const TempFolder &f) {
         return onText(f, patched(f, "model.norm.weight", "model.nork.weight"));
       },
       "model.nork.weight"},
      {"wrong_weight_dtype",
       [](const TempFolder &f) {
         return onText(f, patched(f, "\"F32\"", "\"I32\""));
       },
       "I32"},
      {"float_labels",
       [](const TempFolder &f) {
         std::string arguments = batchOf(f, DocumentRow({8}));
         std::string bytes = readFile(f / "batch");
         bytes.replace(bytes.find("I64", bytes.find("\"labels\"")), 3, "F64");
         writeFile(f / "batch", bytes);
         return arguments;
       },
       "F64"},
      {"A12_half_precision",
       [](const TempFolder &f) {
         return onText(f, kit::golden("dense"), "--set compute.dtype=fp16");
       },
       "compute.dtype must be one of \"auto\", \"fp32\", \"bf16\"; found "
       "\"fp16\""},
      {"token_id_out_of_range",
       [](const TempFolder &f) {
         DocumentRow row({8});
         row.ids[5] = 256;
         return batchOf(f, row);
       },
       "256"},
      {"negative_token_id",
       [](const TempFolder &f) {
         DocumentRow row({8});
         row.ids[5] = -1;
         return batchOf(f, row);
       },
       "-1"},
      {"empty_document",
       [](const TempFolder &f) {
         return batchOf(f, DocumentRow({4, 0, 4}));
       },
       "cu_seqlens"},
      {"too_many_documents",
       [](const TempFolder &f) {
         return batchOf(f, DocumentRow({4, 4, 4, 4, 4}));
       },
       "5"},
      {"row_too_long",
       [](const TempFolder &f) { return batchOf(f, DocumentRow({304})); },
       "304"},
      {"nothing_to_train_on",
       [](const TempFolder &f) {
         return batchOf(f, DocumentRow({1, 1}));
       },
       "label"},
      {"missing_data_file",
       [](const TempFolder &f) {
         return onText(f, kit::golden("dense"), "--data " + (f / "absent"));
       },
       "absent"},
      {"disk_full_while_saving",
       [](const TempFolder &f) { return onText(f, kit::golden("dense")); },
       "File too large"},
      {"unknown_recipe_key",
       [](const TempFolder &f) {
         return onText(f, kit::golden("dense"), "--set optim.lrr=1");
       },
       "did you mean optim.lr?"},
      {"baked_recipe_key",
       [](const TempFolder &f) {
         return onText(f, kit::golden("dense"), "--set optim.weight_decay=0.5");
       },
       "optim.weight_decay"},
  };
  return cases;
}

class GpuBadInput : public testing::TestWithParam<BadCase> {};

// Status, text and what is left behind are those of the CPU.
TEST_P(GpuBadInput, IsTheErrorOfTheCpu) {
  TempFolder folder;
  std::string arguments = GetParam().arguments(folder);
  // Blocks of 512 bytes: room for the CPU's kernels (359 kB in a memory file),
  // not for the weights (569 kB).
  bool full = std::string(GetParam().name) == "disk_full_while_saving";
  std::string errors[2];
  for (int i = 0; i < 2; ++i) {
    auto result =
        run((full ? "ulimit -f 1000; " : "") + kit::tool("qwen35-run") + " " +
            arguments + " --target " + (i ? "cuda" : "cpu"));
    EXPECT_EQ(result.status, 1) << result.output;
    size_t at = result.output.find("error: ");
    ASSERT_NE(at, std::string::npos) << result.output;
    errors[i] = result.output.substr(at);
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
    std::filesystem::remove_all(folder / "run");
  }
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_TRUE(contains(errors[1], GetParam().says)) << errors[1];
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuBadInput, testing::ValuesIn(badCases()),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

} // namespace
} // namespace qwen35
