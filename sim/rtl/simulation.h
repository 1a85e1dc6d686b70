// SPDX-License-Identifier: Apache-2.0
//
// A Verilated tracer with memory at its AXI ports: one object per window.
#ifndef MERAPI_SIM_RTL_SIMULATION_H_
#define MERAPI_SIM_RTL_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/rtl/plugin.h"
#include "sim/rtl/timing.h"
#include "sim/rtl/window_access.h"

namespace merapi::sim::rtl {

// What the memory has taken from a port. `line`: what is to be written, with its byte strobes; null for a read.
struct PortRequest {
  uint64_t cycle;
  unsigned port;
  uint32_t id;
  uint64_t address;
  const Line* line;
  uint64_t strobe;
};

// When a port is ready, if it has room. AXI lets who is asked wait for what is offered, and whoever asks may not wait
// for the other to be ready.
enum class Readiness : uint8_t {
  kAlways,
  kAfterValid,  // for what was offered in the cycle before
  kAfterBoth,   // the same, and for either part of a write where both were, or the other has been taken
};

struct SimulationOptions {
  EngineOptions common;
  // Injected errors, for tests: the nth line read (written) answers SLVERR. 0: never.
  uint64_t read_error_at = 0, write_error_at = 0;
  // The line at this window offset answers `error_response` (AXI: 2 SLVERR, 3 DECERR) when it is read (written).
  uint64_t read_error_line = ~uint64_t{0}, write_error_line = ~uint64_t{0};
  uint8_t error_response = 2;
  // The response to an access that is over, by its address; 0: as without this. For tests.
  std::function<uint8_t(uint64_t address, bool write)> response_of;
  // The tracer's own count of events reaches the window.
  bool events = false;
  // Told of every access that a port has accepted, for tests.
  std::function<void(uint64_t address, bool write)> on_access;
  // The same with all that there is to know of it.
  std::function<void(const PortRequest&)> on_request;
  // Told of every address that has left a port, with its id: in the order in which they left, before on_access.
  std::function<void(uint32_t id, uint64_t address, bool write)> on_address;
  // Told of every line of the control page that is about to change, until the write of a line has failed, for tests.
  std::function<void(const uint8_t* window, uint64_t address, const Line& line)> on_page;
  // Responses are withheld with this probability per cycle, for tests.
  uint32_t stall_percent = 0;
  Readiness readiness = Readiness::kAlways;
  // So many of the accesses are over when the memory takes them: as early as in the cycle after they left the tracer.
  uint32_t at_once_percent = 0;
  uint64_t seed = 1;
  // Not 0: what the tracer's memories and those of its registers that have no reset hold at power-up is chosen by this,
  // in a simulation made with --x-initial unique, for tests. Otherwise they are zero.
  uint64_t power_up = 0;
  WaveOptions waves;
};

struct AccessCounts {
  uint64_t reads = 0, writes = 0;  // lines
};

class Simulation {
 public:
  virtual ~Simulation() = default;
  virtual void cycle() = 0;
  // Nothing to do before the host does something (as of the last cycle).
  virtual bool sleeping() const = 0;
  virtual uint32_t state() const = 0;
  virtual uint32_t trace_cycle_id() const = 0;
  virtual uint64_t cycles() const = 0;
  // How often the host's index line was asked for: a look at the host that began after a moment is one counted later.
  virtual uint64_t looks() const = 0;
  virtual AccessCounts accesses() const = 0;
  // Control page lines written since the last call.
  virtual bool take_news() = 0;
  // For tests: turns these bits over in every address, counted in lines, that the live table keeps of a line of the
  // window which it reads and is going to write, as a particle would do to that memory. False where the simulation does
  // not have it by its name (a netlist that was made flat).
  virtual bool upset_live_addresses(uint64_t) { return false; }
};

// Presets that this build contains.
std::vector<std::string> presets();
// These throw std::runtime_error for a preset that is not among presets().
unsigned lanes_of(const std::string& preset);
unsigned ports_of(const std::string& preset);
std::unique_ptr<Simulation> make_simulation(const std::string& preset, const WindowMemory& memory,
                                            std::unique_ptr<Timing> timing, const SimulationOptions& options);

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_SIMULATION_H_
