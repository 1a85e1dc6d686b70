// SPDX-License-Identifier: Apache-2.0
//
// Handshakes, pauses, aborts, revocation, waiting and waking.
#include <time.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "stepped.h"

namespace merapi_test {
namespace {

using Request = Stepped;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

TEST_F(Request, HandshakeRefusesWhatItCannotWorkWith) {
  struct Case {
    int expected;
    void (*spoil)(merapi_device_identity*);
  };
  const Case cases[] = {
      {-EPROTO, [](merapi_device_identity* i) { i->magic = 0; }},
      {-EPROTO, [](merapi_device_identity* i) { i->version_major++; }},
      {-EPROTO, [](merapi_device_identity* i) { i->patience_us = MERAPI_PATIENCE_MAX_US + 1; }},
      {-EPROTO, [](merapi_device_identity* i) { i->patience_us = UINT32_MAX; }},
      {-ENOTSUP, [](merapi_device_identity* i) { i->coherence = MERAPI_COHERENCE_NON_COHERENT; }},
      {-ENOTSUP, [](merapi_device_identity* i) { i->coherence = MERAPI_COHERENCE_UNKNOWN; }},
      {-ENOSPC, [](merapi_device_identity* i) { i->window_bytes = 4096; }},
  };
  for (const Case& c : cases) {
    device_->identity = DefaultIdentity();
    c.spoil(&device_->identity);
    EXPECT_EQ(Attach(), c.expected) << error_.message;
    EXPECT_FALSE(merapi_attached(window_));
    EXPECT_EQ(merapi_generation(window_) % 2, 1u);
  }
  device_->identity = DefaultIdentity();
  device_->identity.version_minor++;  // a later minor serves
  EXPECT_EQ(Attach(), 0) << error_.message;
}

// A device that cannot take the window answers all the same, with the reason recorded before.
TEST_F(Request, FaultAtTheHandshakeIsARefusal) {
  device_->refusal = MERAPI_FAULT_BAD_CONFIG;
  EXPECT_EQ(Attach(), -EPROTO);
  EXPECT_NE(std::strstr(error_.message, "bad configuration"), nullptr) << error_.message;
  EXPECT_FALSE(merapi_attached(window_));
}

// In nanoseconds they would be more than 64 bits hold.
TEST_F(Request, EndlessTimeoutsAreNone) {
  for (const uint64_t endless : {UINT64_MAX, UINT64_MAX / 1000 + 1, UINT64_MAX / 1000}) {
    ASSERT_EQ(Attach(endless), 0) << error_.message;
    int paused = -1, aborted = -1;
    std::thread late([&] { paused = merapi_pause(window_, endless); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    WhileStepping([&] { late.join(); });
    EXPECT_EQ(paused, 0) << endless;
    std::thread later([&] { aborted = merapi_abort(window_, endless); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    WhileStepping([&] { later.join(); });
    EXPECT_EQ(aborted, 0) << endless;
  }
}

TEST_F(Request, SilentDeviceTimesOut) {
  device_->answer = false;
  const auto start = Clock::now();
  EXPECT_EQ(Attach(30000), -ETIMEDOUT);
  EXPECT_GE(Seconds(start), 0.03);
  EXPECT_NE(std::strstr(error_.message, "stopped"), nullptr) << error_.message;
  device_->answer = true;
  EXPECT_EQ(Attach(), 0) << error_.message;
}

TEST_F(Request, PauseResumeAbort) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  WhileStepping([&] {
    for (int i = 0; i < 50; i++) {
      ASSERT_EQ(merapi_pause(window_, 0), 0);
      EXPECT_EQ(merapi_pause(window_, 0), 0);  // already paused
      ASSERT_EQ(merapi_resume(window_), 0);
      EXPECT_EQ(merapi_resume(window_), 0);
      ASSERT_TRUE(Submit(MERAPI_OP_NOP));
      ASSERT_EQ(merapi_pause(window_, 0), 0);
      ASSERT_EQ(merapi_abort(window_, 0), 0);
      EXPECT_EQ(merapi_submission_room(window_), kRingEntries);  // all consumed
      EXPECT_EQ(merapi_resume(window_), 0);                      // nothing to resume
    }
  });
  EXPECT_FALSE(device_->paused());
}

TEST_F(Request, PatienceIsWhatTheDeviceStates) {
  for (uint32_t stated : {0u, 1u, 200000u, MERAPI_PATIENCE_MAX_US}) {
    device_->identity.patience_us = stated;
    ASSERT_EQ(Attach(), 0) << error_.message;
    EXPECT_EQ(merapi_patience_us(window_), stated == 0 ? uint64_t{MERAPI_PATIENCE_HARDWARE_US} : stated);
    merapi_revoke(window_);
  }
}

TEST_F(Request, UnansweredRequestsTimeOut) {
  device_->identity.patience_us = 200000;
  ASSERT_EQ(Attach(), 0) << error_.message;
  device_->acknowledge = false;
  const auto start = Clock::now();
  EXPECT_EQ(merapi_pause(window_, 20000), -ETIMEDOUT);
  EXPECT_EQ(merapi_abort(window_, 20000), -ETIMEDOUT);
  EXPECT_GE(Seconds(start), 0.04);
  // Without a stated time the device's own patience counts: 0.2 s.
  const auto again = Clock::now();
  EXPECT_EQ(merapi_pause(window_, 0), -ETIMEDOUT);
  EXPECT_GE(Seconds(again), 0.2);
}

TEST_F(Request, RevocationEndsWaits) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  device_->acknowledge = false;
  int paused = 0, waited = 0;
  const auto start = Clock::now();
  std::thread pauser([&] { paused = merapi_pause(window_, 20000000); });
  std::thread waiter([&] { waited = merapi_wait(window_, 20000000); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  merapi_revoke(window_);
  pauser.join();
  waiter.join();
  EXPECT_EQ(paused, -ENODEV);
  EXPECT_EQ(waited, 1);
  EXPECT_LT(Seconds(start), 5);
  EXPECT_FALSE(merapi_attached(window_));
  EXPECT_EQ(merapi_generation(window_) % 2, 1u);
  merapi_revoke(window_);  // again: nothing to end
  EXPECT_EQ(merapi_generation(window_) % 2, 1u);
}

TEST_F(Request, RevokedDeviceStops) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  ASSERT_TRUE(Submit(MERAPI_OP_NOP));
  merapi_revoke(window_);
  device_->Poll();
  EXPECT_FALSE(device_->attached());
  EXPECT_TRUE(device_->submissions.empty());
}

TEST_F(Request, WaitSeesWhatCameAfterTheLook) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  merapi_completion entry{}, out;
  entry.type = MERAPI_COMP_DONE;
  EXPECT_EQ(merapi_complete(window_, &out, 1), 0);
  EXPECT_EQ(merapi_wait(window_, 1000), 0);  // no news
  device_->Complete(entry);
  EXPECT_EQ(merapi_wait(window_, 20000000), 1);
  EXPECT_EQ(merapi_wait(window_, 20000000), 1);  // still unread
  EXPECT_EQ(merapi_complete(window_, &out, 1), 1);
  EXPECT_EQ(merapi_wait(window_, 1000), 0);
  device_->Idle(1);
  EXPECT_EQ(merapi_wait(window_, 20000000), 1);
  EXPECT_EQ(merapi_wait(window_, 1000), 0);
}

TEST_F(Request, WaitingCostsNoProcessorTime) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  timespec before, after;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  EXPECT_EQ(merapi_wait(window_, 200000), 0);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  EXPECT_LT((after.tv_sec - before.tv_sec) * 1e9 + static_cast<double>(after.tv_nsec - before.tv_nsec), 5e6);
}

// Each side answers the other as soon as it wakes. Over the socket neither side polls: a lost wake-up costs the device
// its ten seconds and the host the slice in which it looks up for revocations.
TEST(Wake, NoneIsLost) {
  constexpr uint32_t kRounds = 20000;
  Folder folder;
  merapi_listener* listener = nullptr;
  merapi_window* window = nullptr;
  merapi_error error{};
  const merapi_geometry geometry = SmallGeometry();
  ASSERT_EQ(merapi_listen((folder / "socket").c_str(), &listener, &error), 0) << error.message;
  ASSERT_EQ(merapi_open(("device:" + (folder / "socket")).c_str(), &geometry, 0, &window, &error), 0) << error.message;
  std::atomic<bool> stop{false};
  std::thread device_thread([&] {
    merapi_lease* lease = nullptr;
    while (merapi_accept(listener, &lease, nullptr) == -EAGAIN) std::this_thread::yield();
    ASSERT_NE(lease, nullptr);
    ScriptedDevice device(merapi_lease_base(lease));
    device.notify = [&] { merapi_lease_notify(lease); };
    device.on_submission = [&](const merapi_submission& submission) {
      merapi_completion entry{};
      entry.type = MERAPI_COMP_DONE;
      entry.arg = submission.arg;
      device.Complete(entry);
    };
    while (!stop) {
      const uint32_t seen = device.doorbell();
      if (!device.Poll()) merapi_lease_sleep(lease, seen, 10000000);
    }
    merapi_lease_end(lease);
  });
  ASSERT_EQ(merapi_attach(window, 5000000, &error), 0) << error.message;
  // A busy machine delays a few rounds by as much as the host's slice; nothing but a lost wake-up by ten seconds.
  constexpr int kSlow = 20;
  int slow = 0;
  for (uint32_t i = 0; i < kRounds && slow < kSlow; i++) {
    const auto start = Clock::now();
    merapi_submission submission{};
    submission.arg = i;
    ASSERT_EQ(merapi_submit(window, &submission, 1), 1);
    merapi_doorbell(window);
    merapi_completion entry{};
    int got;
    while ((got = merapi_complete(window, &entry, 1)) == 0) merapi_wait(window, 10000000);
    ASSERT_EQ(got, 1);
    ASSERT_EQ(entry.arg, i);
    if (Seconds(start) > 0.095) slow++;
    ASSERT_LT(Seconds(start), 9.5);
  }
  EXPECT_LT(slow, kSlow);
  stop = true;
  merapi_close(window);  // revokes, which rings
  device_thread.join();
  merapi_listener_close(listener);
}

// One thread submits and completes while another pauses and resumes, as the JVM does.
TEST_F(Request, ThreadsOfTheHostDoNotDisturbEachOther) {
  ASSERT_EQ(Attach(), 0) << error_.message;
  device_->on_submission = [&](const merapi_submission& submission) {
    merapi_completion entry{};
    entry.type = MERAPI_COMP_DONE;
    entry.arg = submission.arg;
    device_->Complete(entry);
  };
  WhileStepping([&] {
    std::atomic<bool> stop{false};
    int pauses = 0;
    std::thread pauser([&] {
      while (!stop) {
        ASSERT_EQ(merapi_pause(window_, 5000000), 0);
        ASSERT_EQ(merapi_resume(window_), 0);
        pauses++;
      }
    });
    uint32_t sent = 0, received = 0;
    while (received < 4000) {
      if (sent - received < 8 && Submit(MERAPI_OP_NOP, sent)) {
        sent++;
        continue;
      }
      merapi_doorbell(window_);
      merapi_completion entries[8];
      const int got = merapi_complete(window_, entries, 8);
      ASSERT_GE(got, 0);
      for (int i = 0; i < got; i++) ASSERT_EQ(entries[i].arg, received++);
      if (got == 0) merapi_wait(window_, 5000);
    }
    stop = true;
    pauser.join();
    EXPECT_GT(pauses, 0);
  });
  EXPECT_TRUE(device_->errors.empty());
}

}  // namespace
}  // namespace merapi_test
