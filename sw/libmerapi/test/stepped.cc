// SPDX-License-Identifier: Apache-2.0
#include "stepped.h"

namespace merapi_test {

void Stepped::Make(const merapi_geometry& geometry) {
  Unmake();
  ASSERT_EQ(
      merapi_open(("file:" + path_).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &window_, &error_), 0)
      << error_.message;
  ASSERT_EQ(merapi_serve(path_.c_str(), &lease_, &error_), 0) << error_.message;
  device_ = std::make_unique<ScriptedDevice>(merapi_lease_base(lease_));
  device_->notify = [this] { merapi_lease_notify(lease_); };
}

void Stepped::Unmake() {
  merapi_close(window_);
  merapi_lease_end(lease_);
  window_ = nullptr;
  lease_ = nullptr;
}

void Stepped::WhileStepping(const std::function<void()>& action) {
  std::atomic<bool> stop{false};
  std::thread stepper([&] {
    while (!stop) {
      const uint32_t seen = device_->doorbell();
      if (!device_->Poll()) merapi_lease_sleep(lease_, seen, 2000);
    }
  });
  action();
  stop = true;
  stepper.join();
}

int Stepped::Attach(uint64_t timeout_us) {
  int status = 0;
  WhileStepping([&] { status = merapi_attach(window_, timeout_us, &error_); });
  return status;
}

bool Stepped::Submit(uint8_t opcode, uint32_t arg, uint32_t cycle) {
  merapi_submission entry{};
  entry.opcode = opcode;
  entry.arg = arg;
  entry.cycle = cycle;
  return merapi_submit(window_, &entry, 1) == 1;
}

}  // namespace merapi_test
