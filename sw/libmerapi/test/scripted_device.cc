// SPDX-License-Identifier: Apache-2.0
#include "scripted_device.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace merapi_test {

namespace {
template <typename T>
T Load(const T* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
template <typename T>
void Store(T* to, T value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}
}  // namespace

merapi_device_identity DefaultIdentity() {
  merapi_device_identity identity{};
  identity.magic = MERAPI_DEVICE_MAGIC;
  identity.version_major = MERAPI_VERSION_MAJOR;
  identity.version_minor = MERAPI_VERSION_MINOR;
  identity.capabilities = 1u << MERAPI_CAP_SCOPE_HEAP;
  identity.kind = MERAPI_DEVICE_KIND_MODEL;
  identity.coherence = MERAPI_COHERENCE_COHERENT;
  identity.lanes = 1;
  identity.patience_us = 5000000;  // tests share their machine
  identity.window_bytes = UINT64_C(1) << 40;
  std::strcpy(reinterpret_cast<char*>(identity.name), "scripted");
  return identity;
}

uint32_t ScriptedDevice::doorbell() const { return Load(&At<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->doorbell); }

bool ScriptedDevice::PollGeneration() {
  const uint64_t asked = Load(&At<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation);
  if (asked == generation_) return false;
  if (asked % 2 != 0 || asked == 0) {
    const bool changed = attached_;
    attached_ = paused_ = false;
    generation_ = asked;
    return changed;
  }
  if (!answer) return false;
  std::memcpy(&submission_, &At<merapi_directory>(MERAPI_DIRECTORY_OFFSET)->area[MERAPI_AREA_SUBMISSION],
              sizeof submission_);
  std::memcpy(&completion_, &At<merapi_directory>(MERAPI_DIRECTORY_OFFSET)->area[MERAPI_AREA_COMPLETION],
              sizeof completion_);
  consumed_ = produced_ = 0;
  paused_ = false;
  submissions.clear();
  std::memcpy(At<merapi_device_identity>(MERAPI_DEVICE_IDENTITY_OFFSET), &identity, sizeof identity);
  auto* index = At<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET);
  Store(&index->submission_consumed, UINT64_C(0));
  Store(&index->completion_produced, UINT64_C(0));
  Store(&index->state, static_cast<uint32_t>(MERAPI_DEVICE_STATE_READY));
  auto* ack = At<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET);
  Store(&ack->pause, 0u);
  Store(&ack->resume, 0u);
  Store(&ack->abort, 0u);
  auto* idle = At<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
  Store(reinterpret_cast<uint64_t*>(idle), UINT64_C(0));
  Store(&idle->consumed, UINT64_C(0));
  Store(&idle->produced, UINT64_C(0));
  Store(&At<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET)->code, 0u);
  generation_ = asked;
  attached_ = true;
  if (refusal != MERAPI_FAULT_NONE) Fault(refusal, MERAPI_DIRECTORY_OFFSET, 7);
  Store(&index->generation, asked);
  notify();
  return true;
}

bool ScriptedDevice::PollRequests() {
  if (!acknowledge) return false;
  const auto* request = At<merapi_host_request>(MERAPI_HOST_REQUEST_OFFSET);
  auto* ack = At<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET);
  bool changed = false;
  const uint32_t abort = Load(&request->abort);
  if (abort != Load(&ack->abort)) {
    consumed_ = Load(&At<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->submission_produced);
    Store(&At<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET)->submission_consumed, consumed_);
    Store(&ack->abort, abort);
    changed = true;
  }
  const uint32_t resume = Load(&request->resume);
  const uint32_t pause = Load(&request->pause);
  if (pause != Load(&ack->pause)) {
    paused_ = true;
    Store(&ack->pause, pause);
    changed = true;
  }
  if (resume != Load(&ack->resume)) {
    Store(&ack->resume, resume);
    changed = true;
  }
  paused_ = pause != resume;
  if (changed) notify();
  return changed;
}

bool ScriptedDevice::PollSubmissions() {
  const uint64_t produced = Load(&At<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->submission_produced);
  if (produced == consumed_) return false;
  const uint64_t entries = submission_.size / sizeof(merapi_submission);
  merapi_submission entry;
  std::memcpy(&entry, At<merapi_submission>(submission_.offset) + consumed_ % entries, sizeof entry);
  if (produced - consumed_ > entries || entry.sequence != static_cast<uint32_t>(consumed_ + 1))
    errors.push_back("bad sequence " + std::to_string(entry.sequence) + " at " + std::to_string(consumed_));
  submissions.push_back(entry);
  Store(&At<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET)->submission_consumed, ++consumed_);
  on_submission(entry);
  return true;
}

bool ScriptedDevice::Poll() {
  bool busy = PollGeneration();
  if (!attached_) return busy;
  if (PollRequests()) busy = true;
  if (!paused_ && PollSubmissions()) busy = true;
  return busy;
}

bool ScriptedDevice::Complete(merapi_completion entry) {
  const uint64_t entries = completion_.size / sizeof(merapi_completion);
  const uint64_t consumed = Load(&At<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->completion_consumed);
  if (produced_ - consumed >= entries) return false;
  entry.sequence = static_cast<uint32_t>(produced_ + 1) + sequence_error;
  std::memcpy(At<merapi_completion>(completion_.offset) + produced_ % entries, &entry, sizeof entry);
  ++produced_;
  Store(&At<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET)->completion_produced, produced_ + index_error);
  notify();
  return true;
}

void ScriptedDevice::ClearIdle() {
  auto* record = At<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
  Store(&record->idle, 0u);
}

void ScriptedDevice::Idle(uint32_t cycle) {
  auto* record = At<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
  ClearIdle();
  Store(&record->consumed, consumed_);
  Store(&record->produced, produced_);
  merapi_idle_record head{};
  head.cycle = cycle;
  head.idle = 1;
  uint64_t word;
  std::memcpy(&word, &head, sizeof word);
  Store(reinterpret_cast<uint64_t*>(record), word);
  notify();
}

void ScriptedDevice::Fault(uint32_t code, uint64_t address, uint64_t detail) {
  auto* record = At<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET);
  Store(&record->address, address);
  Store(&record->detail, detail);
  Store(&record->code, code);
  notify();
}

void ScriptedDevice::Live(uint32_t region, uint64_t words) {
  const auto* area = &At<merapi_directory>(MERAPI_DIRECTORY_OFFSET)->area[MERAPI_AREA_LIVE];
  Store(At<uint64_t>(area->offset) + region, words);
}

DeviceThread::DeviceThread(merapi_lease* lease, std::function<void(ScriptedDevice&)> prepare)
    : lease_(lease), device_(merapi_lease_base(lease)) {
  device_.notify = [this] { merapi_lease_notify(lease_); };
  prepare(device_);
  thread_ = std::thread([this] {
    while (!stop_ && !merapi_lease_gone(lease_)) {
      const uint32_t seen = device_.doorbell();
      if (device_.Poll()) continue;
      ++sleeps;
      merapi_lease_sleep(lease_, seen, 20000);
    }
  });
}

DeviceThread::~DeviceThread() {
  stop_ = true;
  thread_.join();
  merapi_lease_end(lease_);
}

Folder::Folder() {
  std::string path = (std::filesystem::temp_directory_path() / "merapi-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) std::abort();
  path_ = path;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

merapi_geometry SmallGeometry() {
  merapi_geometry geometry{};
  geometry.heap_bytes = UINT64_C(8) << 20;
  geometry.region_log2 = 20;
  geometry.alignment_log2 = 3;
  geometry.submission_entries = kRingEntries;
  geometry.completion_entries = kRingEntries;
  geometry.shape_slots = MERAPI_TABLE_ENTRIES_MIN;
  return geometry;
}

}  // namespace merapi_test
