// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/contexts_machine.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "sim/rtl/test/area_counter.h"
#include "sim/rtl/test/page_check.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::DevicePromises;
using merapi::sim::test::Random;
using merapi::sim::test::TracedDevice;
using merapi::sim::test::TraceKnobs;
using merapi::sim::test::WindowHost;

// In cycles: what needs the memory alone is over by then, also when another context keeps it busy.
constexpr uint64_t kPatience = 400'000;
// log2 of the part of the memory that a context's windows lie in.
constexpr unsigned kShareLog2 = 43;

}  // namespace

ContextsMachine::ContextsMachine(const std::string& preset, const RandomTimingOptions& timing,
                                 const SimulationOptions& options) {
  SimulationOptions o = options;
  o.events = true;
  o.on_page = check_page_write;
  o.on_address = [this](uint32_t id, uint64_t address, bool write) { judge(id, address, write); };
  simulation_ = make_contexts_simulation(preset, make_random_timing(timing), o);
  contexts_.resize(simulation_->contexts());
}

void ContextsMachine::run(const std::vector<std::function<void()>>& hosts) {
  std::vector<std::thread> threads;
  std::exception_ptr thrown;
  alive_ = hosts.size();
  for (const auto& host : hosts) {
    threads.emplace_back([&, host] {
      std::exception_ptr mine;
      try {
        host();
      } catch (...) {
        mine = std::current_exception();
      }
      std::lock_guard hold(lock_);
      if (mine) thrown = mine;
      alive_--;
      changed_.notify_all();
    });
  }
  {
    std::unique_lock hold(lock_);
    for (;;) {
      changed_.wait(hold, [&] { return waiting_.size() == alive_; });
      if (alive_ == 0) break;
      bool over = false;
      while (!over) {
        cycle();
        for (Waiting* w : waiting_) {
          w->left--;
          w->held = (*w->done)();
          w->over = w->held || w->left == 0;
          over = over || w->over;
        }
      }
      std::erase_if(waiting_, [](const Waiting* w) { return w->over; });
      changed_.notify_all();
    }
  }
  for (std::thread& t : threads) t.join();
  if (thrown) std::rethrow_exception(thrown);
}

bool ContextsMachine::wait(uint64_t cycles, const std::function<bool()>& done) {
  if (done()) return true;
  if (cycles == 0) return false;
  Waiting w{cycles, &done};
  std::unique_lock hold(lock_);
  waiting_.push_back(&w);
  changed_.notify_all();
  changed_.wait(hold, [&] { return w.over; });
  return w.held;
}

void ContextsMachine::place(uint64_t base, Window* window) {
  std::lock_guard hold(lock_);
  simulation_->memory()->push_back({base, {window->base, window->bytes}});
}

void ContextsMachine::remove(uint64_t base) {
  std::lock_guard hold(lock_);
  std::erase_if(*simulation_->memory(), [&](const MemoryPart& p) { return p.base == base; });
}

void ContextsMachine::ask(unsigned context, uint64_t base, uint64_t bytes) {
  contexts_[context].base = base;
  contexts_[context].bytes = bytes;
  simulation_->ask(context, base, bytes);
}

void ContextsMachine::cycle() {
  simulation_->cycle();
  for (unsigned i = 0; i < contexts_.size(); i++) {
    Context& c = contexts_[i];
    const ContextStatus s = simulation_->status(i);
    if (s.open && !c.served) {
      c.served = true;
      c.served_base = c.base;
      c.served_bytes = c.bytes;
    }
    if (s.free) c.served = false;
  }
}

void ContextsMachine::judge(uint32_t id, uint64_t address, bool write) {
  const unsigned context = simulation_->ids().context(id, write);
  const Context* c = context < contexts_.size() ? &contexts_[context] : nullptr;
  if (c != nullptr && c->served && address >= c->served_base && address - c->served_base + 64 <= c->served_bytes) {
    contexts_[context].accesses++;
    if (c->told) c->told(address - c->served_base, write);
    return;
  }
  if (!stray_.empty()) return;
  std::ostringstream text;
  text << (write ? "write" : "read") << " of context " << context << " at " << std::hex << address;
  if (c != nullptr && c->served) {
    text << ", served are " << c->served_bytes << " bytes from " << c->served_base;
  } else {
    text << ", which serves no window";
  }
  stray_ = text.str();
}

ContextHost::ContextHost(ContextsMachine* m, unsigned c, Window* w, uint64_t b)
    : WindowHost(w), machine(*m), context(c), base(b) {
  machine.place(base, w);
}

ContextHost::~ContextHost() {
  if (mine_) close();
  machine.remove(base);
}

bool ContextHost::open() {
  machine.ask(context, base, window.bytes);
  mine_ = true;
  run(1);  // from then on what the context says is about that
  return run_until([&] { return status().open; }, kPatience);
}

bool ContextHost::close() {
  machine.ask(context, 0, 0);
  mine_ = false;
  run(1);
  return run_until([&] { return status().free; }, kPatience);
}

bool ContextHost::attach() {
  uint64_t odd = end_generation();
  if (!open()) return false;
  begin_generation(odd);
  return run_until([&] { return generation_answered(); }, kPatience);
}

bool ContextHost::idle_or_fault(uint64_t most) {
  return run_until(
      [&] {
        complete();
        return idle() || fault().code != 0;
      },
      most);
}

uint64_t choose_base(unsigned context, uint64_t bytes, Random* r) {
  const uint64_t share = uint64_t{1} << kShareLog2;
  const uint64_t rest = (share - bytes) / MERAPI_MAPPED_ALIGNMENT;
  uint64_t at = 0;
  if (r->percent(33)) {
    at = context % 2 == 0 ? rest : 0;  // with the next one's at their border
  } else {
    at = r->below(rest + 1) >> r->below(20);
  }
  return context * share + at * MERAPI_MAPPED_ALIGNMENT;
}

namespace {

class ContextDevice : public TracedDevice {
 public:
  ContextDevice(ContextsMachine* machine, unsigned context, Window* window, Random* r)
      : counter_(window), host_(machine, context, window, choose_base(context, window->bytes, r)) {
    machine->watch(context, [this](uint64_t offset, bool write) { counter_.count(offset, write); });
  }
  ~ContextDevice() override { host_.machine.watch(host_.context, {}); }
  WindowHost& host() override { return host_; }
  bool attach() override { return host_.attach(); }
  void advance(Random* r) override { host_.run(r->percent(80) ? r->between(1, 100) : r->between(100, 3000)); }
  bool settle(const std::function<bool()>& done) override { return host_.run_until(done, kPatience); }
  DevicePromises promises() const override {
    return {.follows_ahead = true, .counts_events = true, .counts_leaves = true};
  }
  const merapi::sim::test::AreaAccesses* accesses() const override { return &counter_.counts(); }
  void begin_count(uint32_t bitmap) override { counter_.begin(bitmap); }
  uint64_t clock() const override { return host_.machine.simulation().cycles(); }
  uint64_t most_turns() const override { return 400'000; }

 private:
  AreaCounter counter_;
  ContextHost host_;
};

}  // namespace

merapi::sim::test::DeviceMaker context_devices(ContextsMachine* machine, unsigned context) {
  return [machine, context](Window* window, Random* r, const TraceKnobs& knobs) -> std::unique_ptr<TracedDevice> {
    if (knobs.no_spill) window->directory()->area[MERAPI_AREA_SPILL] = {0, 0};
    return std::make_unique<ContextDevice>(machine, context, window, r);
  };
}

}  // namespace merapi::sim::rtl::test
