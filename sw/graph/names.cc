// SPDX-License-Identifier: Apache-2.0
#include "graph/names.h"

#include <cstdio>

namespace merapi::graph {
namespace {

#include "contract_names.inc"

std::string name_in(const Names& names, uint32_t value) {
  for (const auto& [number, name] : names)
    if (number == value) return name;
  return "unknown(" + std::to_string(value) + ")";
}

}  // namespace

const Names& area_names() { return kAREA; }
const Names& counter_names() { return kCOUNTER; }
const Names& capability_names() { return kCAP; }
std::string coherence_name(uint32_t value) { return name_in(kCOHERENCE, value); }
std::string state_name(uint32_t value) { return name_in(kDEVICE_STATE, value); }
std::string fault_name(uint32_t value) { return name_in(kFAULT, value); }
std::string area_name(uint32_t value) { return name_in(kAREA, value); }

std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace merapi::graph
