// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/late_timing.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace merapi::sim::rtl::test {
namespace {

class LateTiming : public Timing {
 public:
  LateTiming(std::unique_ptr<Timing> inner, Lateness late) : inner_(std::move(inner)), late_(std::move(late)) {}

  bool accepts(unsigned port, uint64_t address, bool write) override { return inner_->accepts(port, address, write); }
  void start(unsigned port, uint64_t address, bool write, uint32_t token) override {
    accesses_[token] = {address, write};
    inner_->start(port, address, write, token);
  }
  void tick(std::vector<uint32_t>* finished) override {
    now_++;
    over_.clear();
    inner_->tick(&over_);
    for (uint32_t token : over_) {
      const Access& a = accesses_.at(token);
      waiting_.emplace(now_ + late_(now_, a.address, a.write), token);
    }
    while (!waiting_.empty() && waiting_.begin()->first <= now_) {
      finished->push_back(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
  }
  std::string name() const override { return inner_->name() + ", some of it late"; }

 private:
  struct Access {
    uint64_t address;
    bool write;
  };
  const std::unique_ptr<Timing> inner_;
  const Lateness late_;
  uint64_t now_ = 0;
  std::vector<uint32_t> over_;
  std::unordered_map<uint32_t, Access> accesses_;  // by token
  std::multimap<uint64_t, uint32_t> waiting_;      // tokens by the cycle in which they are over
};

}  // namespace

std::unique_ptr<Timing> make_late_timing(std::unique_ptr<Timing> inner, const Lateness& late) {
  return std::make_unique<LateTiming>(std::move(inner), late);
}

}  // namespace merapi::sim::rtl::test
