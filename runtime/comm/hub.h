#ifndef QWEN35_RUNTIME_COMM_HUB_H
#define QWEN35_RUNTIME_COMM_HUB_H

#include "runtime/comm/socket.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace qwen35::comm {

/// Frames between a rank and the hub.
enum class Frame : uint8_t {
  // to the hub
  kHello,    // Hello
  kBeat,     // Breadcrumb
  kExchange, // bytes
  kLate,     // Breadcrumb: this rank waited past the limit
  kLost,     // rank \n how: the transport lost a rank
  kFail,     // code \n message
  kReported, // this rank has said why it ends
  kBye,      // orderly end
  // from the hub
  kWelcome,   // session \n one Hello per rank, each with its length
  kHubBeat,   // Breadcrumb of rank 0
  kExchanged, // one part per rank, each with its length
  kFailed,    // code \n message
  kExit,      // everybody has reported
  kDone,      // every rank has said bye
};

/// How a rank presents itself.
struct Hello {
  std::string cookie; // of the run; empty where there is none
  int rank = 0, size = 1;
  int neededRanks = 0; // by the plan; 0: any number
  std::string place;   // "pid 1234 on node7"
  std::string machine; // machineId()
  int dataPort = 0;
  std::vector<std::string> addresses;
  std::vector<std::pair<std::string, std::string>> agree; // name, value

  std::string serialize() const;
  static bool parse(const std::string &text, Hello &hello);
};

struct Limits {
  double joinSeconds = 25;    // for all ranks to come together
  double silenceSeconds = 10; // without a sign of life
  double callSeconds = 300;   // that a rank may keep others waiting
};

/// Parts with their lengths, as one string.
std::string packParts(const std::vector<std::string> &parts);
bool unpackParts(absl::string_view bytes, std::vector<std::string> &parts);

std::string packStatus(const absl::Status &status);
absl::Status unpackStatus(const std::string &text);

/// The meeting point beside rank 0: brings the ranks together, carries what
/// they exchange, watches that each gives signs of life, and decides what the
/// cause of a failure is, so that all ranks say the same. A thread of its own.
class Hub {
public:
  Hub(Descriptor listener, int size, const Limits &limits);
  ~Hub();
  /// The end of a connection for rank 0.
  Descriptor connectLocally();

private:
  struct Member {
    Channel channel;
    Hello hello;
    bool joined = false, left = false, reported = false, ended = false;
    Clock::time_point leftAt; // of one that left
    Clock::time_point heard = Clock::now();
    Breadcrumb crumb;
    bool hasGiven = false;
    std::string given;
  };

  void run();
  void addMember(Descriptor socket);
  void take(Member &member, const Channel::Frame &frame);
  void join(Member &member, const std::string &text);
  bool allCame() const;
  void checkJoined(bool late);
  void tick(Clock::time_point now, bool slept);
  void fail(const absl::Status &why);
  void sendAll(Frame kind, const std::string &body);
  std::vector<RankState> states(Clock::time_point now) const;
  Member *rank(int number) const;

  Descriptor listener, wake;
  const int size;
  const Limits limits;
  std::atomic<bool> stopping = false;
  // Of the thread alone:
  std::vector<std::unique_ptr<Member>> members;
  std::vector<Member *> byRank;
  Clock::time_point start = Clock::now(), lastBeat = Clock::now();
  Clock::time_point refuseAt = Clock::time_point::max();
  std::vector<std::string> problems;
  bool running = false, done = false, exitSent = false;
  absl::Status cause;
  Clock::time_point exitAt = Clock::time_point::max();
  int lateRank = -1;
  Clock::time_point verdictAt = Clock::time_point::max();
  std::string lostText;
  std::thread thread;
};

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_HUB_H
