// SPDX-License-Identifier: Apache-2.0
//
// Waveforms (VCD) of a Verilated class that was made with --trace.
#ifndef MERAPI_SIM_RTL_WAVES_H_
#define MERAPI_SIM_RTL_WAVES_H_

#include <errno.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>
#include <verilated_vcd_c.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "sim/rtl/plugin.h"
#include "sim/rtl/port_rules.h"

namespace merapi::sim::rtl {

// Verilator's own file ends the whole process when it cannot be written, and a device serves several windows. What is
// in a waveform is somebody's heap: it is for its owner alone, as images are.
class WaveFile : public VerilatedVcdFile {
 public:
  bool open(const std::string& name) override {
    error_ = 0;
    // Not to wait for the reader of a pipe that has none.
    fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd_ < 0 || fcntl(fd_, F_SETFL, 0) < 0) error_ = errno;
    return error_ == 0;
  }
  void close() override {
    if (fd_ >= 0 && ::close(fd_) < 0 && error_ == 0) error_ = errno;
    fd_ = -1;
  }
  // All of it, or the error is kept and the rest is left out.
  ssize_t write(const char* data, ssize_t bytes) override {
    for (ssize_t done = 0; done < bytes && error_ == 0;) {
      const ssize_t more = ::write(fd_, data + done, size_t(bytes - done));
      if (more >= 0) {
        done += more;
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
    return bytes;
  }
  int error() const { return error_; }  // errno; 0: none

 private:
  int fd_ = -1;
  int error_ = 0;
};

// The cycles that were asked for. A cycle is two units of time: clock low, clock high. What cannot be written ends the
// simulation that is asked for it, by std::runtime_error.
class Waves {
 public:
  template <typename V>
  void begin(VerilatedContext* context, V* v, const WaveOptions& options) {
    options_ = options;
    if (options.file.empty()) return;
    context->traceEverOn(true);
    v->trace(&trace_, 99);
    trace_.open(options.file.c_str());
    require_written();
    PortRules::ending = Verilated::runFlushCallbacks;  // as an assertion does
    waiting_ = true;
  }
  ~Waves() {
    if (!trace_.isOpen()) return;
    const bool told = file_.error() != 0;
    trace_.close();
    if (file_.error() != 0 && !told) fprintf(stderr, "%s\n", problem().c_str());
  }
  void half(uint64_t cycle, unsigned high, uint32_t state) {
    if (waiting_ && (options_.on_state != 0 ? state == options_.on_state : cycle >= options_.from)) {
      waiting_ = false;
      first_ = cycle;
      running_ = true;
    }
    if (!running_) return;
    if (cycle - first_ >= options_.cycles) {
      running_ = false;
      trace_.close();
    } else {
      trace_.dump(2 * cycle + high);
    }
    require_written();
  }

 private:
  std::string problem() const {
    return "cannot write the waveform to " + options_.file + ": " + strerror(file_.error());
  }
  void require_written() const {
    if (file_.error() != 0) throw std::runtime_error(problem());
  }

  WaveOptions options_;
  WaveFile file_;
  VerilatedVcdC trace_{&file_};
  bool waiting_ = false, running_ = false;
  uint64_t first_ = 0;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_WAVES_H_
