// SPDX-License-Identifier: Apache-2.0
//
// Rings and requests against a device that writes anything anywhere in its lines. The input is a program of host calls
// and device stores.
#include <cerrno>

#include "fuzz.h"

using namespace merapi_fuzz;

namespace {

constexpr int kSubmissions = static_cast<int>(SmallGeometry().submission_entries);
constexpr int kCompletions = static_cast<int>(SmallGeometry().completion_entries);

struct World {
  MemoryFile file{UINT64_C(16) << 20};
  merapi_window* window = Format(file);
  merapi_lease* lease = nullptr;
  uint8_t* base = nullptr;
  merapi_completion* completions = nullptr;
  bool answer = false;
  World() {
    MUST(merapi_serve(file.path().c_str(), &lease, nullptr) == 0);
    base = static_cast<uint8_t*>(merapi_lease_base(lease));
    completions =
        reinterpret_cast<merapi_completion*>(base + merapi_layout_of(window)->area[MERAPI_AREA_COMPLETION].offset);
  }
};

World& TheWorld() {
  static World world;
  return world;
}

// The device answers a handshake at the moment the host looks for it.
void Get(void* context, void* destination, const void* source, size_t bytes) {
  auto* world = static_cast<World*>(context);
  if (world->answer) {
    auto* index = reinterpret_cast<merapi_device_index*>(world->base + MERAPI_DEVICE_INDEX_OFFSET);
    index->generation = reinterpret_cast<merapi_host_index*>(world->base + MERAPI_HOST_INDEX_OFFSET)->generation;
  }
  std::memcpy(destination, source, bytes);
}
void Put(void*, void* destination, const void* source, size_t bytes) { std::memcpy(destination, source, bytes); }
void Publish(void*, void* destination, uint64_t value, size_t bytes) { std::memcpy(destination, &value, bytes); }
void Range(void*, const void*, size_t) {}

void Attach(World& world, Input& input) {
  merapi_device_identity identity{};
  identity.magic = MERAPI_DEVICE_MAGIC;
  identity.version_major = MERAPI_VERSION_MAJOR;
  identity.version_minor = MERAPI_VERSION_MINOR;
  identity.coherence = MERAPI_COHERENCE_COHERENT;
  identity.window_bytes = UINT64_C(16) << 20;
  const uint8_t spoil = input.Take<uint8_t>();
  if (spoil > 8) reinterpret_cast<uint8_t*>(&identity)[spoil % sizeof identity] ^= input.Take<uint8_t>();
  std::memcpy(world.base + MERAPI_DEVICE_IDENTITY_OFFSET, &identity, sizeof identity);
  if (spoil % 8 != 1) std::memset(world.base + MERAPI_DEVICE_INDEX_OFFSET, 0, 256);
  world.answer = true;
  merapi_error error;
  const int status = merapi_attach(world.window, 0, &error);
  world.answer = false;
  MUST((status == 0) == merapi_attached(world.window));
  MUST((merapi_generation(world.window) % 2 == 0) == (status == 0));
}

void Complete(World& world, Input& input) {
  merapi_completion entries[2 * kCompletions];
  const int want = input.Take<uint8_t>() % (2 * kCompletions + 1);
  const auto* index = reinterpret_cast<merapi_host_index*>(world.base + MERAPI_HOST_INDEX_OFFSET);
  const uint64_t before = index->completion_consumed;
  const int got = merapi_complete(world.window, entries, want);
  MUST(got <= want && got <= kCompletions);
  if (got < 0) MUST(got == -EBADMSG || got == -ENODEV);
  MUST(index->completion_consumed == before + static_cast<uint64_t>(got < 0 ? 0 : got));
  for (int i = 0; i < got; i++)
    MUST(entries[i].sequence == static_cast<uint32_t>(before + static_cast<uint64_t>(i) + 1));
}

void Submit(World& world, Input& input) {
  merapi_submission entries[2 * kSubmissions] = {};
  const int want = input.Take<uint8_t>() % (2 * kSubmissions + 1);
  const int room = merapi_submission_room(world.window);
  const int put = merapi_submit(world.window, entries, want);
  MUST(room <= kSubmissions && put <= want && put <= kSubmissions);
}

// A device store: mostly plausible indexes, sometimes any byte of its lines, sometimes entries.
void DeviceStores(World& world, Input& input) {
  auto* index = reinterpret_cast<merapi_device_index*>(world.base + MERAPI_DEVICE_INDEX_OFFSET);
  const auto* host = reinterpret_cast<merapi_host_index*>(world.base + MERAPI_HOST_INDEX_OFFSET);
  const uint8_t what = input.Take<uint8_t>();
  if (what < 64) {
    index->completion_produced += static_cast<int8_t>(input.Take<uint8_t>()) * kCompletions / 64;
  } else if (what < 128) {
    index->submission_consumed = host->submission_produced - input.Take<uint8_t>() % (kSubmissions + 2);
  } else if (what < 192) {
    const uint64_t end = index->completion_produced + 1 + input.Take<uint8_t>() % kCompletions;
    for (uint64_t at = index->completion_produced; at != end; at++)
      world.completions[at % kCompletions].sequence = static_cast<uint32_t>(at + 1);
    world.completions[(end - 1) % kCompletions].sequence += input.Take<uint8_t>() < 16;
  } else if (what < 224) {
    std::memcpy(world.base + MERAPI_DEVICE_ACK_OFFSET, world.base + MERAPI_HOST_REQUEST_OFFSET, 12);
  } else {
    world.base[MERAPI_DEVICE_IDENTITY_OFFSET + input.Take<uint16_t>() % 3072] = input.Take<uint8_t>();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World& world = TheWorld();
  const merapi_ops ops = {&world, Put, Publish, Get, Range, Range};
  merapi_set_ops(world.window, &ops);
  Input input(data, size);
  std::memset(world.base + MERAPI_DEVICE_IDENTITY_OFFSET, 0, 3072);
  Attach(world, input);
  while (!input.Done()) {
    const uint8_t step = input.Take<uint8_t>();
    switch (step % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
        DeviceStores(world, input);
        break;
      case 4:
      case 5:
      case 6:
        Complete(world, input);
        break;
      case 7:
      case 8:
      case 9:
        Submit(world, input);
        break;
      case 10:
        merapi_idle(world.window, input.Take<uint8_t>());
        break;
      case 11:
        merapi_wait(world.window, 0);
        break;
      case 12:
        if (merapi_pause(world.window, 1) == 0) merapi_resume(world.window);
        break;
      case 13:
        merapi_abort(world.window, 1);
        break;
      case 14:
        merapi_fault_get(world.window, nullptr);
        merapi_device_state(world.window);
        break;
      default:
        if (step > 128)
          Attach(world, input);
        else
          merapi_revoke(world.window);
    }
  }
  return 0;
}
