// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/timing.h"

#include <algorithm>

#include "sim/rtl/xorshift.h"

namespace merapi::sim::rtl {
namespace {

class RandomTiming : public Timing {
 public:
  explicit RandomTiming(const RandomTimingOptions& o)
      : o_(o), random_(o.seed * 2 + 1), over_(std::size_t(std::max({o.least, o.most, 1U})) + 1) {}

  bool accepts(unsigned, uint64_t, bool) override {
    return o_.accept_percent >= 100 || random_.next() % 100 < o_.accept_percent;
  }
  void start(unsigned, uint64_t, bool, uint32_t token) override {
    const uint64_t wait = o_.least + (o_.most > o_.least ? random_.next() % (o_.most - o_.least + 1) : 0);
    over_[(now_ + std::max<uint64_t>(wait, 1)) % over_.size()].push_back(token);
  }
  void tick(std::vector<uint32_t>* finished) override {
    now_++;
    std::vector<uint32_t>& now = over_[now_ % over_.size()];
    finished->insert(finished->end(), now.begin(), now.end());
    now.clear();
  }
  std::string name() const override { return "ideal"; }

 private:
  const RandomTimingOptions o_;
  Xorshift random_;
  uint64_t now_ = 0;
  std::vector<std::vector<uint32_t>> over_;  // accesses by the cycle in which they are over, in turn
};

}  // namespace

std::unique_ptr<Timing> make_random_timing(const RandomTimingOptions& options) {
  return std::make_unique<RandomTiming>(options);
}

}  // namespace merapi::sim::rtl
