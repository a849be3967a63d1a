#include "runtime/data/loader.h"

#include "runtime/records/step_record.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace qwen35 {

struct Loader::Impl {
  explicit Impl(Packer packer) : packer(std::move(packer)) {}

  void work();

  Packer packer; // of the thread alone
  Batch ahead;   // of the thread until `ready`, then of next()
  absl::Status status;
  std::mutex mutex;
  std::condition_variable changed;
  bool ready = false, stop = false;
  double waited = 0;
  std::thread thread;
};

void Loader::Impl::work() {
  for (bool going = true; going;) {
    absl::Status packed = packer.next(ahead);
    std::unique_lock<std::mutex> lock(mutex);
    status = packed;
    ready = true;
    changed.notify_all();
    changed.wait(lock, [&] { return stop || !ready; });
    going = !stop && packed.ok();
  }
}

Loader::Loader() = default;

Loader::~Loader() {
  if (!impl || !impl->thread.joinable())
    return;
  {
    std::lock_guard<std::mutex> lock(impl->mutex);
    impl->stop = true;
  }
  impl->changed.notify_all();
  impl->thread.join();
}

absl::StatusOr<std::unique_ptr<Loader>>
Loader::create(std::shared_ptr<const Corpus> corpus,
               const LoaderOptions &options, const LoaderState *resume) {
  auto packer = Packer::create(std::move(corpus), options, resume);
  if (!packer.ok())
    return packer.status();
  std::unique_ptr<Loader> loader(new Loader);
  loader->impl = std::make_unique<Impl>(*std::move(packer));
  try {
    loader->impl->thread =
        std::thread([impl = loader->impl.get()] { impl->work(); });
  } catch (const std::system_error &error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the data thread: ", error.what()));
  }
  return loader;
}

absl::Status Loader::next(Batch &batch) {
  auto start = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(impl->mutex);
  impl->changed.wait(lock, [&] { return impl->ready; });
  impl->waited =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  if (!impl->status.ok())
    return impl->status; // the thread has no more to give; `ready` stays
  std::swap(batch, impl->ahead);
  impl->ready = false;
  impl->changed.notify_all();
  return absl::OkStatus();
}

double Loader::waitedSeconds() const { return impl->waited; }

CorpusReport reportCorpus(const Corpus &corpus, int64_t tokens) {
  CorpusReport report;
  report.files = corpus.files();
  report.emptyDocuments = corpus.emptyDocuments();
  report.tokens = corpus.tokens();
  for (int64_t d = 0; d < corpus.documents(); ++d) {
    int64_t length = corpus.length(d);
    report.documents += length > 0;
    report.splitDocuments += length > tokens;
    report.pieces += (length + tokens - 1) / tokens;
  }
  return report;
}

std::string formatReport(const CorpusReport &report, int64_t tokens) {
  std::string text =
      absl::StrCat(groupDigits(report.documents),
                   report.documents == 1 ? " document, " : " documents, ",
                   groupDigits(report.tokens), " tokens in ", report.files,
                   report.files == 1 ? " file" : " files");
  std::string notes;
  if (report.emptyDocuments)
    notes = absl::StrCat(groupDigits(report.emptyDocuments), " empty skipped");
  if (report.splitDocuments)
    absl::StrAppend(&notes, notes.empty() ? "" : "; ",
                    groupDigits(report.splitDocuments), " longer than ",
                    groupDigits(tokens), " split, ", groupDigits(report.pieces),
                    " pieces");
  return notes.empty() ? text : absl::StrCat(text, " (", notes, ")");
}

} // namespace qwen35
