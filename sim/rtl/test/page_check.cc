// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/page_check.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace merapi::sim::rtl::test {
namespace {

class Check {
 public:
  Check(const uint8_t* window, uint64_t address, const Line& line)
      : window_(window), address_(address), bytes_(reinterpret_cast<const uint8_t*>(&line)) {}

  void run() {
    if (address_ == MERAPI_DEVICE_IDENTITY_OFFSET) return identity();
    if (address_ == MERAPI_DEVICE_INDEX_OFFSET) return index();
    if (address_ == MERAPI_DEVICE_ACK_OFFSET) return acknowledgements();
    if (address_ == MERAPI_IDLE_RECORD_OFFSET) return idle();
    if (address_ == MERAPI_FAULT_RECORD_OFFSET) return fault();
    if (address_ >= MERAPI_COUNTERS_OFFSET && address_ < MERAPI_COUNTERS_OFFSET + sizeof(merapi_counters)) {
      return counters();
    }
    fail("no line of the device's", address_);
  }

 private:
  template <typename T>
  T now() const {
    static_assert(sizeof(T) == 64);
    T value;
    std::memcpy(&value, bytes_, sizeof value);
    return value;
  }
  template <typename T>
  T shown(uint64_t offset) const {
    T value;
    std::memcpy(&value, window_ + offset, sizeof value);
    return value;
  }
  template <typename T>
  T before() const {
    return shown<T>(address_);
  }
  [[noreturn]] void fail(const char* what, uint64_t found) const {
    std::ostringstream text;
    text << "the tracer wrote at " << std::hex << address_ << " of the control page: " << what << ", found " << found;
    throw std::runtime_error(text.str());
  }
  void expect(bool right, const char* what, uint64_t found) const {
    if (!right) fail(what, found);
  }
  template <typename T, size_t N>
  void expect_zero(const T (&words)[N]) const {
    for (T w : words) expect(w == 0, "reserved words that are not zero", w);
  }

  void identity() const {
    auto d = now<merapi_device_identity>();
    expect(d.magic == MERAPI_DEVICE_MAGIC, "another magic", d.magic);
    expect(d.version_major == MERAPI_VERSION_MAJOR, "another version", d.version_major);
  }

  void index() const {
    auto d = now<merapi_device_index>(), old = before<merapi_device_index>();
    auto host = shown<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
    expect(d.sleeping <= 1, "sleeping beyond 1", d.sleeping);
    expect(d.state <= MERAPI_DEVICE_STATE_FAULTED, "no state", d.state);
    expect(d.reserved0 == 0, "a reserved word that is not zero", d.reserved0);
    expect_zero(d.reserved);
    // The host may have gone on by one or two since it was read. In a page that was formatted anew the tracer still
    // says the last generation that it answered.
    bool known = d.generation == old.generation || old.generation == 0 || host.generation - d.generation < 4;
    expect(known, "a generation of nobody's", d.generation);
    if (d.generation != host.generation) return;  // revoked: indexes begin anew
    expect(d.submission_consumed <= host.submission_produced, "submissions that were not made", d.submission_consumed);
    if (d.generation != old.generation) return;
    expect(d.submission_consumed >= old.submission_consumed, "fewer submissions taken", d.submission_consumed);
    expect(d.completion_produced >= old.completion_produced, "fewer completions", d.completion_produced);
    expect(d.completion_produced == old.completion_produced || d.event != old.event, "no event for completions",
           d.event);
    expect(uint32_t(d.event - old.event) < 64, "events that nothing caused", d.event);
    // An abort takes submissions without executing them, and says so before it takes back that there is an idle.
    const bool aborts = shown<merapi_host_request>(MERAPI_HOST_REQUEST_OFFSET).abort !=
                        shown<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET).abort;
    const bool idle = shown<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET).idle != 0;
    expect(!idle || aborts || d.submission_consumed == old.submission_consumed, "submissions taken while idle",
           d.submission_consumed);
  }

  void acknowledgements() const {
    auto d = now<merapi_device_ack>(), old = before<merapi_device_ack>();
    auto asked = shown<merapi_host_request>(MERAPI_HOST_REQUEST_OFFSET);
    // A host that revokes resets its requests, and may ask for a handshake before a write that was under way is there.
    auto host = shown<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET).generation;
    bool revoked = host % 2 != 0 || host != shown<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET).generation;
    auto one = [&](uint32_t value, uint32_t last, uint32_t request) {
      bool asked_for = uint32_t(value - last) <= uint32_t(request - last);
      expect(value == 0 || revoked || asked_for, "an acknowledgement that was not asked for", value);
    };
    one(d.pause, old.pause, asked.pause);
    one(d.resume, old.resume, asked.resume);
    one(d.abort, old.abort, asked.abort);
    expect_zero(d.reserved);
  }

  void idle() const {
    auto d = now<merapi_idle_record>();
    auto published = shown<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET);
    expect(d.idle <= 1, "idle beyond 1", d.idle);
    expect_zero(d.reserved);
    if (d.idle == 0) return;
    expect(d.consumed == published.submission_consumed, "idle with submissions not published", d.consumed);
    expect(d.produced == published.completion_produced, "idle with completions not published", d.produced);
  }

  void fault() const {
    auto d = now<merapi_fault_record>(), old = before<merapi_fault_record>();
    expect(d.code <= MERAPI_FAULT_INTERNAL, "no fault", d.code);
    expect_zero(d.reserved);
    bool same = std::memcmp(&d, &old, sizeof d) == 0;
    expect(old.code == 0 || d.code == 0 || same, "another fault than the first", d.code);
    if (d.code == 0) expect(d.cycle == 0 && d.address == 0 && d.detail == 0, "words of no fault", d.address);
  }

  void counters() const {
    uint64_t first = (address_ - MERAPI_COUNTERS_OFFSET) / 8;
    uint64_t values[8];
    std::memcpy(values, bytes_, sizeof values);
    for (uint64_t i = 0; i < 8; i++) {
      bool wall = first + i == MERAPI_COUNTER_NANOSECONDS || first + i == MERAPI_COUNTER_CPU_NANOSECONDS;
      if (first + i > MERAPI_COUNTER_ROUNDS || wall) {
        expect(values[i] == 0, "a counter that the tracer does not keep", values[i]);
      }
      // Of anything that it counts, words included: an array of 2^40 words is possible, no more.
      expect(values[i] < uint64_t{1} << 44, "more than there was time for", values[i]);
    }
  }

  const uint8_t* const window_;
  const uint64_t address_;
  const uint8_t* const bytes_;
};

}  // namespace

void check_page_write(const uint8_t* window, uint64_t address, const Line& line) {
  if (address < MERAPI_CONTROL_BYTES) Check(window, address, line).run();
}

}  // namespace merapi::sim::rtl::test
