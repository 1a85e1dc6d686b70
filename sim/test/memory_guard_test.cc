// SPDX-License-Identifier: Apache-2.0
//
// Windows that come and go while the memory of another one is gone.
#include "sim/device/memory_guard.h"

#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "merapi/contract.h"

namespace merapi::sim {
namespace {

constexpr uint64_t kPages = 64;
// Instructions that the handler has at least.
constexpr int kLeast = 20;

// Between the process that steps and the one that is stepped through.
struct Shared {
  std::atomic<int> wanted{0}, done{0};  // changes of the other window
  std::atomic<int> faults{0}, wrong{0};
};

uint8_t* map(uint64_t pages) {
  const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  void* const at = mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

// The window that loses its memory lies behind a small one, which was a large one elsewhere a moment ago.
void fault(Shared* shared) {
  const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  const int gone = memfd_create("gone", MFD_CLOEXEC);
  uint8_t *const large = map(kPages), *const small = map(kPages), *const window = small + page,
                 *const behind = window + page;
  if (gone < 0 || large == nullptr || small == nullptr) _exit(2);
  std::optional<MemoryGuard> other(std::in_place, large, kPages * page);
  MemoryGuard guard(window, page);
  std::thread([&] {
    for (;;) {
      const int done = shared->done.load();
      if (done == shared->wanted.load()) {
        std::this_thread::yield();
        continue;
      }
      other.reset();
      if (done % 2 == 0)
        other.emplace(small, page);
      else
        other.emplace(large, kPages * page);
      shared->done.store(done + 1);
    }
  }).detach();
  if (ptrace(PTRACE_TRACEME) < 0) _exit(3);
  raise(SIGSTOP);
  for (;;) {
    mmap(window, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, gone, 0);
    *behind = 1;
    *window = 1;
    uint64_t offset = 1;
    const uint32_t code = guard.take(&offset);
    if (code != MERAPI_FAULT_TRUNCATED || offset != 0 || *behind != 1) shared->wrong++;
    shared->faults++;
  }
}

void change(Shared* shared) {
  const int wanted = shared->wanted.load() + 1;
  shared->wanted.store(wanted);
  while (shared->done.load() != wanted) std::this_thread::yield();
}

TEST(MemoryGuard, AWindowThatChangesIsNotTakenForTheOneThatFailed) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Shared* const shared = new (memory) Shared;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fault(shared);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 3) GTEST_SKIP() << "no ptrace(2) here";
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  // One change after so many instructions, each time: until the handler has ended before.
  for (int steps = 1;; steps++) {
    ASSERT_EQ(ptrace(PTRACE_CONT, child, nullptr, nullptr), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGBUS) << std::hex << status;
    const int before = shared->faults.load();
    intptr_t number = SIGBUS;
    for (int i = 0; i < steps; i++, number = 0) {
      ASSERT_EQ(ptrace(PTRACE_SINGLESTEP, child, nullptr, number), 0);
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP) << std::hex << status;
    }
    if (shared->faults.load() != before) {
      EXPECT_GT(steps, kLeast);
      break;
    }
    change(shared);
    ASSERT_EQ(ptrace(PTRACE_CONT, child, nullptr, nullptr), 0);
    // Its next fault stops it again; that is dealt with behind a change back.
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSTOPPED(status) && WSTOPSIG(status) == SIGBUS) << std::hex << status;
    ASSERT_EQ(shared->wrong.load(), 0) << "after a change " << steps << " instructions later";
    ASSERT_EQ(shared->faults.load(), before + 1);
    change(shared);
    ASSERT_EQ(ptrace(PTRACE_CONT, child, nullptr, SIGBUS), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
}

// As of a devdax device of that alignment, whose mapping is not parted elsewhere either: memory that is gone ended the
// process, with all of its windows.
TEST(MemoryGuard, PagesOfTheMachineMayBeLarger) {
  constexpr uint64_t kLarge = uint64_t{2} << 20;
  const int file = memfd_create("large", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
  if (file < 0 || ftruncate(file, 3 * kLarge) < 0) GTEST_SKIP() << "no large pages here";
  // Without a reservation there is nothing behind it, unless the machine has large pages that nobody uses.
  void* const at = mmap(nullptr, 3 * kLarge, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) GTEST_SKIP() << "no large pages here";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    uint8_t* const window = static_cast<uint8_t*>(at);
    MemoryGuard guard(window, 3 * kLarge);
    const uint64_t touched = kLarge + 5000;
    window[touched] = 1;
    window[3 * kLarge - 1] = 2;
    uint64_t offset = 0;
    const uint32_t code = guard.take(&offset);
    if (code == MERAPI_FAULT_NONE) _exit(1);
    _exit(code == MERAPI_FAULT_TRUNCATED && offset == touched && window[touched] == 1 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) GTEST_SKIP() << "the machine has large pages to spare";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace merapi::sim
