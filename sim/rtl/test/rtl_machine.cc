// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/rtl_machine.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace merapi::sim::rtl::test {

RtlMachine::RtlMachine(Window* w, const RtlMachineOptions& o) : window(*w) {
  SimulationOptions s = o.simulation;
  s.common.name = "merapi-rtl";
  simulation = make_simulation(o.preset, {w->base, w->bytes}, make_random_timing(o.timing), s);
}

void RtlMachine::run(uint64_t cycles) {
  for (uint64_t i = 0; i < cycles; i++) simulation->cycle();
}

bool RtlMachine::attach(uint64_t most) {
  uint64_t odd = host()->generation | 1;
  host()->generation = odd;
  run(2000);
  std::memset(request(), 0, sizeof *request());
  host()->submission_produced = 0;
  host()->completion_consumed = 0;
  std::memset(window.area(MERAPI_AREA_COMPLETION), 0, window.layout.area[MERAPI_AREA_COMPLETION].size);
  produced = consumed = 0;
  host()->generation = odd + 1;
  return run_until([&] { return index()->generation == odd + 1; }, most);
}

bool RtlMachine::room() const { return produced - index()->submission_consumed < window.shape.submission_entries; }

void RtlMachine::submit(merapi_submission e) {
  if (!room()) throw std::runtime_error("submission ring full");
  e.sequence = uint32_t(produced + 1);
  auto* ring = reinterpret_cast<merapi_submission*>(window.area(MERAPI_AREA_SUBMISSION));
  ring[produced % window.shape.submission_entries] = e;
  host()->submission_produced = ++produced;
  host()->doorbell++;
}

void RtlMachine::begin(uint32_t bitmap) {
  cycle++;
  command(MERAPI_OP_BEGIN_CYCLE, bitmap, 0, 0);
}

void RtlMachine::command(uint8_t opcode, uint32_t arg, uint64_t first, uint64_t count) {
  merapi_submission e{};
  e.opcode = opcode;
  e.arg = arg;
  e.payload[0] = first;
  e.payload[1] = count;
  e.cycle = cycle;
  submit(e);
}

void RtlMachine::grey(const std::vector<uint64_t>& references) {
  merapi_submission e{};
  e.opcode = MERAPI_OP_GREY;
  e.count = uint16_t(references.size());
  for (size_t j = 0; j < references.size(); j++) e.payload[j] = references[j];
  e.cycle = cycle;
  submit(e);
}

std::vector<merapi_completion> RtlMachine::complete(size_t count) {
  std::vector<merapi_completion> out;
  auto* ring = reinterpret_cast<merapi_completion*>(window.area(MERAPI_AREA_COMPLETION));
  while (consumed != index()->completion_produced && out.size() < count) {
    out.push_back(ring[consumed % window.shape.completion_entries]);
    if (out.back().sequence != uint32_t(consumed + 1)) throw std::runtime_error("a completion is torn");
    consumed++;
  }
  host()->completion_consumed = consumed;
  return out;
}

bool RtlMachine::idle() const {
  auto* r = window.control<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
  return r->idle == 1 && r->cycle == cycle && r->consumed == produced && r->produced == consumed;
}

const merapi_fault_record& RtlMachine::fault() const {
  return *window.control<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET);
}
uint32_t RtlMachine::state() const { return index()->state; }
uint64_t RtlMachine::counter(int which) const {
  return window.control<merapi_counters>(MERAPI_COUNTERS_OFFSET)->value[which];
}
void RtlMachine::request_pause() { request()->pause++; }
bool RtlMachine::pause_acknowledged() const { return ack()->pause == request()->pause; }
void RtlMachine::resume() { request()->resume = request()->pause; }
bool RtlMachine::resume_acknowledged() const { return ack()->resume == request()->resume; }
void RtlMachine::abort() {
  request()->abort++;
  request()->resume = request()->pause;
}
bool RtlMachine::abort_acknowledged() const { return ack()->abort == request()->abort; }

uint32_t RtlMachine::fault_after(uint64_t most) {
  run_until([&] { return fault().code != 0; }, most);
  return fault().code;
}

}  // namespace merapi::sim::rtl::test
