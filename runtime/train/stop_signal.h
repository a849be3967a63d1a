#ifndef QWEN35_RUNTIME_TRAIN_STOP_SIGNAL_H
#define QWEN35_RUNTIME_TRAIN_STOP_SIGNAL_H

namespace qwen35 {

/// While one lives, SIGTERM and SIGINT ask for an orderly end instead of ending
/// the process. A second signal of the same kind ends it at once, as usual.
/// Ranks that are threads may each have one.
class StopSignal {
public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal &) = delete;
  StopSignal &operator=(const StopSignal &) = delete;

  /// The signal that came, or 0.
  static int received();
  /// "SIGTERM" or "SIGINT"
  static const char *name(int signal);
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_TRAIN_STOP_SIGNAL_H
