// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/timing.h"

#include <deque>
#include <queue>

namespace merapi::sim::rtl {
namespace {

class RandomTiming : public Timing {
 public:
  explicit RandomTiming(const RandomTimingOptions& o) : o_(o), state_(o.seed * 2 + 1) {}

  bool accepts(unsigned, uint64_t, bool) override {
    return o_.accept_percent >= 100 || next() % 100 < o_.accept_percent;
  }
  void start(unsigned, uint64_t, bool, uint32_t token) override {
    if (o_.least >= o_.most) {
      in_order_.push_back({now_ + o_.least, 0, token});
      return;
    }
    waiting_.push({now_ + o_.least + next() % (o_.most - o_.least + 1), order_++, token});
  }
  void tick(std::vector<uint32_t>* finished) override {
    now_++;
    while (!in_order_.empty() && in_order_.front().at <= now_) {
      finished->push_back(in_order_.front().token);
      in_order_.pop_front();
    }
    while (!waiting_.empty() && waiting_.top().at <= now_) {
      finished->push_back(waiting_.top().token);
      waiting_.pop();
    }
  }
  std::string name() const override { return "ideal"; }

 private:
  struct Access {
    uint64_t at, order;
    uint32_t token;
    bool operator<(const Access& b) const { return at != b.at ? at > b.at : order > b.order; }
  };
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 11;
  }
  const RandomTimingOptions o_;
  uint64_t state_;
  uint64_t now_ = 0, order_ = 0;
  std::deque<Access> in_order_;  // where all wait equally long
  std::priority_queue<Access> waiting_;
};

}  // namespace

std::unique_ptr<Timing> make_random_timing(const RandomTimingOptions& options) {
  return std::make_unique<RandomTiming>(options);
}

}  // namespace merapi::sim::rtl
