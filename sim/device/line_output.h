// SPDX-License-Identifier: Apache-2.0
//
// Lines on a standard stream that are never waited for: what its reader does not take now is kept, up to a bound, and
// sent when there is room. Lines beyond the bound are dropped and counted.
#ifndef MERAPI_SIM_DEVICE_LINE_OUTPUT_H_
#define MERAPI_SIM_DEVICE_LINE_OUTPUT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace merapi::sim {

// Of who reads a program's last lines.
inline constexpr std::chrono::milliseconds kReaderPatience{100};

class LineOutput {
 public:
  // `lost` makes the line that tells how many were dropped. It comes before the next one that somebody takes.
  using Lost = std::function<std::string(uint64_t)>;
  LineOutput(int stream, Lost lost);
  ~LineOutput();
  LineOutput(const LineOutput&) = delete;
  LineOutput& operator=(const LineOutput&) = delete;

  void put(const std::string& line);
  // Is there more to send? Then fd() is to be polled for room, and send() called. A file whose disk is full always
  // seems to have some: -1, and the next line tries it again.
  bool pending() const { return sent_ < kept_.size(); }
  int fd() const { return full_ ? -1 : fd_; }
  void send();
  // Send the rest, as long as some of it is taken within each `patience`.
  void finish(std::chrono::milliseconds patience);

 private:
  bool keep(const std::string& line);
  void forget();
  size_t piece() const;

  static constexpr size_t kBound = size_t{1} << 20;
  const Lost lost_line_;
  uint64_t lost_ = 0;  // since the last line that was kept
  int fd_;
  bool own_ = false;  // a description of our own, which does not block
  std::string kept_;
  size_t sent_ = 0;
  bool full_ = false;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_LINE_OUTPUT_H_
