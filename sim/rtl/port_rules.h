// SPDX-License-Identifier: Apache-2.0
//
// What leaves a port keeps the rules of AXI4, in every cycle of the regression: what was offered stays offered and
// unchanged, no two transactions of one id are outstanding, each is one line. Ends the program, as an assertion of the
// RTL does.
#ifndef MERAPI_SIM_RTL_PORT_RULES_H_
#define MERAPI_SIM_RTL_PORT_RULES_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim/rtl/window_access.h"

namespace merapi::sim::rtl {

class PortRules {
 public:
  static inline void (*ending)() = nullptr;  // what is still to be done when a breach ends the program
  // One of both address channels, with the answers to its transactions.
  class Addresses {
   public:
    explicit Addresses(const char* name) : name_(name) {}
    void offered(bool valid, bool ready, uint32_t id, uint64_t address, bool is_line) {
      if (held_ && !valid) broken(name_, "was withdrawn");
      if (held_ && (id != id_ || address != address_)) broken(name_, "changed");
      if (valid && (!is_line || address % 64 != 0)) broken(name_, "is not one line's");
      held_ = valid && !ready;
      id_ = id;
      address_ = address;
      if (!valid || !ready) return;
      if (id >= open_.size()) open_.resize(id + size_t{1});
      if (open_[id]) broken(name_, "has the id of one that is outstanding");
      open_[id] = true;
    }
    void answered(uint32_t id) { open_[id] = false; }

   private:
    const char* const name_;
    bool held_ = false;
    uint32_t id_ = 0;
    uint64_t address_ = 0;
    std::vector<bool> open_;
  };

  Addresses reads{"a read's address"}, writes{"a write's address"};

  void data(bool valid, bool ready, const void* line, bool whole) {
    if (held_ && !valid) broken("a write's data", "were withdrawn");
    if (held_ && std::memcmp(&data_, line, sizeof data_) != 0) broken("a write's data", "changed");
    if (valid && !whole) broken("a write's data", "are not one line");
    held_ = valid && !ready;
    if (held_) std::memcpy(&data_, line, sizeof data_);
  }

 private:
  [[noreturn]] static void broken(const char* what, const char* how) {
    std::fprintf(stderr, "AXI: %s %s\n", what, how);
    if (ending != nullptr) ending();
    std::abort();
  }
  bool held_ = false;
  Line data_;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_PORT_RULES_H_
