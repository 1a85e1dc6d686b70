// SPDX-License-Identifier: Apache-2.0
#include "sim/test/rogue/faults.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace merapi::rogue {
namespace {

using sim::load;
using sim::store;

void nap(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// ------------------------------------------------------------ handshakes

merapi_device_identity identity(Target& t) {
  merapi_device_identity who{};
  who.magic = MERAPI_DEVICE_MAGIC;
  who.version_major = MERAPI_VERSION_MAJOR;
  who.version_minor = MERAPI_VERSION_MINOR;
  who.capabilities = 1u << MERAPI_CAP_SCOPE_HEAP | 1u << MERAPI_CAP_DOORBELL;
  who.kind = MERAPI_DEVICE_KIND_MODEL;
  who.coherence = MERAPI_COHERENCE_COHERENT;
  who.lanes = 1;
  who.patience_us = MERAPI_PATIENCE_HARDWARE_US;
  who.pid = static_cast<uint64_t>(getpid());
  who.window_bytes = t.window_bytes();
  std::memcpy(who.name, "rogue", 5);
  return who;
}

void answer(Target& t, const merapi_device_identity& who, uint64_t consumed = 0) {
  std::memcpy(t.control.device, &who, sizeof who);
  std::memset(t.control.ack, 0, sizeof *t.control.ack);
  std::memset(t.control.idle, 0, sizeof *t.control.idle);
  std::memset(t.control.fault, 0, sizeof *t.control.fault);
  store(t.control.index->submission_consumed, consumed);
  store(t.control.index->completion_produced, uint64_t{0});
  store(t.control.index->generation, load(t.control.host->generation));
  t.notify();
}

void silent(Target&) {}

void wrong_version(Target& t) {
  merapi_device_identity who = identity(t);
  who.version_major = MERAPI_VERSION_MAJOR + 1;
  answer(t, who);
}

void foreign_magic(Target& t) {
  merapi_device_identity who = identity(t);
  who.magic = 0x6B6E754A;
  answer(t, who);
}

void non_coherent(Target& t) {
  merapi_device_identity who = identity(t);
  who.coherence = MERAPI_COHERENCE_NON_COHERENT;
  answer(t, who);
}

void small_window(Target& t) {
  merapi_device_identity who = identity(t);
  who.window_bytes = t.window_bytes() / 2;
  answer(t, who);
}

void dirty_rings(Target& t) { answer(t, identity(t), 7); }

void endless_patience(Target& t) {
  merapi_device_identity who = identity(t);
  who.patience_us = UINT32_MAX;
  answer(t, who);
}

void no_heap_scope(Target& t) {
  merapi_device_identity who = identity(t);
  who.capabilities &= ~(uint64_t{1} << MERAPI_CAP_SCOPE_HEAP);
  answer(t, who);
}

// ----------------------------------------------------------------- traces

void die(Target&) { kill(getpid(), SIGKILL); }
void stop(Target&) { raise(SIGSTOP); }
void nothing(Target&) {}

void garbage_bytes(Target& t) {
  uint64_t at = t.produced();
  for (uint64_t i = 0; i < 8; i++) {
    uint64_t words[8];
    for (uint64_t& word : words) word = t.random();
    merapi_completion entry;
    std::memcpy(&entry, words, sizeof entry);
    t.write(at + i, entry, entry.sequence);
  }
  t.publish(at + 8);
}

void garbage_type(Target& t) { t.push(t.entry(0x7F, t.random())); }

void too_many_words(Target& t) {
  merapi_completion entry = t.entry(MERAPI_COMP_DEFER, t.unmarked());
  entry.count = MERAPI_ENTRY_WORDS + 1;
  t.push(entry);
}

void duplicate(Target& t) {
  t.push(t.harmless());
  uint64_t at = t.produced();
  t.write(at, t.harmless(), static_cast<uint32_t>(at));
  t.publish(at + 1);
}

void swapped(Target& t) {
  uint64_t at = t.produced();
  t.write(at, t.harmless(), static_cast<uint32_t>(at + 2));
  t.write(at + 1, t.harmless(), static_cast<uint32_t>(at + 1));
  t.publish(at + 2);
}

void torn(Target& t) { t.publish(t.produced() + 1); }

void index_back(Target& t) {
  for (int i = 0; i < 4; i++) t.push(t.harmless());
  nap(20);  // long enough for the host to have seen them
  t.publish(t.produced() - 3);
}

void index_far(Target& t) { t.publish(t.produced() + t.ring_entries() + 1); }

void consumed_far(Target& t) {
  store(t.control.index->submission_consumed, load(t.control.host->submission_produced) + (uint64_t{1} << 20));
}

void defer_unmarked(Target& t) { t.push(t.entry(MERAPI_COMP_DEFER, t.unmarked())); }

void defer_outside(Target& t) {
  t.push(t.entry(MERAPI_COMP_DEFER, t.geometry().heap_base + t.geometry().heap_bytes + 64));
}

void defer_misaligned(Target& t) { t.push(t.entry(MERAPI_COMP_DEFER, t.unmarked() + 1)); }

void defer_inside(Target& t) { t.push(t.entry(MERAPI_COMP_DEFER, t.inside())); }

void defer_marked(Target& t) {
  const uint64_t address = t.inside();
  t.mark(address);
  t.push(t.entry(MERAPI_COMP_DEFER, address));
}

// Of narrow klass words the next one is of the place 8 bytes into that class.
void defer_no_klass(Target& t) {
  const uint64_t address = t.inside(1);
  t.mark(address);
  t.push(t.entry(MERAPI_COMP_DEFER, address));
}

void shape_unknown(Target& t) { t.push(t.entry(MERAPI_COMP_SHAPE_SEEN, 0xFFFFFFF1)); }

// Keeps the ring full for a while, as fast as the host drains it, and reports a fault then: the host must have gone on
// draining, or it would not read of it.
void flood(Target& t) {
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) {
    t.chat();
    uint32_t pause = load(t.control.request->pause);
    store(t.control.ack->pause, pause);
    store(t.control.ack->resume, load(t.control.request->resume));
    t.notify();
  }
  merapi_completion fault = t.entry(MERAPI_COMP_FAULT, 0);
  fault.arg = MERAPI_FAULT_INTERNAL;
  t.push(fault);
}

void fault_completion(Target& t) {
  merapi_completion fault = t.entry(MERAPI_COMP_FAULT, 0x40);
  fault.arg = MERAPI_FAULT_MEMORY;
  t.push(fault);
}

void fault_record(Target& t) {
  store(t.control.fault->cycle, t.cycle);
  store(t.control.fault->address, uint64_t{0x80});
  store(t.control.fault->code, uint32_t{MERAPI_FAULT_GUARD});
}

// A host that does not compare counts takes these for the end of the cycle.
void idle_unconsumed(Target& t) {
  t.claim_idle(load(t.control.host->submission_produced) - 1, t.produced());
  nap(10);
}

void idle_unread(Target& t) {
  t.claim_idle(load(t.control.host->submission_produced), t.produced() + 1);
  nap(10);
}

void idle_other_cycle(Target& t) {
  t.cycle--;
  t.claim_idle(load(t.control.host->submission_produced), t.produced());
  t.cycle++;
  nap(10);
}

void live_too_large(Target& t) { store(t.geometry().live[0], uint64_t{1} << 60); }

const std::vector<Fault> kFaults = {
    {"silent", When::kHandshake, After::kDeaf, silent, "never answers a handshake"},
    {"wrong-version", When::kHandshake, After::kObey, wrong_version, "answers with the next major version"},
    {"foreign-magic", When::kHandshake, After::kObey, foreign_magic, "answers with another device magic"},
    {"non-coherent", When::kHandshake, After::kObey, non_coherent, "says that it does not see the host's caches"},
    {"small-window", When::kHandshake, After::kObey, small_window, "sees half of the window only"},
    {"dirty-rings", When::kHandshake, After::kObey, dirty_rings, "starts with ring indexes that are not zero"},
    {"endless-patience", When::kHandshake, After::kObey, endless_patience, "states a patience of more than an hour"},
    {"no-heap-scope", When::kHandshake, After::kObey, no_heap_scope,
     "says that it cannot trace through the whole heap"},
    {"die", When::kTracing, After::kDeaf, die, "kills itself"},
    {"stop", When::kTracing, After::kGoOn, stop, "stops itself (SIGSTOP); goes on when woken"},
    {"hang-up", When::kTracing, After::kHangUp, nothing, "closes the connection and offers itself anew"},
    {"deaf", When::kTracing, After::kDeaf, nothing, "stops answering anything"},
    {"stuck", When::kTracing, After::kObey, nothing, "acknowledges requests and traces no more"},
    {"deferring", When::kTracing, After::kDefer, nothing,
     "does nothing but to count deferred objects, and then nothing"},
    {"late-pause", When::kTracing, After::kLate, nothing, "acknowledges a pause after five times its patience"},
    {"garbage-bytes", When::kTracing, After::kObey, garbage_bytes, "publishes random bytes as completions"},
    {"garbage-type", When::kTracing, After::kObey, garbage_type, "a well-numbered completion of an unknown type"},
    {"too-many-words", When::kTracing, After::kObey, too_many_words, "a count beyond the entry's payload"},
    {"duplicate", When::kTracing, After::kObey, duplicate, "publishes an entry twice"},
    {"swapped", When::kTracing, After::kObey, swapped, "publishes two entries in each other's place"},
    {"torn", When::kTracing, After::kObey, torn, "publishes an entry that it has not written"},
    {"index-back", When::kTracing, After::kObey, index_back, "moves its completion index backwards"},
    {"index-far", When::kTracing, After::kObey, index_far, "moves its completion index further than the ring is long"},
    {"consumed-far", When::kTracing, After::kCount, consumed_far,
     "has taken more submissions than there are, and counts on"},
    {"defer-unmarked", When::kTracing, After::kObey, defer_unmarked, "defers an object that is not marked"},
    {"defer-outside", When::kTracing, After::kObey, defer_outside, "defers an address outside the heap"},
    {"defer-misaligned", When::kTracing, After::kObey, defer_misaligned, "defers an address that no object can have"},
    {"defer-inside", When::kTracing, After::kObey, defer_inside, "defers data of an array that look like an object"},
    {"defer-marked", When::kTracing, After::kObey, defer_marked, "marks such data, too"},
    {"defer-no-klass", When::kTracing, After::kObey, defer_no_klass, "marks and defers data that refer into a class"},
    {"shape-unknown", When::kTracing, After::kObey, shape_unknown, "has seen a klass word that nobody published"},
    {"flood", When::kTracing, After::kObey, flood, "keeps the completion ring full, then faults"},
    {"chatter", When::kTracing, After::kChat, nothing, "keeps the completion ring full and traces no more"},
    {"fault-completion", When::kTracing, After::kObey, fault_completion, "reports a fault by a completion"},
    {"fault-record", When::kTracing, After::kObey, fault_record, "reports a fault in its record alone"},
    {"idle-early", When::kTracing, After::kIdle, nothing, "claims to be idle while greys are left"},
    {"idle-unconsumed", When::kTracing, After::kGoOn, idle_unconsumed, "an idle record of fewer submissions"},
    {"idle-unread", When::kTracing, After::kGoOn, idle_unread, "an idle record of more completions than it published"},
    {"idle-other-cycle", When::kTracing, After::kGoOn, idle_other_cycle, "an idle record of the cycle before"},
    {"live-too-large", When::kTracing, After::kIdle, live_too_large, "more live words than the heap has, then idle"},
    {"forgetful", When::kAlways, After::kForget, nothing, "has no shape of any klass, and defers each object twice"},
    {"slow", When::kAlways, After::kSlow, nothing,
     "traces far more slowly than a CPU would (--times: in so many cycles)"},
    {"dozing", When::kAlways, After::kDoze, nothing, "looks when the doorbell was rung, never by itself"},
};

}  // namespace

const std::vector<Fault>& faults() { return kFaults; }

const Fault* find_fault(std::string_view name) {
  for (const Fault& fault : kFaults) {
    if (fault.name == name) return &fault;
  }
  return nullptr;
}

}  // namespace merapi::rogue
