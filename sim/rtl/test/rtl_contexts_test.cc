// SPDX-License-Identifier: Apache-2.0
//
// Several contexts on one memory (preset sim-pair): each traces as if it were alone, whatever the other does, stays in
// its window, and leaves nothing behind. ContextsMachine judges every access of all of these.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "sim/rtl/test/contexts_machine.h"
#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/seeds.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Mapping;
using merapi::sim::test::Random;
using merapi::sim::test::random_trace;
using merapi::sim::test::TraceKnobs;
using merapi::sim::test::WindowShape;

constexpr const char* kPreset = "sim-pair";
constexpr uint64_t kGranule = MERAPI_MAPPED_ALIGNMENT;
constexpr uint64_t kMemory = uint64_t{1} << 44;
constexpr uint64_t kPatience = 400'000;
constexpr uint32_t kKlass = 0x1000;
constexpr uint64_t kNodeBytes = 64;
const TraceKnobs kQuiet{.pauses = false, .reclaims = false, .aborts = false};

// A tree of nodes a line each, all of it reachable from the first, in random places.
class Tree {
 public:
  Tree(uint32_t nodes, uint64_t seed) : window(WindowShape{}), nodes_(nodes) {
    merapi_shape s{};
    s.klass_word = kKlass;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = 3;
    window.put_shape(s, {{12, 2}});
    window.fill_regions();
    Random random(seed);
    std::vector<uint64_t> at(nodes);
    for (uint32_t i = 0; i < nodes; i++) at[i] = kNodeBytes * (i + 1);
    for (uint32_t i = nodes - 1; i > 0; i--) std::swap(at[i], at[random.below(i + 1)]);
    for (uint32_t i = 0; i < nodes; i++) {
      std::memcpy(window.heap() + at[i] + 8, &kKlass, sizeof kKlass);
      for (uint32_t k = 0; k < 2 && 2 * i + 1 + k < nodes; k++) {
        const uint64_t to = window.shape.heap_base + at[2 * i + 1 + k];
        const uint32_t narrow = uint32_t((to - window.shape.narrow_base) >> window.shape.narrow_shift);
        std::memcpy(window.heap() + at[i] + 12 + 4 * k, &narrow, sizeof narrow);
      }
    }
    root_ = at[0];
  }
  // A new cycle over all of it.
  void start(ContextHost* host) {
    std::memset(window.bitmap(0), 0, window.heap_bytes() / 64);
    window.mark(0, root_);
    host->begin(0);
    host->trace(0, window.shape.regions);
  }
  // Whether every node is marked and nothing else is.
  bool whole() {
    uint64_t found = 0;
    for (uint64_t i = 0; i < window.heap_bytes() / 8 / 64; i++) found += __builtin_popcountll(window.bitmap(0)[i]);
    for (uint64_t i = 1; i <= nodes_; i++) found -= window.marked(0, kNodeBytes * i);
    return found == 0 && window.marked(0, kNodeBytes) && window.marked(0, kNodeBytes * nodes_);
  }
  uint64_t root() const { return root_; }
  Window window;

 private:
  const uint32_t nodes_;
  uint64_t root_ = 0;
};

class RtlContexts : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_contexts(kPreset)) GTEST_SKIP() << "this build has no " << kPreset;
  }
  void make(const RandomTimingOptions& timing = {5, 40, 100, 1}, const SimulationOptions& options = {}) {
    machine_ = std::make_unique<ContextsMachine>(kPreset, timing, options);
  }
  void TearDown() override {
    if (machine_) {
      EXPECT_EQ(machine_->stray(), "");
    }
  }
  // Heaps of `seed` in this context, one after the other, each at another place.
  std::function<void()> traces(unsigned context, uint64_t seed, TraceKnobs knobs, unsigned uses) {
    return [=, this] {
      for (unsigned use = 0; use < uses; use++) {
        const uint64_t own = seed * 100 + context * 10 + use;
        std::string error = random_trace(own, knobs, context_devices(machine_.get(), context));
        EXPECT_EQ(error, "") << "context " << context << ", use " << use;
        if (!error.empty()) return;
      }
    };
  }
  // Both contexts over one random memory for each seed.
  void run_seeds(const TraceKnobs& first, const TraceKnobs& second, unsigned uses = 2) {
    each_seed([&](uint64_t seed) {
      Random r(seed);
      RtlMachineOptions o = choose_machine(kPreset, &r);
      choose_memory(kPreset, seed, &o.simulation);
      make(o.timing, o.simulation);
      machine_->run({traces(0, seed, first, uses), traces(1, seed, second, uses)});
      EXPECT_EQ(machine_->stray(), "");
    });
  }

  std::unique_ptr<ContextsMachine> machine_;
};

TEST_F(RtlContexts, HeapsAtATime) { run_seeds(kQuiet, kQuiet); }
// Every counter of the second has one value: nothing of the first's is counted there.
TEST_F(RtlContexts, PausesAndAbortsOfOne) {
  TraceKnobs once = kQuiet;
  once.once = true;
  run_seeds({}, once);
}
TEST_F(RtlContexts, EverythingOverflowsInBoth) { run_seeds({.no_spill = true}, {.slow_host = true}, 1); }

// A fault of the one, again and again: a command, a ring, the memory's answers. It is told at the offset in the window.
TEST_F(RtlContexts, AFaultStaysWithItsContext) {
  for (uint8_t response : {uint8_t{2}, uint8_t{3}}) {
    Tree tree(400, 1);
    const uint64_t base = 3 * kGranule;
    const uint64_t broken = uint64_t(tree.window.heap() - tree.window.base) + tree.root();
    SimulationOptions options;
    options.read_error_line = base + broken;
    options.error_response = response;
    make({5, 60, 80, response}, options);
    auto faults = [&] {
      ContextHost host(machine_.get(), 0, &tree.window, base);
      ASSERT_TRUE(host.attach());
      for (int round = 0; round < 12; round++) {
        uint32_t code = MERAPI_FAULT_BAD_COMMAND;
        switch (round % 3) {
          case 0:
            code = response == 2 ? MERAPI_FAULT_MEMORY : MERAPI_FAULT_TRUNCATED;
            tree.start(&host);
            break;
          case 1:
            host.begin(0);
            host.trace(tree.window.shape.regions, 1);
            break;
          default:
            code = MERAPI_FAULT_RING_OVERRUN;
            tree.window.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->submission_produced += 1000;
        }
        ASSERT_TRUE(host.run_until([&] { return host.fault().code != 0; }, kPatience)) << "round " << round;
        ASSERT_TRUE(host.run_until([&] { return host.state() == MERAPI_DEVICE_STATE_FAULTED; }, kPatience));
        EXPECT_EQ(host.fault().code, code) << "round " << round;
        if (round % 3 == 0) {
          EXPECT_EQ(host.fault().address, broken);
        }
        // A new generation: the record is that of the next fault.
        const uint64_t odd = host.end_generation();
        host.run(2000);
        host.begin_generation(odd);
        ASSERT_TRUE(host.run_until([&] { return host.generation_answered(); }, kPatience));
      }
    };
    machine_->run({faults, traces(1, response, {}, 2)});
  }
}

// A context whose window is shorter than what lies in it, between the windows of the other: its tracer refuses what is
// beyond, whatever it is asked to do.
TEST_F(RtlContexts, NothingBeyondTheWindowIsTouched) {
  make();
  Tree tree(200, 1), other(200, 2);
  const uint64_t base = 8 * kGranule;
  auto before = tree.window.copy();
  auto confined = [&] {
    ContextHost host(machine_.get(), 0, &tree.window, base);
    for (uint64_t bytes : {uint64_t{1}, uint64_t{64}, uint64_t{0x200}, uint64_t{0x240}, uint64_t{0x27f},
                           uint64_t{0x440}, uint64_t{0x4c0}, uint64_t{0x800}, uint64_t{0xfff}, uint64_t{0x1000}}) {
      const uint64_t odd = host.end_generation();
      machine_->ask(0, base, bytes);
      ASSERT_TRUE(host.run_until([&] { return host.status().open; }, 1000)) << bytes;
      host.begin_generation(odd);
      host.run(25'000);
      if (bytes >= MERAPI_CONTROL_BYTES) {
        EXPECT_TRUE(host.generation_answered());
        EXPECT_EQ(host.fault().code, uint32_t(MERAPI_FAULT_BAD_CONFIG));  // its rings are outside
      }
      ASSERT_TRUE(host.close());
      const uint64_t end = bytes & ~uint64_t{63};
      for (uint64_t at = std::max<uint64_t>(end, 0x400); at < MERAPI_CONTROL_BYTES; at++) {
        ASSERT_EQ(tree.window.base[at], before->base[at]) << at << " with " << bytes << " bytes";
      }
      for (const merapi_area_desc& a : tree.window.layout.area) {
        ASSERT_EQ(std::memcmp(tree.window.base + a.offset, before->base + a.offset, a.size), 0) << a.offset;
      }
    }
  };
  auto traced = [&] {
    ContextHost host(machine_.get(), 1, &other.window, base + tree.window.bytes);
    ASSERT_TRUE(host.attach());
    for (int cycle = 0; cycle < 20; cycle++) {
      other.start(&host);
      ASSERT_TRUE(host.idle_or_fault(kPatience));
      ASSERT_EQ(host.fault().code, 0u);
      ASSERT_TRUE(other.whole());
      host.run(5000);
    }
  };
  machine_->run({confined, traced});
}

// While one asks for all that the memory can give, the other is answered within a few times what it waits alone.
TEST_F(RtlContexts, AFloodLeavesTheOtherItsTurns) {
  for (unsigned flood : {0u, 1u}) {
    make({2, 4, 8, 1});  // an access in a dozen cycles
    Tree tree(4000, 1), quiet(1, 2);
    uint64_t longest[2] = {0, 0};  // alone, and beside the flood
    bool flooded = false;
    auto asker = [&] {
      ContextHost host(machine_.get(), 1 - flood, &quiet.window, (1 - flood) * kMemory / 2);
      ASSERT_TRUE(host.attach());
      host.begin(0);
      auto fences = [&](uint64_t* most) {
        for (int i = 0; i < 40; i++) {
          const uint64_t from = machine_->simulation().cycles();
          host.command(MERAPI_OP_FENCE, 0, uint64_t(i), 0);
          ASSERT_TRUE(host.run_until([&] { return host.complete().size() == 1; }, kPatience));
          *most = std::max(*most, machine_->simulation().cycles() - from);
        }
      };
      host.run(25'000);
      fences(&longest[0]);
      ASSERT_TRUE(host.run_until([&] { return flooded; }, kPatience));
      fences(&longest[1]);
      EXPECT_TRUE(flooded) << "the flood was over too early";
    };
    auto flooder = [&] {
      ContextHost host(machine_.get(), flood, &tree.window, flood * kMemory / 2);
      host.run(80'000);
      ASSERT_TRUE(host.attach());
      tree.start(&host);
      host.run(25'000);
      flooded = true;
      ASSERT_TRUE(host.idle_or_fault(8'000'000));
      flooded = false;
      EXPECT_TRUE(tree.whole());
    };
    machine_->run({asker, flooder});
    EXPECT_LE(longest[1], 4 * longest[0]) << "beside a flood from context " << flood;
    RecordProperty("alone_" + std::to_string(flood), int(longest[0]));
    RecordProperty("beside_" + std::to_string(flood), int(longest[1]));
  }
}

// Two that ask for all they can get get the same.
TEST_F(RtlContexts, TwoFloodsShareTheMemory) {
  make({2, 4, 8, 1});
  Tree trees[2] = {Tree(4000, 1), Tree(4000, 1)};
  uint64_t accesses[2] = {0, 0};
  bool over = false;
  auto flood = [&](unsigned context) {
    return [&, context] {
      ContextHost host(machine_.get(), context, &trees[context].window, context * kMemory / 2);
      ASSERT_TRUE(host.attach());
      host.run(25'000);
      trees[context].start(&host);
      ASSERT_TRUE(host.idle_or_fault(8'000'000));
      if (!over) {
        accesses[0] = machine_->accesses(0);
        accesses[1] = machine_->accesses(1);
      }
      over = true;
      EXPECT_TRUE(trees[context].whole());
    };
  };
  machine_->run({flood(0), flood(1)});
  EXPECT_LT(std::max(accesses[0], accesses[1]), 1.1 * double(std::min(accesses[0], accesses[1])));
}

// A context ends in the middle of anything, and serves another window as soon as it may. Nothing of its former use
// comes after it said that it was free, neither to the old window nor from it; the other context notices nothing.
TEST_F(RtlContexts, EndsAtAnyTimeAndServesAnother) {
  each_seed([&](uint64_t seed) {
    Random r(seed);
    make({1, uint32_t(r.between(30, 400)), uint32_t(r.between(30, 100)), seed});
    auto ends = [&] {
      for (int round = 0; round < 6; round++) {
        Tree tree(1500, seed), next(300, seed + 1);
        ContextHost host(machine_.get(), 0, &tree.window, kGranule * r.below(1000));
        ASSERT_TRUE(host.attach());
        if (r.percent(80)) host.run(20'000);
        if (r.percent(90)) tree.start(&host);
        host.run(r.below(6000));
        // Next to the old one or where it was; asked for at once, or after the context was free.
        const bool again = r.percent(30);
        const uint64_t base = again ? host.base : host.base + tree.window.bytes;
        const bool at_once = r.percent(50);
        if (!at_once || again) {
          ASSERT_TRUE(host.close());
          if (again) machine_->remove(base);
        } else {
          host.leave();
        }
        auto marks = std::vector<uint64_t>(tree.window.bitmap(0), tree.window.bitmap(0) + 2048);
        ContextHost other(machine_.get(), 0, &next.window, base);
        ASSERT_TRUE(other.open());
        if (at_once && !again) std::copy_n(tree.window.bitmap(0), marks.size(), marks.begin());
        ASSERT_TRUE(other.attach());
        next.start(&other);
        ASSERT_TRUE(other.idle_or_fault(kPatience));
        EXPECT_EQ(other.fault().code, 0u) << "round " << round;
        EXPECT_TRUE(next.whole()) << "round " << round;
        EXPECT_EQ(other.counter(MERAPI_COUNTER_OBJECTS_MARKED), 299u);
        EXPECT_TRUE(std::equal(marks.begin(), marks.end(), tree.window.bitmap(0))) << "round " << round;
      }
    };
    machine_->run({ends, traces(1, seed, kQuiet, 2)});
    EXPECT_EQ(machine_->stray(), "");
  });
}

// Windows that break a rule are not served, and nothing is read there; the context serves one that keeps them next.
TEST_F(RtlContexts, WindowsThatBreakARuleAreRefused) {
  make();
  Tree tree(100, 1), other(100, 2);
  const uint64_t base = 16 * kGranule, bytes = tree.window.bytes, there = base + 4 * bytes;
  auto asks = [&] {
    ContextHost host(machine_.get(), 0, &tree.window, base);
    host.run(30'000);  // the other serves its window by then
    struct {
      uint64_t base, bytes;
      bool good;
    } const cases[] = {
        {base + 64, bytes, false},
        {base + kGranule / 2, bytes, false},
        {base + 1, bytes, false},
        {kMemory, bytes, false},
        {kMemory + base, bytes, false},
        {uint64_t{1} << 63, bytes, false},
        {kMemory - kGranule, kGranule + 1, false},
        {kMemory - kGranule, kGranule, true},
        {kMemory - kMemory / 4, kMemory / 4 + 1, false},
        {kMemory - kMemory / 4, kMemory / 4, true},
        {kMemory / 2, (kMemory / 4) + 1, false},  // more than a tracer can address
        {kMemory / 2, ~uint64_t{0}, false},
        {kMemory / 2, uint64_t{1} << 43, false},
        {there, bytes, false},
        {there - bytes, bytes + 1, false},
        {there - bytes, bytes, true},
        {there + bytes, bytes, true},
        {there + bytes - kGranule, bytes, false},
        {there + kGranule, 1, false},
        {there - kGranule, 4 * bytes, false},
        {0, there, true},
        {0, there + 1, false},
        {base, 1, true},
        {0, kMemory / 4, false},
    };
    for (const auto& c : cases) {
      const uint64_t before = machine_->accesses(0);
      machine_->ask(0, c.base, c.bytes);
      host.run(100);
      EXPECT_EQ(host.status().open, c.good) << std::hex << c.base << " " << c.bytes;
      EXPECT_EQ(host.status().refused, !c.good) << std::hex << c.base << " " << c.bytes;
      EXPECT_EQ(host.status().free, !c.good) << std::hex << c.base << " " << c.bytes;
      if (!c.good) {
        EXPECT_EQ(machine_->accesses(0), before);
      }
      machine_->ask(0, 0, 0);
      host.run(1);
      EXPECT_FALSE(host.status().refused) << "nothing is asked for";
      ASSERT_TRUE(host.run_until([&] { return host.status().free; }, 1000));
    }
    ASSERT_TRUE(host.attach());
    tree.start(&host);
    ASSERT_TRUE(host.idle_or_fault(kPatience));
    EXPECT_TRUE(tree.whole());
  };
  auto traced = [&] {
    ContextHost host(machine_.get(), 1, &other.window, there);
    ASSERT_TRUE(host.attach());
    for (int i = 0; i < 20; i++) {
      other.start(&host);
      ASSERT_TRUE(host.idle_or_fault(kPatience));
      ASSERT_TRUE(other.whole());
      host.run(1500);
    }
  };
  machine_->run({asks, traced});
}

// A window goes from one context to the other: not before the last write of the one has been answered.
TEST_F(RtlContexts, AWindowChangesItsContext) {
  make({1, 900, 30, 1});
  Random r(1);
  Tree tree(1500, 1);
  auto host = [&] {
    for (int round = 0; round < 4; round++) {
      const unsigned from = unsigned(round) % 2;
      {
        ContextHost first(machine_.get(), from, &tree.window, 0);
        first.cycle = 2 * uint32_t(round);
        ASSERT_TRUE(first.attach());
        tree.start(&first);
        first.run(20'000 + r.below(20'000));
        machine_->ask(from, 0, 0);
        machine_->ask(1 - from, 0, tree.window.bytes);
        uint64_t refused = 0;
        ASSERT_TRUE(first.run_until(
            [&] {
              refused += machine_->status(1 - from).refused;
              EXPECT_FALSE(machine_->status(1 - from).open && !machine_->status(from).free);
              return machine_->status(1 - from).open;
            },
            kPatience));
        EXPECT_GT(refused, 0u) << "nothing was on its way in round " << round;
        first.leave();
      }
      ContextHost second(machine_.get(), 1 - from, &tree.window, 0);
      second.cycle = 2 * uint32_t(round) + 1;
      ASSERT_TRUE(second.attach());
      tree.start(&second);
      ASSERT_TRUE(second.idle_or_fault(2 * kPatience));
      EXPECT_EQ(second.fault().code, 0u);
      EXPECT_TRUE(tree.whole()) << "round " << round;
    }
  };
  machine_->run({host});
}

// Each says who it is, in its own window.
TEST_F(RtlContexts, EachHasItsIdentity) {
  make();
  auto host = [&](unsigned context) {
    return [&, context] {
      Tree tree(1, 1);
      EngineOptions who;
      who.name = "context " + std::to_string(context);
      who.patience_us = 1000 + context;
      who.pid = 77 + context;
      machine_->simulation().identify(context, who);
      ContextHost host(machine_.get(), context, &tree.window, (1 + context) * 4 * kGranule * 4);
      ASSERT_TRUE(host.attach());
      auto* shown = tree.window.control<merapi_device_identity>(MERAPI_DEVICE_IDENTITY_OFFSET);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(shown->name)), who.name);
      EXPECT_EQ(shown->patience_us, who.patience_us);
      EXPECT_EQ(shown->pid, who.pid);
      EXPECT_EQ(shown->window_bytes, tree.window.bytes);
      host.cycle = 40 + context;
      host.begin(0);
      ASSERT_TRUE(host.run_until([&] { return host.idle(); }, kPatience));
      EXPECT_EQ(host.status().cycle, 41 + context);
      EXPECT_EQ(host.status().state, uint32_t(MERAPI_DEVICE_STATE_IDLE));
      host.request_pause();
      ASSERT_TRUE(host.run_until([&] { return host.pause_acknowledged(); }, kPatience));
      EXPECT_EQ(host.status().state, uint32_t(MERAPI_DEVICE_STATE_PAUSED));
    };
  };
  machine_->run({host(0), host(1)});
}

}  // namespace
}  // namespace merapi::sim::rtl::test
