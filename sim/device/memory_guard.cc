// SPDX-License-Identifier: Apache-2.0
#include "sim/device/memory_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <stdexcept>

#include "merapi/contract.h"

namespace merapi::sim {
namespace {

constexpr int kSlots = 4096;
// Asked before the handler is there: a mapping at less than a page of this machine fails.
const uint64_t kPage = uint64_t(sysconf(_SC_PAGESIZE));

// Read by the signal handler: lock-free atomics only. `bytes` 0 means free; it is written last and cleared first.
// `guards` counts those that the slot has been given to, before anything of the new one is written.
struct Slot {
  std::atomic<uint64_t> guards{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint8_t*> base{nullptr};
  std::atomic<uint64_t> offset{0};
  std::atomic<uint32_t> code{MERAPI_FAULT_NONE};
};
Slot slots[kSlots];
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint8_t*>::is_always_lock_free);

// Of memory that is no window.
struct sigaction before {};

// A mapping is parted between its pages alone, and those of a devdax device or of a file in hugetlbfs are larger than
// the machine's. Addresses of both are multiples of them.
const uint64_t kPages[] = {kPage, uint64_t(2) << 20, uint64_t(1) << 30};

// Private zero pages in place of the page of `address` and, unless it alone is `poisoned`, of all behind it.
bool replace(uint8_t* base, uint64_t bytes, const uint8_t* address, bool poisoned) {
  for (const uint64_t page : kPages) {
    const auto first = reinterpret_cast<uintptr_t>(base), end = first + bytes;
    const uintptr_t start = reinterpret_cast<uintptr_t>(address) & ~(page - 1);
    if (start < first) return false;
    const uint64_t length = poisoned && page < end - start ? page : end - start;
    if (mmap(reinterpret_cast<void*>(start), length, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED)
      return true;
  }
  return false;
}

void on_sigbus(int, siginfo_t* info, void*) {
  auto* address = static_cast<uint8_t*>(info->si_addr);
  for (Slot& slot : slots) {
    const uint64_t guards = slot.guards.load(std::memory_order_acquire);
    uint64_t bytes = slot.bytes.load(std::memory_order_acquire);
    uint8_t* base = slot.base.load(std::memory_order_acquire);
    // One guard's size and the next one's base: neither is that of the thread that is here.
    if (slot.guards.load(std::memory_order_relaxed) != guards) continue;
    if (bytes == 0 || address < base || address >= base + bytes) continue;
    uint64_t offset = uint64_t(address - base);
    bool poison = info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO;
    // What is behind a truncated file's end is gone altogether; of poison one page is.
    if (!replace(base, bytes, address, poison)) break;
    if (slot.code.load(std::memory_order_relaxed) == MERAPI_FAULT_NONE) {
      slot.offset.store(offset, std::memory_order_relaxed);
      slot.code.store(poison ? MERAPI_FAULT_MEMORY : MERAPI_FAULT_TRUNCATED, std::memory_order_release);
    }
    return;
  }
  sigaction(SIGBUS, &before, nullptr);  // the instruction runs again: whose it is, or a core
}

void install() {
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

std::once_flag installed;
std::mutex slots_lock;

}  // namespace

MemoryGuard::MemoryGuard(uint8_t* base, uint64_t bytes) : slot_(-1) {
  std::call_once(installed, install);
  std::lock_guard<std::mutex> hold(slots_lock);
  for (int i = 0; i < kSlots; i++) {
    if (slots[i].bytes.load() != 0) continue;
    slot_ = i;
    slots[i].guards.fetch_add(1);
    slots[i].base.store(base, std::memory_order_release);
    slots[i].offset.store(0);
    slots[i].code.store(MERAPI_FAULT_NONE);
    slots[i].bytes.store(bytes, std::memory_order_release);
    return;
  }
  throw std::runtime_error("expected at most 4096 windows at a time, found more; start another device process");
}

MemoryGuard::~MemoryGuard() { slots[slot_].bytes.store(0); }

uint32_t MemoryGuard::take(uint64_t* offset) {
  Slot& slot = slots[slot_];
  uint32_t code = slot.code.load(std::memory_order_acquire);
  if (code == MERAPI_FAULT_NONE) return code;
  *offset = slot.offset.load(std::memory_order_relaxed);
  slot.code.store(MERAPI_FAULT_NONE);
  return code;
}

}  // namespace merapi::sim
