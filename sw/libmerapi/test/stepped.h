// SPDX-License-Identifier: Apache-2.0
//
// A window on a file and a scripted device on a second mapping of it, stepped by the test itself.
#ifndef MERAPI_TEST_STEPPED_H
#define MERAPI_TEST_STEPPED_H

#include <gtest/gtest.h>

#include <memory>

#include "scripted_device.h"

namespace merapi_test {

class Stepped : public ::testing::Test {
 protected:
  void SetUp() override { Make(SmallGeometry()); }
  void TearDown() override { Unmake(); }
  void Make(const merapi_geometry& geometry);
  void Unmake();
  // Attach while another thread steps the device.
  int Attach(uint64_t timeout_us = 10000000);
  // Step the device in another thread while `action` runs in this one.
  void WhileStepping(const std::function<void()>& action);
  // Submit one entry of this opcode; true when it fitted.
  bool Submit(uint8_t opcode, uint32_t arg = 0, uint32_t cycle = 1);

  Folder folder_;
  std::string path_ = folder_ / "window";
  merapi_window* window_ = nullptr;
  merapi_lease* lease_ = nullptr;
  std::unique_ptr<ScriptedDevice> device_;
  merapi_error error_{};
};

}  // namespace merapi_test

#endif  // MERAPI_TEST_STEPPED_H
