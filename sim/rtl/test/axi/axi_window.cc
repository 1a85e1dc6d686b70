// SPDX-License-Identifier: Apache-2.0
//
// axi_window SEED FOLDER: a window with a generated heap and the commands of one cycle, as files:
//   window.bin    the window's bytes, asking for a handshake
//   expected.bin  the mark bitmap after the trace, by the naive closure of the model's tests
//   window.json   where things are
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/test/closure.h"
#include "sim/test/heap_maker.h"

namespace {

using namespace merapi::sim::test;

void write(const std::string& path, const uint8_t* from, uint64_t bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(from), std::streamsize(bytes));
  if (!out) throw std::runtime_error("cannot write " + path);
}

void make(uint64_t seed, const std::string& folder) {
  Random random(seed);
  WindowShape shape;
  shape.oop_bytes = random.percent(50) ? 4 : 8;
  shape.klass_bytes = random.percent(50) ? 4 : 8;
  shape.mirror_size_offset = 8 + shape.klass_bytes + 16;
  shape.narrow_base = shape.heap_base - 0x1000;
  shape.regions = 2;
  Window window(shape);
  HeapMaker maker(&window, &random, Topology::kRandom);
  maker.make();
  maker.mark_some(0, 10);

  WindowHost host(&window);
  host.begin_generation(host.end_generation());
  host.begin(0);
  host.trace(0, shape.regions);
  auto* index = window.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  index->submission_produced = 0;  // published when the handshake is over
  write(folder + "/window.bin", window.base, window.bytes);

  ClosureInput in = ClosureInput::of_window(window.base, 0);
  for (uint32_t r = 0; r < shape.regions; r++) in.commanded.insert(r);
  in.answer_object = in.answer_klass = [](uint64_t) { return std::vector<uint64_t>(); };
  Closure want = naive_closure(in);
  std::vector<uint8_t> bits((want.marked.size() + 7) / 8);
  for (size_t i = 0; i < want.marked.size(); i++) {
    if (want.marked[i]) bits[i / 8] |= uint8_t(1u << (i % 8));
  }
  write(folder + "/expected.bin", bits.data(), bits.size());

  nlohmann::json json = {{"bytes", window.bytes},
                         {"produced", host.produced},
                         {"cycle", host.cycle},
                         {"generation", index->generation},
                         {"bitmap", window.layout.area[MERAPI_AREA_BITMAP0].offset},
                         {"completion_entries", shape.completion_entries},
                         {"marked", want.marked_count},
                         {"newly", want.newly_count},
                         {"host_index", MERAPI_HOST_INDEX_OFFSET},
                         {"device_index", MERAPI_DEVICE_INDEX_OFFSET},
                         {"idle_record", MERAPI_IDLE_RECORD_OFFSET},
                         {"fault_record", MERAPI_FAULT_RECORD_OFFSET}};
  std::ofstream out(folder + "/window.json");
  out << json.dump(1) << "\n";
  if (!out) throw std::runtime_error("cannot write " + folder + "/window.json");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "axi_window: expected SEED FOLDER, found " << count - 1 << " arguments\n";
    return 2;
  }
  try {
    make(std::strtoull(arguments[1], nullptr, 0), arguments[2]);
  } catch (const std::exception& e) {
    std::cerr << "axi_window: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
