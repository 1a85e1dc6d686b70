// SPDX-License-Identifier: Apache-2.0
//
// Submissions and completions: order, full rings, wrap-around, and everything a broken device may write.
#include <cerrno>
#include <cstring>
#include <set>

#include "stepped.h"

namespace merapi_test {
namespace {

using Ring = Stepped;

merapi_completion Entry(uint32_t arg) {
  merapi_completion entry{};
  entry.type = MERAPI_COMP_DONE;
  entry.arg = arg;
  entry.cycle = 1;
  return entry;
}

TEST_F(Ring, NothingWorksBeforeAHandshake) {
  merapi_submission submission{};
  merapi_completion completion{};
  EXPECT_EQ(merapi_submit(window_, &submission, 1), -ENODEV);
  EXPECT_EQ(merapi_submission_room(window_), -ENODEV);
  EXPECT_EQ(merapi_complete(window_, &completion, 1), -ENODEV);
  EXPECT_EQ(merapi_pause(window_, 0), -ENODEV);
  EXPECT_EQ(merapi_resume(window_), -ENODEV);
  EXPECT_EQ(merapi_abort(window_, 0), -ENODEV);
  EXPECT_EQ(merapi_idle(window_, 1), 0);
  EXPECT_EQ(merapi_fault_get(window_, nullptr), static_cast<uint32_t>(MERAPI_FAULT_NONE));
  EXPECT_EQ(merapi_device_state(window_), static_cast<uint32_t>(MERAPI_DEVICE_STATE_DETACHED));
}

TEST_F(Ring, SubmissionsArriveInOrderRoundAndRound) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  for (uint32_t i = 0; i < 100; i++) {
    ASSERT_TRUE(Submit(MERAPI_OP_NOP, i, 7));
    ASSERT_TRUE(device_->PollSubmissions());
  }
  ASSERT_EQ(device_->submissions.size(), 100u);
  for (uint32_t i = 0; i < 100; i++) {
    EXPECT_EQ(device_->submissions[i].arg, i);
    EXPECT_EQ(device_->submissions[i].sequence, i + 1);
    EXPECT_EQ(device_->submissions[i].cycle, 7u);
  }
  EXPECT_TRUE(device_->errors.empty()) << device_->errors[0];
}

TEST_F(Ring, FullSubmissionRingTakesWhatFits) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  merapi_submission entries[kRingEntries + 4] = {};
  EXPECT_EQ(merapi_submission_room(window_), kRingEntries);
  EXPECT_EQ(merapi_submit(window_, entries, 0), 0);
  EXPECT_EQ(merapi_submit(window_, entries, kRingEntries + 4), kRingEntries);
  EXPECT_EQ(merapi_submit(window_, entries, 1), 0);
  ASSERT_TRUE(device_->PollSubmissions());
  ASSERT_TRUE(device_->PollSubmissions());
  EXPECT_EQ(merapi_submission_room(window_), 2);
  EXPECT_EQ(merapi_submit(window_, entries, 5), 2);
  while (device_->PollSubmissions()) {
  }
  EXPECT_EQ(device_->submissions.size(), size_t{kRingEntries} + 2);
  EXPECT_TRUE(device_->errors.empty());
}

TEST_F(Ring, CompletionsArriveInOrderAndAFullRingStopsTheDevice) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  merapi_completion entries[32];
  EXPECT_EQ(merapi_complete(window_, entries, 32), 0);
  uint32_t sent = 0, received = 0;
  for (int round = 0; round < 20; round++) {
    while (device_->Complete(Entry(sent))) sent++;
    EXPECT_EQ(sent - received, uint32_t{kRingEntries});
    const int want = 1 + round % 16;
    ASSERT_EQ(merapi_complete(window_, entries, want), want);
    for (int i = 0; i < want; i++) EXPECT_EQ(entries[i].arg, received++);
  }
}

TEST_F(Ring, FreeingAFullRingRingsTheDoorbell) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  merapi_completion entries[32];
  device_->Complete(Entry(0));
  const uint32_t before = device_->doorbell();
  ASSERT_EQ(merapi_complete(window_, entries, 32), 1);
  EXPECT_EQ(device_->doorbell(), before);  // an almost empty ring: nobody waits for room
  while (device_->Complete(Entry(1))) {
  }
  ASSERT_EQ(merapi_complete(window_, entries, 1), 1);
  EXPECT_NE(device_->doorbell(), before);
}

TEST_F(Ring, WrongSequenceIsABrokenDevice) {
  for (uint32_t wrong : {1u, 16u, UINT32_MAX}) {
    ASSERT_EQ(Attach(), 0) << error_.message;
    merapi_completion entries[4];
    device_->sequence_error = wrong;
    device_->Complete(Entry(0));
    EXPECT_EQ(merapi_complete(window_, entries, 4), -EBADMSG);
    device_->sequence_error = 0;
  }
}

TEST_F(Ring, LateWrongEntryIsNotFreed) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  merapi_completion entries[4];
  device_->Complete(Entry(0));
  device_->sequence_error = 5;
  device_->Complete(Entry(1));
  EXPECT_EQ(merapi_complete(window_, entries, 1), 1);
  EXPECT_EQ(merapi_complete(window_, entries, 4), -EBADMSG);
  EXPECT_EQ(merapi_complete(window_, entries, 4), -EBADMSG);
}

TEST_F(Ring, ImpossibleIndexesAreABrokenDevice) {
  merapi_completion entries[32];
  for (uint64_t wrong : {UINT64_C(100), UINT64_MAX / 2, UINT64_MAX - 3}) {
    ASSERT_EQ(Attach(), 0) << error_.message;
    device_->index_error = wrong;
    device_->Complete(Entry(0));
    EXPECT_EQ(merapi_complete(window_, entries, 32), -EBADMSG) << wrong;
    device_->index_error = 0;
  }
  // An index that covers entries which were never written: the zeroed ring has no sequence number that fits.
  ASSERT_EQ(Attach(), 0) << error_.message;
  device_->index_error = 3;
  device_->Complete(Entry(0));
  EXPECT_EQ(merapi_complete(window_, entries, 32), -EBADMSG);
  device_->index_error = 0;
  // Backwards.
  ASSERT_EQ(Attach(), 0) << error_.message;
  for (uint32_t i = 0; i < 5; i++) device_->Complete(Entry(i));
  EXPECT_EQ(merapi_complete(window_, entries, 2), 2);
  device_->index_error = static_cast<uint64_t>(-3);
  device_->Complete(Entry(5));
  EXPECT_EQ(merapi_complete(window_, entries, 32), -EBADMSG);
}

// Another one that has begun anew does not make the former one a broken one.
TEST_F(Ring, ImpossibleIndexesOfADeviceThatIsGone) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  merapi_completion entries[32];
  merapi_submission submissions[kRingEntries] = {};
  ASSERT_EQ(merapi_submit(window_, submissions, kRingEntries), kRingEntries);
  ASSERT_TRUE(device_->PollSubmissions());
  ASSERT_GT(merapi_submission_room(window_), 0);
  for (uint32_t i = 0; i < 5; i++) device_->Complete(Entry(i));
  ASSERT_EQ(merapi_complete(window_, entries, 2), 2);
  auto* index = reinterpret_cast<merapi_device_index*>(static_cast<uint8_t*>(merapi_lease_base(lease_)) +
                                                       MERAPI_DEVICE_INDEX_OFFSET);
  index->completion_produced = index->submission_consumed = 0;
  merapi_lease_end(lease_);
  lease_ = nullptr;
  EXPECT_EQ(merapi_complete(window_, entries, 32), -ENODEV);
  EXPECT_EQ(merapi_submit(window_, submissions, kRingEntries), -ENODEV);
}

TEST_F(Ring, ImpossibleConsumptionIsABrokenDevice) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  auto* index = reinterpret_cast<merapi_device_index*>(static_cast<uint8_t*>(merapi_lease_base(lease_)) +
                                                       MERAPI_DEVICE_INDEX_OFFSET);
  merapi_submission entries[kRingEntries] = {};
  ASSERT_EQ(merapi_submit(window_, entries, kRingEntries), kRingEntries);
  index->submission_consumed = kRingEntries + 1;
  EXPECT_EQ(merapi_submit(window_, entries, 1), -EBADMSG);
  index->submission_consumed = 4;
  EXPECT_EQ(merapi_submit(window_, entries, 1), 1);
  index->submission_consumed = 3;
  EXPECT_EQ(merapi_submit(window_, entries, kRingEntries), -EBADMSG);
  // Also where nothing is submitted, or all was seen to be consumed.
  ASSERT_EQ(Attach(), 0) << error_.message;
  index->submission_consumed = 1;
  EXPECT_EQ(merapi_submission_room(window_), -EBADMSG);
  index->submission_consumed = 0;
  ASSERT_EQ(merapi_submit(window_, entries, 5), 5);
  for (int i = 0; i < 5; i++) ASSERT_TRUE(device_->PollSubmissions());
  EXPECT_EQ(merapi_submission_room(window_), kRingEntries);
  index->submission_consumed = 6;
  EXPECT_EQ(merapi_submission_room(window_), -EBADMSG);
}

// What an older generation left in the rings must not be taken for new entries.
TEST_F(Ring, NewGenerationStartsWithEmptyRings) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  merapi_completion entries[32];
  for (uint32_t i = 0; i < 10; i++) device_->Complete(Entry(i));
  ASSERT_EQ(merapi_complete(window_, entries, 4), 4);
  const uint64_t first = merapi_generation(window_);
  ASSERT_EQ(Attach(), 0) << error_.message;
  EXPECT_EQ(merapi_generation(window_), first + 2);
  EXPECT_EQ(merapi_complete(window_, entries, 32), 0);
  EXPECT_EQ(merapi_submission_room(window_), kRingEntries);
  const auto* ring = static_cast<const merapi_completion*>(merapi_map_area(window_, MERAPI_AREA_COMPLETION));
  for (int i = 0; i < kRingEntries; i++) EXPECT_EQ(ring[i].sequence, 0u);
  device_->Complete(Entry(99));
  ASSERT_EQ(merapi_complete(window_, entries, 32), 1);
  EXPECT_EQ(entries[0].arg, 99u);
}

TEST_F(Ring, CyclesAreNeverUsedTwice) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  uint32_t last = 0;
  for (int i = 0; i < 20; i++) {
    const uint32_t cycle = merapi_next_cycle(window_);
    EXPECT_GT(cycle, last);
    last = cycle;
    ASSERT_TRUE(Submit(MERAPI_OP_BEGIN_CYCLE, 0, cycle));
    ASSERT_TRUE(device_->PollSubmissions());
  }
  ASSERT_EQ(Attach(), 0) << error_.message;
  EXPECT_GT(merapi_next_cycle(window_), last);
  merapi_close(window_);
  WhileStepping([&] { ASSERT_EQ(merapi_open(path_.c_str(), nullptr, 0, &window_, &error_), 0) << error_.message; });
  EXPECT_GT(merapi_next_cycle(window_), last);
}

// A device of the window's former life may still have writes in flight until it has answered a handshake: opening waits
// for that, and refuses when it does not come.
TEST_F(Ring, WindowIsNotReopenedWhileItsDeviceIsStuck) {
  device_->identity.patience_us = 500000;
  ASSERT_EQ(Attach(), 0) << error_.message;
  const uint64_t generation = merapi_generation(window_);
  merapi_close(window_);
  const merapi_geometry geometry = SmallGeometry();
  const uint32_t flags = MERAPI_OPEN_FORMAT;
  EXPECT_EQ(merapi_open(path_.c_str(), nullptr, 0, &window_, &error_), -EBUSY);
  EXPECT_EQ(merapi_open(path_.c_str(), &geometry, flags, &window_, &error_), -EBUSY);
  EXPECT_NE(std::strstr(error_.message, "stopped"), nullptr) << error_.message;
  WhileStepping(
      [&] { ASSERT_EQ(merapi_open(path_.c_str(), &geometry, flags, &window_, &error_), 0) << error_.message; });
  EXPECT_GT(merapi_generation(window_), generation);
  merapi_close(window_);
  // Once it is gone for good there is nobody to wait for.
  merapi_lease_end(lease_);
  lease_ = nullptr;
  ASSERT_EQ(merapi_open(path_.c_str(), nullptr, 0, &window_, &error_), 0) << error_.message;
}

TEST_F(Ring, IdleNeedsEverythingConsumedAndRead) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  EXPECT_EQ(merapi_idle(window_, 1), 0);
  ASSERT_TRUE(Submit(MERAPI_OP_BEGIN_CYCLE));
  device_->Idle(1);
  EXPECT_EQ(merapi_idle(window_, 1), 0);  // something is not consumed
  device_->ClearIdle();
  device_->PollSubmissions();
  device_->Idle(1);
  EXPECT_EQ(merapi_idle(window_, 1), 1);
  EXPECT_EQ(merapi_idle(window_, 2), 0);  // another cycle's
  device_->Complete(Entry(0));
  EXPECT_EQ(merapi_idle(window_, 1), 0);  // a completion that the record does not know
  device_->Idle(1);
  EXPECT_EQ(merapi_idle(window_, 1), 0);  // known and unread
  merapi_completion entry;
  ASSERT_EQ(merapi_complete(window_, &entry, 1), 1);
  EXPECT_EQ(merapi_idle(window_, 1), 1);
  ASSERT_TRUE(Submit(MERAPI_OP_GREY));
  EXPECT_EQ(merapi_idle(window_, 1), 0);
  merapi_revoke(window_);
  EXPECT_EQ(merapi_idle(window_, 1), 0);
}

TEST_F(Ring, FaultBelongsToItsGeneration) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  device_->Fault(MERAPI_FAULT_GUARD, 0x1234, 5);
  merapi_fault_record record;
  EXPECT_EQ(merapi_fault_get(window_, &record), static_cast<uint32_t>(MERAPI_FAULT_GUARD));
  EXPECT_EQ(record.address, 0x1234u);
  EXPECT_EQ(record.detail, 5u);
  merapi_revoke(window_);
  EXPECT_EQ(merapi_fault_get(window_, &record), static_cast<uint32_t>(MERAPI_FAULT_GUARD));  // to report it
  ASSERT_EQ(Attach(), 0) << error_.message;
  EXPECT_EQ(merapi_fault_get(window_, &record), static_cast<uint32_t>(MERAPI_FAULT_NONE));
}

TEST_F(Ring, ProgressIsWhatTheContractNames) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  auto* counters =
      reinterpret_cast<merapi_counters*>(static_cast<uint8_t*>(merapi_lease_base(lease_)) + MERAPI_COUNTERS_OFFSET);
  const std::set<int> grow = {MERAPI_COUNTER_OBJECTS_MARKED,  MERAPI_COUNTER_OBJECTS_SCANNED,
                              MERAPI_COUNTER_REFERENCES_READ, MERAPI_COUNTER_DEFERRED,
                              MERAPI_COUNTER_BITMAP_READS,    MERAPI_COUNTER_SPILL_READS,
                              MERAPI_COUNTER_RESCANS,         MERAPI_COUNTER_ROUNDS};
  for (int i = 0; i < int(MERAPI_COUNTER_COUNT); i++) {
    const uint64_t before = merapi_progress(window_);
    counters->value[i] += 3;
    EXPECT_EQ(merapi_progress(window_), before + (grow.count(i) ? 3 : 0)) << "counter " << i;
  }
}

TEST_F(Ring, CountersAndLiveWordsAreRead) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  auto* counters =
      reinterpret_cast<merapi_counters*>(static_cast<uint8_t*>(merapi_lease_base(lease_)) + MERAPI_COUNTERS_OFFSET);
  counters->value[MERAPI_COUNTER_OBJECTS_MARKED] = 42;
  EXPECT_EQ(merapi_counter(window_, MERAPI_COUNTER_OBJECTS_MARKED), 42u);
  EXPECT_EQ(merapi_counter(window_, static_cast<enum merapi_counter>(1000)), 0u);
  device_->Live(3, 77);
  device_->Live(4, 78);
  EXPECT_EQ(merapi_live_get(window_, 3), 77u);
  merapi_live_clear(window_, 3);
  EXPECT_EQ(merapi_live_get(window_, 3), 0u);
  EXPECT_EQ(merapi_live_get(window_, 4), 78u);
  EXPECT_EQ(merapi_live_get(window_, 8), 0u);  // no such region
  merapi_live_clear(window_, UINT32_MAX);
  merapi_limit_set(window_, 7, 0x700000);
  merapi_limit_set(window_, 8, 1);
  EXPECT_EQ(merapi_limit_get(window_, 7), 0x700000u);
  EXPECT_EQ(merapi_limit_get(window_, 8), 0u);
}

}  // namespace
}  // namespace merapi_test
