// SPDX-License-Identifier: Apache-2.0
//
// A device of one's own: a file in memory that this process both opens as host and serves as device. It has no name in
// any folder, so that nothing is left of it however the process ends.
#ifndef MERAPI_SIM_REPLAY_PRIVATE_DEVICE_H_
#define MERAPI_SIM_REPLAY_PRIVATE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "graph/window.h"
#include "sim/device/context.h"
#include "sim/device/options.h"

namespace merapi::sim {

class PrivateDevice {
 public:
  // Makes a file of `bytes` and serves it with the engine of `options`. Throws std::runtime_error.
  PrivateDevice(uint64_t bytes, const DeviceOptions& options);
  // For merapi_open.
  std::string window_name() const { return "file:" + path_; }

 private:
  struct Descriptor {
    ~Descriptor();
    int fd = -1;
  };
  const DeviceOptions options_;
  std::string path_;
  Descriptor memory_;
  std::unique_ptr<Context> context_;
};

// The model, for what needs some device that traces.
DeviceOptions private_model();

// A window of an image's geometry, made anew, behind the transport of `name`; empty until the image is loaded. Throws
// std::runtime_error when there is no memory for that.
graph::Window window_for(const graph::Image& image, const std::string& name);

// Such a window on a device of one's own.
class PrivateWindow {
 public:
  PrivateWindow(const graph::Image& image, const DeviceOptions& options)
      : device_(image.window_bytes(), options), window_(window_for(image, device_.window_name())) {}
  const graph::Window& window() const { return window_; }

 private:
  PrivateDevice device_;  // ended after the window is closed
  graph::Window window_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_PRIVATE_DEVICE_H_
