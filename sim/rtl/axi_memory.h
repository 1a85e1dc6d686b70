// SPDX-License-Identifier: Apache-2.0
//
// The slave behind one AXI port, without pins: what was accepted, when it is over, what is answered next.
// Bytes move when an access is over, not when it is accepted, so that a tracer that reads a line before its write was
// answered reads the old one.
#ifndef MERAPI_SIM_RTL_AXI_MEMORY_H_
#define MERAPI_SIM_RTL_AXI_MEMORY_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/rtl/simulation.h"
#include "sim/rtl/timing.h"
#include "sim/rtl/window_access.h"
#include "sim/rtl/xorshift.h"

namespace merapi::sim::rtl {

// A window in the memory behind the ports, at its base. A line that lies in none is answered by DECERR.
struct MemoryPart {
  uint64_t base;
  WindowMemory window;
};
using MemoryMap = std::vector<MemoryPart>;

class AxiMemory {
 public:
  enum Response : uint8_t { kOkay = 0, kSlaveError = 2, kDecodeError = 3 };
  struct Read {
    uint32_t id;
    uint8_t response;
    Line line;
  };
  struct Written {
    uint32_t id;
    uint8_t response;
  };

  // Parts may come and go while no access to them is under way.
  AxiMemory(const MemoryMap* parts, Timing* timing, unsigned ports, const SimulationOptions& options)
      : parts_(parts), timing_(timing), options_(options), ports_(ports), random_(~options.seed * 2 + 1) {}

  bool takes_read(unsigned port, uint64_t address) { return timing_->accepts(port, address, false); }
  bool takes_write(unsigned port, uint64_t address) { return timing_->accepts(port, address, true); }
  void read(unsigned port, uint32_t id, uint64_t address) {
    if (address == MERAPI_HOST_INDEX_OFFSET) looks_++;
    if (options_.on_access) options_.on_access(address, false);
    if (options_.on_request) options_.on_request({cycle_, port, id, address, nullptr, 0});
    // The access is over in some dozen cycles: by then the line is in this processor's cache.
    if (const MemoryPart* part = part_of(address)) __builtin_prefetch(part->window.base + (address - part->base));
    start({port, id, address, false, {}, 0});
  }
  void write(unsigned port, uint32_t id, uint64_t address, const Line& line, uint64_t strobe) {
    if (options_.on_access) options_.on_access(address, true);
    if (options_.on_request) options_.on_request({cycle_, port, id, address, &line, strobe});
    start({port, id, address, true, line, strobe});
  }

  void tick() {
    cycle_++;
    finished_.clear();
    timing_->tick(&finished_);
    for (uint32_t token : finished_) finish(token);
  }

  std::deque<Read>& reads(unsigned port) { return ports_[port].reads; }
  std::deque<Written>& written(unsigned port) { return ports_[port].written; }
  uint64_t looks() const { return looks_; }
  AccessCounts counts() const { return counts_; }
  bool take_news() {
    bool news = news_;
    news_ = false;
    return news;
  }

 private:
  struct Access {
    unsigned port;
    uint32_t id;
    uint64_t address;
    bool write;
    Line line;
    uint64_t strobe;
  };
  struct Port {
    std::deque<Read> reads;
    std::deque<Written> written;
  };
  void start(const Access& a) {
    const uint32_t token = add(a);
    if (random_.percent(options_.at_once_percent)) {
      finish(token);
    } else {
      timing_->start(a.port, a.address, a.write, token);
    }
  }
  uint32_t add(const Access& a) {
    if (free_.empty()) {
      accesses_.push_back(a);
      return uint32_t(accesses_.size() - 1);
    }
    uint32_t token = free_.back();
    free_.pop_back();
    accesses_[token] = a;
    return token;
  }
  const MemoryPart* part_of(uint64_t address) const {
    for (const MemoryPart& p : *parts_) {
      if (address >= p.base && address - p.base + 64 <= p.window.bytes) return &p;
    }
    return nullptr;
  }
  void finish(uint32_t token) {
    const Access& a = accesses_[token];
    const MemoryPart* part = part_of(a.address);
    const bool inside = part != nullptr;
    const uint64_t offset = inside ? a.address - part->base : 0;
    uint8_t response = inside ? kOkay : kDecodeError;
    if (a.write) {
      counts_.writes++;
      if (inside && counts_.writes == options_.write_error_at) response = kSlaveError;
      if (a.address == options_.write_error_line) response = options_.error_response;
      if (options_.response_of && response == kOkay) response = options_.response_of(a.address, true);
      if (response == kOkay) {
        bool page = offset < MERAPI_CONTROL_BYTES && !write_failed_;
        if (page && options_.on_page) options_.on_page(part->window.base, offset, a.line);
        write_line(part->window.base, offset, a.line, a.strobe, options_.events);
        if (offset < MERAPI_CONTROL_BYTES) news_ = true;
      } else {
        write_failed_ = true;
      }
      ports_[a.port].written.push_back({a.id, response});
    } else {
      counts_.reads++;
      if (inside && counts_.reads == options_.read_error_at) response = kSlaveError;
      if (a.address == options_.read_error_line) response = options_.error_response;
      if (options_.response_of && response == kOkay) response = options_.response_of(a.address, false);
      Read r{a.id, response, {}};
      if (response == kOkay) read_line(part->window.base + offset, &r.line);
      ports_[a.port].reads.push_back(r);
    }
    free_.push_back(token);
  }

  const MemoryMap* const parts_;
  Timing* const timing_;
  const SimulationOptions options_;
  std::vector<Port> ports_;
  std::vector<Access> accesses_;
  std::vector<uint32_t> free_, finished_;
  AccessCounts counts_;
  uint64_t looks_ = 0, cycle_ = 0;
  Xorshift random_;
  bool news_ = false, write_failed_ = false;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_AXI_MEMORY_H_
