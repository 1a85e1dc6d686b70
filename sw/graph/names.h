// SPDX-License-Identifier: Apache-2.0
//
// Names of the contract's enumerations in lower case, as JSON keys and in tables.
#ifndef MERAPI_GRAPH_NAMES_H_
#define MERAPI_GRAPH_NAMES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace merapi::graph {

using Names = std::vector<std::pair<uint32_t, const char*>>;

const Names& area_names();
const Names& counter_names();
const Names& capability_names();  // bit numbers
// "unknown(7)" when the contract has no such value.
std::string coherence_name(uint32_t value);
std::string state_name(uint32_t value);
std::string fault_name(uint32_t value);
std::string area_name(uint32_t value);
// An address: "0x1f".
std::string hex(uint64_t value);

}  // namespace merapi::graph

#endif  // MERAPI_GRAPH_NAMES_H_
