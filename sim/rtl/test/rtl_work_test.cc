// SPDX-License-Identifier: Apache-2.0
//
// How much the tracer does for fixed heaps: clock cycles, lines, and whatever else it counts, to the last one as
// recorded in records/<preset>.json. A run depends on the design and the seeds alone, so a difference is a change of
// the design: meant (`make record-rtl-work`, and the record's difference is part of the change) or a loss that no check
// of marks can see: a cache that is dropped too often, a wait that is a cycle too long, a line that is fetched twice.
// MERAPI_PRESET as in rtl_test.cc; MERAPI_RECORD_WORK=1 records.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/names.h"
#include "sim/rtl/test/directed_heap.h"
#include "sim/rtl/test/records.h"
#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/seeds.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::TraceKnobs;
using merapi::sim::test::WindowShape;
using nlohmann::json;

// Everything that the tracer has counted, and its clock and memory with it.
json work_of(RtlMachine* machine) {
  json work = {{"clock", machine->simulation->cycles()},
               {"reads", machine->simulation->accesses().reads},
               {"writes", machine->simulation->accesses().writes}};
  for (const auto& [number, name] : merapi::graph::counter_names()) {
    if (uint64_t value = machine->counter(int(number))) work[name] = value;
  }
  return work;
}

void compare_with_record(const std::string& name, const json& found) {
  json record = read_record(chosen_preset()).value_or(json::object());
  if (from_environment("MERAPI_RECORD_WORK", 0) != 0) {
    record[name] = found;
    write_record(chosen_preset(), record);
    return;
  }
  ASSERT_TRUE(record.contains(name)) << "expected " << name << " in " << record_path(chosen_preset())
                                     << "; `make record-rtl-work`";
  const json& recorded = record[name];
  for (const auto& [key, value] : found.items()) {
    EXPECT_EQ(recorded.value(key, uint64_t{0}), value.get<uint64_t>())
        << key << " of " << name << ": recorded (first) and found; when the change is meant: `make record-rtl-work`";
  }
  for (const auto& [key, value] : recorded.items()) {
    EXPECT_TRUE(found.contains(key)) << key << " of " << name << ": recorded " << value << ", found nothing";
  }
}

class RtlWork : public DirectedHeap {
 protected:
  using DirectedHeap::DirectedHeap;
  void compare() {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    compare_with_record(info->name(), work_of(machine_.get()));
  }
  void trace_and_compare() {
    start();
    ASSERT_TRUE(finish());
    ASSERT_EQ(machine_->fault().code, 0u);
    compare();
  }
  // Nodes with two references to anywhere, all in an array.
  void make_graph(uint32_t nodes) {
    make_array(64, nodes);
    for (uint32_t i = 0; i < nodes; i++) {
      make_node(i);
      refer(64 + 16 + 4 * uint64_t{i}, node(i));
      refer(node(i) + 12, node(random_.below(nodes)));
      refer(node(i) + 16, node(random_.below(nodes)));
    }
    window_.mark(0, 64);
  }
  // A list of `nodes`, element i at `place(i)`.
  template <typename F>
  void make_list(uint32_t nodes, F place) {
    for (uint32_t i = 0; i < nodes; i++) {
      make_node(place(i));
      if (i + 1 < nodes) refer(node(place(i)) + 16, node(place(i + 1)));
    }
    window_.mark(0, node(place(0)));
  }
  Random random_{1};
};

TEST_F(RtlWork, List) {
  make_list(3000, [](uint32_t i) { return i; });
  trace_and_compare();
}

TEST_F(RtlWork, ListOfAnyOrder) {
  const uint32_t nodes = 1000;
  std::vector<uint32_t> places(nodes);
  for (uint32_t i = 0; i < nodes; i++) places[i] = i, std::swap(places[i], places[random_.below(i + 1)]);
  make_list(nodes, [&](uint32_t i) { return places[i]; });
  trace_and_compare();
}

TEST_F(RtlWork, Tree) {
  const uint32_t nodes = 4095;
  for (uint32_t i = 0; i < nodes; i++) {
    make_node(i);
    for (uint32_t k = 0; k < 2 && 2 * i + 1 + k < nodes; k++) refer(node(i) + 12 + 4 * k, node(2 * i + 1 + k));
  }
  window_.mark(0, node(0));
  trace_and_compare();
}

TEST_F(RtlWork, Graph) {
  make_graph(4000);
  trace_and_compare();
}

TEST_F(RtlWork, Arrays) {
  const uint32_t arrays = 12, length = 700;
  for (uint32_t a = 0; a < arrays; a++) {
    const uint64_t at = 64 + a * 4096;
    make_array(at, length);
    for (uint32_t i = 0; i < length; i += 1 + a) {
      const uint64_t n = random_.below(2000);
      make_node(n);
      refer(at + 16 + 4 * uint64_t{i}, node(n));
    }
    window_.mark(0, at);
  }
  trace_and_compare();
}

// More klasses than a small shape cache holds; every third is one that the host scans, every fifth has no shape.
TEST_F(RtlWork, Klasses) {
  const uint32_t klasses = 150, each = 5;
  make_array(64, klasses * each);
  for (uint32_t k = 0; k < klasses; k++) {
    merapi_shape s{};
    s.klass_word = 0x10000 + 8 * k;
    s.kind = k % 3 == 0 ? MERAPI_SHAPE_KIND_HOST : MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = kNodeBytes / 8;
    if (k % 5 != 0) window_.put_shape(s);
    for (uint32_t i = 0; i < each; i++) {
      klass(node(k * each + i), s.klass_word);
      refer(64 + 16 + 4 * uint64_t{i * klasses + k}, node(k * each + i));
    }
  }
  window_.mark(0, 64);
  trace_and_compare();
}

// Six blocks of references: four of them in the shape, two behind its extension.
TEST_F(RtlWork, ManyBlocks) {
  merapi_shape s{};
  s.klass_word = 0x5000;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = 30;
  std::vector<merapi_ref_block> blocks;
  for (uint32_t i = 0; i < 6; i++) blocks.push_back({16 + 32 * i, 1 + i});
  window_.put_shape(s, blocks);
  const uint32_t objects = 300;
  auto at = [](uint32_t i) { return 64 + 240 * uint64_t{i}; };
  for (uint32_t i = 0; i < objects; i++) {
    klass(at(i), s.klass_word);
    for (const merapi_ref_block& b : blocks) refer(at(i) + b.offset, at(uint32_t(random_.below(objects))));
  }
  window_.mark(0, at(0));
  trace_and_compare();
}

TEST_F(RtlWork, Pauses) {
  make_graph(4000);
  start();
  for (int i = 0; i < 8 && !machine_->idle(); i++) {
    machine_->run(700 + 100 * uint64_t(i));
    machine_->request_pause();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->pause_acknowledged(); }, kPatience));
    machine_->resume();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->resume_acknowledged(); }, kPatience));
    machine_->complete();
  }
  ASSERT_TRUE(finish());
  compare();
}

TEST_F(RtlWork, Aborts) {
  make_graph(3000);
  start();
  for (int i = 0; i < 4; i++) {
    machine_->run(300 + 500 * uint64_t(i));
    machine_->abort();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->abort_acknowledged(); }, kPatience));
    machine_->complete();
    machine_->begin(0);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
  }
  ASSERT_TRUE(finish());
  compare();
}

// Marks all over the heap, commanded region by region, references of the host and a bitmap to be cleared among them.
TEST_F(RtlWork, Commands) {
  make_graph(3000);
  for (uint32_t i = 0; i < 3000; i += 17) window_.mark(0, node(i));
  machine_ = std::make_unique<RtlMachine>(&window_, options_);
  ASSERT_TRUE(machine_->attach());
  machine_->run(kPowerUp);
  machine_->begin(0);
  for (uint32_t r = 0; r < window_.shape.regions; r++) {
    machine_->trace(r, 1);
    std::vector<uint64_t> some(1 + random_.below(MERAPI_ENTRY_WORDS));
    for (uint64_t& a : some) a = window_.shape.heap_base + node(random_.below(3000));
    machine_->grey(some);
    machine_->command(r % 2 == 0 ? MERAPI_OP_FENCE : MERAPI_OP_NOP, 0, r, 0);
  }
  machine_->command(MERAPI_OP_CLEAR_BITMAP, 1, 0, window_.shape.regions);
  ASSERT_TRUE(finish());
  compare();
}

// A spill area of a few lines: greys are dropped and chunks swept again.
class RtlWorkSmallSpill : public RtlWork {
 protected:
  static WindowShape small_spill() {
    WindowShape s = directed_shape();
    s.spill_bytes = 4096;
    return s;
  }
  RtlWorkSmallSpill() : RtlWork(small_spill()) {}
};
TEST_F(RtlWorkSmallSpill, GreysDropped) {
  make_graph(is_small() ? 12'000 : 90'000);
  trace_and_compare();
  EXPECT_GT(machine_->counter(MERAPI_COUNTER_GREYS_DROPPED), 0u) << "not what is tested";
}

// Every layout and shape kind, random memory, rings left full, pauses, aborts: runs of RtlTrace.
TEST(RtlWorkRandom, Traces) {
  const std::vector<std::pair<std::string, TraceKnobs>> kinds = {
      {"Plain", {.pauses = false, .reclaims = false, .aborts = false}},
      {"PausesWithReclaim", {.aborts = false}},
      {"RegionsFall", {.reclaims = false, .falls = true, .aborts = false}},
      {"Aborts", {}},
      {"Drops", {.no_spill = true}},
      {"SlowHost", {.slow_host = true}},
  };
  for (const auto& [kind, knobs] : kinds) {
    for (uint64_t seed = 1; seed <= 2; seed++) {
      const std::string name = "Random" + kind + std::to_string(seed);
      auto at_end = [&](RtlMachine* machine) { compare_with_record(name, work_of(machine)); };
      EXPECT_EQ(merapi::sim::test::random_trace(seed, knobs, rtl_devices(chosen_preset(), {.at_end = at_end})), "")
          << name;
    }
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
