// SPDX-License-Identifier: Apache-2.0
//
// What a host expects of DONE (docs/contract.md, commands): one for each command that has an answer, in order.
#ifndef MERAPI_SIM_TEST_ANSWERS_H_
#define MERAPI_SIM_TEST_ANSWERS_H_

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "merapi/contract.h"

namespace merapi::sim::test {

class Answers {
 public:
  // Submission `index` will be answered if its command is one that is.
  void expect(uint64_t index, const merapi_submission& command) {
    const bool answered = command.opcode == MERAPI_OP_TRACE_REGION || command.opcode == MERAPI_OP_FENCE ||
                          command.opcode == MERAPI_OP_CLEAR_BITMAP;
    if (answered) expected_.push_back({index, command});
  }
  // What is wrong with this DONE, empty when nothing is; then it is that of `command`.
  std::string take(const merapi_completion& done, merapi_submission* command = nullptr) {
    if (expected_.empty()) return "unexpected DONE; ";
    const auto [index, e] = expected_.front();
    expected_.pop_front();
    if (done.arg != e.opcode || done.payload[0] != index || done.payload[1] != e.arg ||
        done.payload[2] != e.payload[0] || done.cycle != e.cycle) {
      return "DONE of " + std::to_string(done.payload[0]) + ", expected " + std::to_string(index) + "; ";
    }
    if (command != nullptr) *command = e;
    return "";
  }
  bool none_missing() const { return expected_.empty(); }
  bool waits_for(uint8_t opcode) const {
    return std::any_of(expected_.begin(), expected_.end(), [=](auto& e) { return e.second.opcode == opcode; });
  }
  // After an abort or a handshake nothing is owed.
  void forget() { expected_.clear(); }

 private:
  std::deque<std::pair<uint64_t, merapi_submission>> expected_;  // by index
};

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_ANSWERS_H_
