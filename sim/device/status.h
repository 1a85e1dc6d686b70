// SPDX-License-Identifier: Apache-2.0
//
// What the device process prints on stdout: "ready WHERE" lines, or with --json one JSON object per event.
#ifndef MERAPI_SIM_DEVICE_STATUS_H_
#define MERAPI_SIM_DEVICE_STATUS_H_

#include <memory>
#include <string>
#include <vector>

#include "sim/device/context.h"
#include "sim/device/line_output.h"

namespace merapi::sim {

class StatusPrinter {
 public:
  explicit StatusPrinter(bool json);
  // A socket or a window file is being served.
  void ready(const std::string& where);
  void began(const Context& context);
  void ended(const Context& context);
  // All contexts: on SIGUSR1 and at the end. Only with --json.
  void status(const std::vector<std::unique_ptr<Context>>& contexts);
  LineOutput* output() { return &output_; }

 private:
  const bool json_;
  LineOutput output_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_STATUS_H_
