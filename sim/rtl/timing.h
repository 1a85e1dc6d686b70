// SPDX-License-Identifier: Apache-2.0
//
// When a memory answers. The bytes themselves are the window's; a timing only says after how many cycles of the tracer
// each access is over and whether a port takes another one now.
#ifndef MERAPI_SIM_RTL_TIMING_H_
#define MERAPI_SIM_RTL_TIMING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace merapi::sim::rtl {

class Timing {
 public:
  virtual ~Timing() = default;
  // Is there room for an access at this port?
  virtual bool accepts(unsigned port, uint64_t address, bool write) = 0;
  // Start an access; `token` comes back from finished(). Only after accepts().
  virtual void start(unsigned port, uint64_t address, bool write, uint32_t token) = 0;
  // One cycle of the tracer passes; tokens that are over are appended, in any order.
  virtual void tick(std::vector<uint32_t>* finished) = 0;
  // Text for reports.
  virtual std::string name() const = 0;
};

// Answers after a random number of cycles within [least, most], out of order; takes accesses with probability
// `accept_percent`. With least == most and 100 percent: a perfect memory.
struct RandomTimingOptions {
  uint32_t least = 10, most = 10;
  uint32_t accept_percent = 100;
  uint64_t seed = 1;
};
std::unique_ptr<Timing> make_random_timing(const RandomTimingOptions& options);

// DRAMsim3: one memory system per port, made from `config`, one of its .ini files for a single channel. Addresses are
// dealt to ports in turns of 2^interleave_log2 bytes; what a port sees is its own share without gaps.
struct DramOptions {
  unsigned ports = 1;
  unsigned interleave_log2 = 8;
  double clock_mhz = 250;  // of the tracer
};
std::unique_ptr<Timing> make_dram_timing(const std::string& config, const DramOptions& options);

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_TIMING_H_
