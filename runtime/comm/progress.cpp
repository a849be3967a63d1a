#include "runtime/comm/progress.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include <algorithm>
#include <cstring>

namespace qwen35::comm {

std::string Breadcrumb::collective() const {
  return absl::StrCat("number ", sequence, ", ", what, " over '", communicator,
                      "'");
}

std::string Breadcrumb::where() const {
  if (sequence < 0)
    return "before its first collective";
  return absl::StrFormat("%s %s for %.1f s", inside ? "in" : "after",
                         collective(), seconds);
}

/// Fields are lines; names have no line ends, or lose them here.
std::string Breadcrumb::serialize() const {
  auto line = [](std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  };
  return absl::StrCat(sequence, "\n", line(what), "\n", line(communicator),
                      "\n", inside ? 1 : 0, "\n",
                      static_cast<int64_t>(seconds * 1e3), "\n",
                      absl::StrJoin(waitingFor, " "));
}

bool Breadcrumb::parse(absl::string_view bytes, Breadcrumb &crumb) {
  std::vector<std::string> lines = absl::StrSplit(bytes, '\n');
  int64_t milliseconds = 0, inside = 0;
  if (lines.size() != 6 || !absl::SimpleAtoi(lines[0], &crumb.sequence) ||
      !absl::SimpleAtoi(lines[3], &inside) ||
      !absl::SimpleAtoi(lines[4], &milliseconds))
    return false;
  crumb.what = lines[1];
  crumb.communicator = lines[2];
  crumb.inside = inside != 0;
  crumb.seconds = static_cast<double>(milliseconds) * 1e-3;
  crumb.waitingFor.clear();
  std::vector<std::string> ranks =
      absl::StrSplit(lines[5], ' ', absl::SkipEmpty());
  for (const std::string &rank : ranks)
    if (!absl::SimpleAtoi(rank, &crumb.waitingFor.emplace_back()))
      return false;
  return true;
}

int64_t Progress::enter(const Call &entered, const std::string &name) {
  std::lock_guard lock(mutex);
  noted.reset();
  call = entered;
  size_t length = std::min(entered.site.label.size(), sizeof label);
  if (length > 0)
    std::memcpy(label, entered.site.label.data(), length);
  call.site.label = absl::string_view(label, length);
  communicator = name;
  sequence = entered.site.sequence >= 0 ? entered.site.sequence : next;
  ++next;
  inside = true;
  since = Clock::now();
  waitingFor.clear();
  return sequence;
}

void Progress::leave() {
  std::lock_guard lock(mutex);
  inside = false;
  since = Clock::now();
  waitingFor.clear();
}

void Progress::waitFor(std::vector<int> ranks) {
  std::lock_guard lock(mutex);
  waitingFor = std::move(ranks);
}

void Progress::note(const Breadcrumb &crumb) {
  std::lock_guard lock(mutex);
  noted = crumb;
}

Breadcrumb Progress::read() const {
  std::lock_guard lock(mutex);
  if (noted)
    return *noted;
  Breadcrumb crumb;
  crumb.sequence = sequence;
  if (sequence >= 0)
    crumb.what = describe(call);
  crumb.communicator = communicator;
  crumb.inside = inside;
  crumb.seconds = std::chrono::duration<double>(Clock::now() - since).count();
  crumb.waitingFor = waitingFor;
  return crumb;
}

absl::Status diagnose(const std::vector<RankState> &ranks, int reporter,
                      double limitSeconds) {
  auto named = [&](size_t rank) {
    const std::string &place = ranks[rank].place;
    return place.empty() ? absl::StrCat("rank ", rank)
                         : absl::StrCat("rank ", rank, " (", place, ")");
  };
  for (size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].ended)
      return absl::UnavailableError(
          absl::StrCat(named(r), " died: its process ended; it was last seen ",
                       ranks[r].crumb.where()));
  for (size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].silentFor > 0)
      return absl::UnavailableError(absl::StrCat(
          named(r),
          absl::StrFormat(" is stopped or cut off: no sign of life for %.1f s",
                          ranks[r].silentFor),
          "; it was last seen ", ranks[r].crumb.where()));

  std::vector<size_t> path = {static_cast<size_t>(reporter)};
  while (true) {
    const Breadcrumb &crumb = ranks[path.back()].crumb;
    if (path.size() > 1 && (!crumb.inside || crumb.waitingFor.empty()))
      return absl::DeadlineExceededError(absl::StrCat(
          named(path.back()),
          absl::StrFormat(" did not come within %.1f s", limitSeconds), " to ",
          ranks[path[path.size() - 2]].crumb.collective(),
          "; its process lives, ", crumb.where()));
    if (crumb.waitingFor.empty())
      return absl::DeadlineExceededError(absl::StrCat(
          named(path.back()), " waited ",
          absl::StrFormat("%.1f s", limitSeconds), " ", crumb.where()));
    // Of several, one that waits for nobody is to blame; else one that is
    // elsewhere leads on.
    auto rankOf = [](int rank) { return static_cast<size_t>(rank); };
    size_t next = rankOf(crumb.waitingFor.front());
    int best = 3;
    for (int other : crumb.waitingFor) {
      if (other < 0 || rankOf(other) >= ranks.size())
        return absl::InternalError(absl::StrCat("rank ", path.back(),
                                                " waits for rank ", other,
                                                "; there are ", ranks.size()));
      const Breadcrumb &theirs = ranks[rankOf(other)].crumb;
      int order = !theirs.inside || theirs.waitingFor.empty() ? 0
                  : theirs.collective() != crumb.collective() ? 1
                                                              : 2;
      if (order < best) {
        best = order;
        next = rankOf(other);
      }
    }
    auto seen = std::find(path.begin(), path.end(), next);
    if (seen != path.end()) {
      std::string text = "ranks wait for each other";
      for (; seen != path.end(); ++seen)
        absl::StrAppend(&text, "; rank ", *seen, " ",
                        ranks[*seen].crumb.where());
      return absl::FailedPreconditionError(text);
    }
    path.push_back(next);
  }
}

} // namespace qwen35::comm
