// Ranks that run a plan, each a thread with its own Step, against the
// interpreter of stage S3, bit for bit.

#include "dialect/Interpreter/Interpreter.h"
#include "runtime/api/step.h"
#include "runtime/bundle/ranks.h"
#include "runtime/comm/virtual.h"
#include "runtime/schema/seq_table.h"
#include "test/unit/ranks/RankBundle.h"
#include "test/unit/ranks/RankCases.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <sstream>

#include <dlfcn.h>

using namespace mlir;

namespace qwen35::test {
namespace {

struct RunRanksTest : ::testing::Test {
  RankBundle compiler;
  RankCases cases = RankCases::ofFour();

  void SetUp() override {
    ::setenv("QWEN35_LIBCUDA", QWEN35_FAKE_CUDA_LIBRARY, 1);
    ::setenv("QWEN35_FAKE_CUDA", "devices=4", 1);
    ::setenv("QWEN35_LIBNCCL", QWEN35_FAKE_NCCL_LIBRARY, 1);
  }

  void runCases(const std::string &target, bool flying = false);
  void stepOverNccl(bool flying);

  std::string bundle(const std::function<void(bundle::Bundle &)> &change = {}) {
    return cases.compile(compiler, change);
  }
};

interpreter::Tensor values(std::vector<int64_t> shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> elements(32);
  for (float &element : elements)
    element = uniform(random);
  return {std::move(shape), std::move(elements)};
}

/// Starts every collective and waits for it just before something touches its
/// bytes, or at the end of its program.
void makeFly(bundle::Bundle &message) {
  struct Range {
    uint32_t arena;
    uint64_t begin, end;
  };
  auto touched = [&](const bundle::PlanEntry &entry) {
    std::vector<Range> ranges;
    auto add = [&](const bundle::Arg &arg) {
      const bundle::Buffer &buffer =
          message.buffers(static_cast<int>(arg.buffer()));
      uint64_t first = buffer.offset() + arg.offset();
      ranges.push_back({buffer.arena(), first, first + arg.bytes()});
    };
    for (const bundle::Arg &arg : entry.launch().args())
      add(arg);
    const bundle::Collective &one = entry.collective();
    for (const bundle::Collective::Part &part : one.parts()) {
      add(part.send());
      add(part.receive());
    }
    if (one.has_send_stage())
      add(one.send_stage());
    if (one.has_receive_stage())
      add(one.receive_stage());
    if (entry.has_memset()) {
      const bundle::Buffer &buffer =
          message.buffers(static_cast<int>(entry.memset().buffer()));
      ranges.push_back({buffer.arena(), buffer.offset(),
                        buffer.offset() + buffer.bytes()});
    }
    return ranges;
  };
  for (bundle::Program &program : *message.mutable_programs()) {
    bundle::Program changed = program;
    changed.clear_entries();
    std::map<uint64_t, std::vector<Range>> flying;
    for (const bundle::PlanEntry &entry : program.entries()) {
      std::vector<Range> ranges = touched(entry);
      for (auto it = flying.begin(); it != flying.end();) {
        bool meets = false;
        for (const Range &his : it->second)
          for (const Range &mine : ranges)
            meets |= his.arena == mine.arena && his.begin < mine.end &&
                     mine.begin < his.end;
        if (!meets) {
          ++it;
          continue;
        }
        changed.add_entries()->mutable_wait()->set_sequence(it->first);
        it = flying.erase(it);
      }
      bundle::PlanEntry &copy = *changed.add_entries();
      copy = entry;
      if (!entry.has_collective() ||
          entry.collective().kind() == bundle::Collective::ALL_SLICE)
        continue;
      copy.mutable_collective()->set_async(true);
      flying[entry.collective().sequence()] = ranges;
    }
    for (const auto &[sequence, ranges] : flying)
      changed.add_entries()->mutable_wait()->set_sequence(sequence);
    program = changed;
  }
  EXPECT_TRUE(checkPlan(message).ok()) << checkPlan(message);
}

/// Runs every case on four ranks of `target`, each a thread.
void RunRanksTest::runCases(const std::string &target, bool flying) {
  compiler.target = target;
  OwningOpRef<ModuleOp> module = compiler.parse(cases.moduleText());
  ASSERT_TRUE(module);
  size_t count = cases.bodies.size();
  constexpr int kRanks = 4;
  SmallVector<SmallVector<interpreter::Tensor>> arguments(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (unsigned i = 0; i < 2 * count; ++i)
      arguments[rank].push_back(values({4, 8}, 100 * rank + i));
    std::vector<int32_t> ids;
    for (int t = 0; t < RankCases::kTokens;
         ++t) // rows of its part of the table
      ids.push_back(4 * (rank % 2) + (t + rank) % 4);
    arguments[rank].push_back({{4}, ids});
    arguments[rank].push_back({{4}, ids});
    arguments[rank].push_back(
        {{RankCases::kWords}, std::vector<int32_t>(RankCases::kWords)});
    arguments[rank].push_back({{}, std::vector<float>{0.25f * rank}});
  }
  interpreter::Options options;
  options.fp64 = false;
  auto expected = interpreter::interpretRanks(
      module->lookupSymbol<func::FuncOp>("accumulate"), arguments, options);
  ASSERT_TRUE(succeeded(expected));

  std::string bytes = flying ? bundle(makeFly) : bundle();
  auto file = open(bytes);
  ASSERT_TRUE(file);
  std::mutex mutex;
  absl::Status status =
      comm::runVirtualRanks(kRanks, [&](comm::World &world) -> absl::Status {
        int rank = world.rank();
        StepOptions stepOptions;
        stepOptions.target = target == "cpu" ? "cpu" : "cuda";
        stepOptions.overHost = true;
        stepOptions.threads = 1 + rank % 2;
        stepOptions.poison = true;
        stepOptions.world = &world;
        auto step = Step::create(file, stepOptions);
        if (!step.ok())
          return step.status();
        auto fill = [&](const std::string &name, size_t argument) {
          absl::StatusOr<uint32_t> index = (*step)->findBuffer(name);
          ASSERT_TRUE(index.ok()) << index.status();
          std::visit(
              [&](const auto &elements) {
                absl::Status written = (*step)->write(
                    *index, 0,
                    absl::Span<const uint8_t>(
                        reinterpret_cast<const uint8_t *>(elements.data()),
                        elements.size() * sizeof(elements[0])));
                ASSERT_TRUE(written.ok()) << written;
              },
              arguments[rank][argument].elements);
        };
        for (size_t i = 0; i < count; ++i) {
          fill("weight:p" + std::to_string(i), i);
          fill("grad:p" + std::to_string(i), count + i);
        }
        const auto &ids =
            std::get<std::vector<int32_t>>(arguments[rank][2 * count].elements);
        std::copy(ids.begin(), ids.end(), (*step)->input("ids")->begin());
        EXPECT_TRUE((*step)->setScalar("inv_count", 0.25f * rank).ok());
        if (absl::Status ran = (*step)->run("accumulate"); !ran.ok())
          return ran;
        std::lock_guard lock(mutex);
        for (size_t i = 0; i < count; ++i) {
          float found[32];
          absl::StatusOr<uint32_t> index =
              (*step)->findBuffer("grad:p" + std::to_string(i));
          absl::Status read =
              index.ok() ? (*step)->read(*index, 0,
                                         absl::MakeSpan(
                                             reinterpret_cast<uint8_t *>(found),
                                             sizeof(found)))
                         : index.status();
          if (!read.ok())
            return read;
          const auto &want =
              std::get<std::vector<float>>((*expected)[rank][i].elements);
          EXPECT_EQ(std::memcmp(found, want.data(), sizeof(found)), 0)
              << "case " << i << " on rank " << rank << ": " << found[0] << " "
              << found[1] << " ... " << found[31] << ", expected " << want[0]
              << " " << want[1] << " ... " << want[31];
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(RunRanksTest, EveryCollectiveIsWhatTheInterpreterSays) {
  runCases("cpu");
}

// What is only started ends where it starts.
TEST_F(RunRanksTest, EveryStartedCollectiveIsWhatTheInterpreterSays) {
  runCases("cpu", true);
}
TEST_F(RunRanksTest, RanksThatShareAGpuEndWhatTheyStart) {
  runCases("emulated", true);
}

// Ranks that share a GPU; kernels of the emulator.
TEST_F(RunRanksTest, EveryCollectiveOnAGpuIsWhatTheInterpreterSays) {
  runCases("emulated");
}

/// What libfake_nccl.so has recorded.
std::vector<std::string> ncclRecord(int rank) {
  void *library = ::dlopen(QWEN35_FAKE_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  auto record = reinterpret_cast<const char *(*)(int)>(
      ::dlsym(library, "qwen35FakeNcclRecord"));
  std::istringstream lines(record(rank));
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);)
    result.push_back(line);
  return result;
}

/// What libfake_cuda.so says of this thread's last capture.
std::vector<std::string> lastCapture() {
  void *library = ::dlopen(QWEN35_FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  auto capture = reinterpret_cast<const char *(*)()>(
      ::dlsym(library, "qwen35FakeCudaCapture"));
  std::istringstream lines(capture());
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);)
    result.push_back(line);
  return result;
}

// A GPU for every rank: one graph holds the step with its collectives, in the
// plan's order, and a second step asks NCCL for nothing more.
TEST_F(RunRanksTest, AStepOverNcclIsOneGraphInTheOrderOfThePlan) {
  stepOverNccl(false);
}
TEST_F(RunRanksTest, BesideKernelsTooNcclHasTheOrderOfThePlan) {
  stepOverNccl(true);
}

void RunRanksTest::stepOverNccl(bool flying) {
  void *library = ::dlopen(QWEN35_FAKE_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  reinterpret_cast<void (*)(const char *)>(
      ::dlsym(library, "qwen35FakeNcclReset"))(nullptr);
  compiler.target = "emulated";
  cases.withoutWire(); // NCCL adds no bf16
  std::string bytes = flying ? bundle(makeFly) : bundle();
  auto file = open(bytes);
  ASSERT_TRUE(file);
  std::vector<size_t> first(4);
  absl::Status status =
      comm::runVirtualRanks(4, [&](comm::World &world) -> absl::Status {
        int rank = world.rank();
        StepOptions options;
        options.target = "cuda";
        options.device = rank;
        options.world = &world;
        auto step = Step::create(file, options);
        if (!step.ok())
          return step.status();
        EXPECT_EQ((*step)->notes().front(),
                  flying ? "ranks   collectives go over NCCL, beside kernels"
                         : "ranks   collectives go over NCCL");
        for (int i = 0; i < 2; ++i) {
          absl::Status ran =
              (*step)->runStep(2, [](int64_t) { return absl::OkStatus(); });
          if (!ran.ok())
            return ran;
          if (i == 0)
            first[static_cast<size_t>(rank)] = ncclRecord(rank).size();
        }
        // Kernels are of the first stream; those beside a collective lie
        // between its start and a wait for the second.
        int kernels = 0, beside = 0;
        bool flies = false;
        for (const std::string &line : lastCapture()) {
          flies = line == "1 record" || (flies && line != "0 wait 1");
          EXPECT_NE(line, "1 kernel");
          kernels += line == "0 kernel";
          beside += flies && line == "0 kernel";
        }
        EXPECT_EQ(kernels, (*step)->graph().kernels);
        if (flying)
          EXPECT_GT(beside, 0);
        else
          EXPECT_EQ(beside, 0);
        EXPECT_EQ((*step)->graph().captures, 1);
        EXPECT_EQ((*step)->graph().launches, 2);
        EXPECT_EQ(ncclRecord(rank).size(), first[static_cast<size_t>(rank)]);
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;

  // Of the kinds that NCCL has as one call.
  std::vector<std::string> expected;
  for (const bundle::Program &program : file->message().programs())
    for (const bundle::PlanEntry &entry : program.entries()) {
      if (!entry.has_collective() ||
          (program.name() != "accumulate" && program.name() != "finish"))
        continue;
      const bundle::Collective &one = entry.collective();
      const char *call =
          one.kind() == bundle::Collective::ALL_GATHER   ? "ncclAllGather"
          : one.kind() == bundle::Collective::ALL_REDUCE ? "ncclAllReduce"
          : one.kind() == bundle::Collective::REDUCE_SCATTER
              ? "ncclReduceScatter"
              : nullptr;
      int64_t count = 0;
      for (const bundle::Collective::Part &part : one.parts())
        count += part.count();
      if (call)
        expected.push_back("c" + std::to_string(one.communicator() + 1) + " " +
                           call + " count=" + std::to_string(count) + " ");
    }
  ASSERT_GT(expected.size(), 8u);
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<std::string> made;
    for (const std::string &line : ncclRecord(rank))
      for (const char *call :
           {" ncclAllGather ", " ncclAllReduce ", " ncclReduceScatter "})
        if (line.find(call) != std::string::npos) {
          made.push_back(line.substr(2, line.find("type=") - 2));
          EXPECT_NE(line.find(" stream=s1"), std::string::npos) << line;
        }
    EXPECT_EQ(made, expected) << "rank " << rank;
  }
}

// gradient 1 = gradient 0 exchanged (with itself) beside the kernel that makes
// gradient 2; then gradient 3 = 2 x gradient 1. Whoever comes too early finds
// what is not there yet, both where the second stream runs as early as events
// let it and where it runs as late.
TEST_F(RunRanksTest, ResultsBesideKernelsAreThoseInOrder) {
  compiler.target = "emulated";
  cases = RankCases::ofOne();
  auto bufferOf = [](const bundle::Bundle &message, const std::string &name) {
    for (int i = 0; i < message.buffers_size(); ++i)
      if (message.buffers(i).name() == name)
        return static_cast<uint32_t>(i);
    ADD_FAILURE() << "no buffer " << name;
    return ~0u;
  };
  auto rewrite = [&](bundle::Bundle &message) {
    for (bundle::Program &program : *message.mutable_programs()) {
      bundle::Program changed = program;
      changed.clear_entries();
      auto makerOf = [&](uint32_t buffer) {
        for (const bundle::PlanEntry &entry : program.entries())
          for (const bundle::Arg &arg : entry.launch().args())
            if (arg.write() && arg.buffer() == buffer)
              return entry;
        ADD_FAILURE() << "nothing writes buffer " << buffer;
        return bundle::PlanEntry();
      };
      if (program.name() == "accumulate") {
        uint32_t grads[4];
        for (int i = 0; i < 4; ++i)
          grads[i] = bufferOf(message, "grad:p" + std::to_string(i));
        *changed.add_entries() = makerOf(grads[0]);
        for (const bundle::PlanEntry &entry : program.entries())
          if (entry.collective().kind() == bundle::Collective::ALL_GATHER &&
              entry.has_collective()) {
            bundle::PlanEntry &copy = *changed.add_entries();
            copy = entry;
            bundle::Collective &one = *copy.mutable_collective();
            one.set_sequence(0);
            one.set_async(true);
            one.mutable_parts(0)->mutable_send()->set_buffer(grads[0]);
            one.mutable_parts(0)->mutable_receive()->set_buffer(grads[1]);
          }
        *changed.add_entries() = makerOf(grads[2]);
        changed.add_entries()->mutable_wait()->set_sequence(0);
        bundle::PlanEntry &reader = *changed.add_entries();
        reader = makerOf(grads[3]);
        for (bundle::Arg &arg : *reader.mutable_launch()->mutable_args())
          if (arg.buffer() == bufferOf(message, "weight:p3"))
            arg.set_buffer(grads[1]);
      } else {
        for (const bundle::PlanEntry &entry : program.entries())
          if (!entry.has_collective())
            *changed.add_entries() = entry;
      }
      program = changed;
    }
  };
  std::string bytes = bundle(rewrite);
  auto file = open(bytes);
  ASSERT_TRUE(file);
  void *library = ::dlopen(QWEN35_FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  auto ahead = reinterpret_cast<void (*)(int)>(
      ::dlsym(library, "qwen35FakeCudaAhead"));
  for (const char *how : {"eager", "late", "ahead", "profile"}) {
    SCOPED_TRACE(how);
    ahead(how == std::string("ahead"));
    absl::Status status =
        comm::runVirtualRanks(1, [&](comm::World &world) -> absl::Status {
          StepOptions options;
          options.target = "cuda";
          options.world = &world;
          options.poison = true;
          options.eager = how == std::string("eager");
          options.profile = how == std::string("profile");
          auto step = Step::create(file, options);
          if (!step.ok())
            return step.status();
          std::vector<float> weights[4];
          auto bytesOf = [](std::vector<float> &values) {
            return absl::MakeSpan(reinterpret_cast<uint8_t *>(values.data()),
                                  values.size() * sizeof(float));
          };
          for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < 32; ++j)
              weights[i].push_back(static_cast<float>(i * 100 + j + 1));
            uint32_t index =
                bufferOf(file->message(), "weight:p" + std::to_string(i));
            if (absl::Status wrote =
                    (*step)->write(index, 0, bytesOf(weights[i]));
                !wrote.ok())
              return wrote;
          }
          if (absl::Status ran = (*step)->runStep(
                  2, [](int64_t) { return absl::OkStatus(); });
              !ran.ok())
            return ran;
          for (auto [grad, weight, factor] :
               {std::tuple(0, 0, 2), {1, 0, 2}, {2, 2, 2}, {3, 0, 4}}) {
            std::vector<float> found(32), expected;
            for (float value : weights[weight])
              expected.push_back(static_cast<float>(factor) * value);
            absl::Status read = (*step)->read(
                bufferOf(file->message(), "grad:p" + std::to_string(grad)), 0,
                bytesOf(found));
            if (!read.ok())
              return read;
            EXPECT_EQ(found, expected) << "gradient " << grad;
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
  }
  ahead(0);
}

TEST_F(RunRanksTest, TwoRanksOnOneGpuAreRefusedOverNccl) {
  compiler.target = "emulated";
  std::string bytes = bundle();
  auto file = open(bytes);
  ASSERT_TRUE(file);
  absl::Status status =
      comm::runVirtualRanks(4, [&](comm::World &world) -> absl::Status {
        StepOptions options;
        options.target = "cuda";
        options.device = world.rank() % 2;
        options.world = &world;
        return Step::create(file, options).status();
      });
  for (const char *part : {"ranks 0 and 2", "GPU 0", "virtual ranks share"})
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
}

TEST_F(RunRanksTest, TheBundleSaysWhatRanksAre) {
  std::string bytes = bundle();
  auto file = open(bytes);
  ASSERT_TRUE(file);
  const bundle::Bundle &message = file->message();
  ASSERT_EQ(message.header().features_size(), 1);
  EXPECT_EQ(message.header().features(0), "ranks");
  EXPECT_EQ(message.mesh().dps(), 2);
  EXPECT_EQ(message.mesh().tp(), 2);
  ASSERT_EQ(message.communicators_size(), 3);
  ASSERT_EQ(message.rank_vars_size(), 1);
  const bundle::Param &param = message.params(0);
  ASSERT_TRUE(param.has_shard());
  EXPECT_EQ(param.shard().global_shape(0), 8);
  EXPECT_EQ(param.shard().global_shape(1), 16);
  absl::StatusOr<Mesh> mesh = meshOf(message);
  ASSERT_TRUE(mesh.ok());
  // Rank 3 has the lower right quarter: four runs of eight.
  std::vector<ShardRun> runs = shardRuns(param.shard(), *mesh, 3);
  ASSERT_EQ(runs.size(), 4u);
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(runs[row].local, 8 * row);
    EXPECT_EQ(runs[row].global, 16 * (4 + row) + 8);
    EXPECT_EQ(runs[row].count, 8);
  }
  EXPECT_FALSE(param.has_moments());
  EXPECT_EQ(param.gradient_axes_size(), 0);
  for (const bundle::IoBuffer &input : message.io().inputs())
    EXPECT_EQ(input.has_shard(), input.name() == "ids");
}

TEST_F(RunRanksTest, AnotherNumberOfRanksIsOneError) {
  std::string bytes = bundle();
  auto file = open(bytes);
  ASSERT_TRUE(file);
  auto alone = Step::create(file, {});
  EXPECT_EQ(alone.status().message(),
            "the bundle is for 4 ranks (pp=1,dpr=1,dps=2,cp=1,tp=2,ep=1), but "
            "1 was started");
  absl::Status status =
      comm::runVirtualRanks(2, [&](comm::World &world) -> absl::Status {
        StepOptions options;
        options.threads = 1;
        options.world = &world;
        return Step::create(file, options).status();
      });
  EXPECT_NE(status.message().find("but 2 were started"), std::string::npos)
      << status;
}

TEST_F(RunRanksTest, AnErrorNamesRankNumberAndOp) {
  std::string bytes = bundle();
  auto file = open(bytes);
  ASSERT_TRUE(file);
  // Rank 2 skips a microbatch: it meets the others in another collective.
  absl::Status status =
      comm::runVirtualRanks(4, [&](comm::World &world) -> absl::Status {
        StepOptions options;
        options.threads = 1;
        options.world = &world;
        auto step = Step::create(file, options);
        if (!step.ok())
          return step.status();
        return (*step)->run(world.rank() == 2 ? "finish" : "accumulate");
      });
  std::string text(status.message());
  for (const char *part : {"rank 2", "number ", "all_reduce", "all_gather"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// What validateBundle says of a bundle that is changed before it is written.
using Change = std::function<void(bundle::Bundle &)>;

TEST_F(RunRanksTest, BadRanksAreRefused) {
  // Collectives of @accumulate by number, in the order of the cases.
  auto collective = [](bundle::Bundle &message,
                       uint64_t number) -> bundle::Collective & {
    for (bundle::Program &program : *message.mutable_programs())
      for (bundle::PlanEntry &entry : *program.mutable_entries())
        if (entry.has_collective() && entry.collective().sequence() == number)
          return *entry.mutable_collective();
    std::abort();
  };
  bundle::Bundle good;
  std::string bytes = bundle([&](bundle::Bundle &message) { good = message; });
  ASSERT_TRUE(open(bytes));
  good.add_blobs()->set_name("cpu.so");
  ASSERT_TRUE(validateBundle(good).ok()) << validateBundle(good);
  ASSERT_TRUE(checkPlan(good).ok()) << checkPlan(good);

  struct Bad {
    Change change;
    std::string message;
  };
  auto at = [&](uint64_t number,
                std::function<void(bundle::Collective &)> change) -> Change {
    return
        [=](bundle::Bundle &message) { change(collective(message, number)); };
  };
  std::vector<Bad> bad = {
      {[](bundle::Bundle &m) { m.clear_header(); },
       "the bundle has a mesh, but its header does not name the feature "
       "'ranks'"},
      {[](bundle::Bundle &m) { m.clear_mesh(); },
       "the bundle has not a mesh, but its header names the feature 'ranks'"},
      {[](bundle::Bundle &m) { m.mutable_mesh()->set_tp(0); },
       "the mesh has 0 ranks along tp, expected 1 or more and 65536 at most "
       "over all axes"},
      {[](bundle::Bundle &m) { m.mutable_mesh()->set_pp(INT64_MAX); },
       "the mesh has 9223372036854775807 ranks along pp, expected 1 or more "
       "and 65536 at most over all axes"},
      {[](bundle::Bundle &m) {
         m.mutable_communicators(0)->mutable_groups(1)->set_ranks(0, 1);
       },
       "communicator 0: group 1 is of ranks 1 3, but its axes {tp} make it 2 "
       "3"},
      {[](bundle::Bundle &m) { m.mutable_communicators(0)->clear_groups(); },
       "communicator 0 has 0 groups, but its axes {tp} make 2"},
      {[](bundle::Bundle &m) { m.mutable_communicators(0)->set_axes(0, "cp"); },
       "communicator 0 names the axis 'cp', which the mesh "
       "pp=1,dpr=1,dps=2,cp=1,tp=2,ep=1 has not"},
      {[](bundle::Bundle &m) { m.mutable_rank_vars(0)->set_communicator(9); },
       "a coordinate is that in communicator 9, but there are 3"},
      {[](bundle::Bundle &m) {
         m.mutable_params(0)->mutable_shard()->set_global_shape(0, 16);
       },
       "param 'p0' has 4 along dimension 0, but 16 over {dps} of 2 ranks"},
      {[](bundle::Bundle &m) {
         m.mutable_params(0)->mutable_shard()->mutable_dims(1)->set_axes(0,
                                                                         "dps");
       },
       "param 'p0' is split over {dps} in two dimensions"},
      {[](bundle::Bundle &m) {
         m.mutable_params(0)->mutable_shard()->mutable_dims(1)->add_sections(3);
       },
       "param 'p0' has a section of 3 along dimension 1, which 2 ranks do not "
       "divide"},
      {[](bundle::Bundle &m) {
         *m.mutable_params(0)->mutable_moments() = m.params(0).shard();
         m.mutable_params(0)->mutable_moments()->set_global_shape(0, 16);
       },
       "m of param 'p0' has 4 along dimension 0, but 16 over {dps} of 2 ranks"},
      {[](bundle::Bundle &m) {
         *m.mutable_params(0)->mutable_moments() = m.params(0).shard();
         m.mutable_params(0)->clear_shard();
         m.mutable_model()->set_parameters(m.model().parameters() - 96);
       },
       "m of param 'p0' is a piece of [8, 16], but the weight of [4, 8]"},
      {[](bundle::Bundle &m) { m.mutable_params(0)->add_gradient_axes("dps"); },
       "gradient of param 'p0' is to be summed over {dps}, over which it is "
       "split"},
      {at(0, [](bundle::Collective &c) { c.set_communicator(7); }),
       "uses communicator 7, but there are 3"},
      {at(1, [](bundle::Collective &c) { c.set_sequence(5); }),
       "is number 5, expected 1: collectives have one order on all ranks"},
      {at(0, [](bundle::Collective &c) { c.set_dtype(bundle::U8); }),
       "is of u8, expected f32, f64, bf16, i32 or i64"},
      {at(0, [](bundle::Collective &c) { c.set_wire(bundle::BF16); }),
       "sends f32 as bf16, expected as it is, or an f32 to reduce as bf16"},
      {at(0, [](bundle::Collective &c) { c.set_offset(1); }),
       "has the offset 1 in a group of 2"},
      {at(0, [](bundle::Collective &c) { c.clear_parts(); }),
       "has 0 parts, expected 1 to 65536"},
      {at(0,
          [](bundle::Collective &c) {
            c.mutable_parts(0)->set_count(int64_t(1) << 60);
          }),
       "has pieces of 1152921504606846976 elements, expected 1 to "
       "35184372088832"},
      {at(0, [](bundle::Collective &c) { c.mutable_parts(0)->set_count(16); }),
       "what is sent has 128 bytes, expected 64"},
      {at(0,
          [](bundle::Collective &c) {
            c.mutable_parts(0)->mutable_send()->set_offset(uint64_t(-4));
          }),
       "what is sent has 128 bytes at offset 18446744073709551612"},
      {at(0,
          [](bundle::Collective &c) { c.mutable_parts(0)->set_send_outer(2); }),
       "sends pieces of 32 elements in 2 rows"},
      {at(0,
          [](bundle::Collective &c) {
            c.mutable_parts(0)->set_receive_outer(2);
          }),
       "has no receive stage, which its parts need"},
      {at(1, [](bundle::Collective &c) { c.clear_send_stage(); }),
       "has no send stage, which its parts need"},
      {at(0,
          [](bundle::Collective &c) {
            c.mutable_parts(0)->mutable_receive()->set_buffer(
                c.parts(0).send().buffer());
          }),
       "what is received has 256 bytes at offset 0, but buffer 'weight:p0' has "
       "128"},
      {at(0, [](bundle::Collective &c) { c.set_async(true); }),
       "program accumulate starts collective 0 and never waits for it"},
      {[](bundle::Bundle &m) {
         for (bundle::Program &program : *m.mutable_programs())
           if (program.name() == "accumulate")
             program.add_entries()->mutable_wait()->set_sequence(3);
       },
       "of program accumulate waits for collective 3, which this program has "
       "not started or has awaited"},
  };
  for (const Bad &each : bad) {
    bundle::Bundle message = good;
    each.change(message);
    absl::Status status = validateBundle(message);
    EXPECT_NE(status.message().find(each.message), std::string::npos)
        << status << "\nexpected: " << each.message;
  }

  // What is in flight is nobody's: number 1 reads what number 0 receives.
  bundle::Bundle flying = good;
  collective(flying, 0).set_async(true);
  for (bundle::Program &program : *flying.mutable_programs())
    if (program.name() == "accumulate")
      program.add_entries()->mutable_wait()->set_sequence(0);
  ASSERT_TRUE(validateBundle(flying).ok()) << validateBundle(flying);
  EXPECT_NE(checkPlan(flying).message().find("in flight and writes the same"),
            std::string::npos)
      << checkPlan(flying);

  // The plan as a whole: what is sent has been written, what is received fits
  // its role.
  bundle::Bundle message = good;
  bundle::Collective &first = collective(message, 1);
  uint32_t sent = first.parts(0).send().buffer();
  for (bundle::Program &program : *message.mutable_programs())
    for (int i = 0; i < program.entries_size(); ++i)
      if (program.entries(i).has_collective() &&
          program.entries(i).collective().sequence() == 0)
        program.mutable_entries(i)
            ->mutable_collective()
            ->mutable_parts(0)
            ->mutable_receive()
            ->set_buffer(sent == 0 ? 1 : 0);
  absl::Status status = validateBundle(message);
  EXPECT_FALSE(status.ok() && checkPlan(message).ok());
}

} // namespace
} // namespace qwen35::test
