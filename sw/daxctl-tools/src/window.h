// SPDX-License-Identifier: Apache-2.0
//
// A copy of a window's control page, and what windows, images and traces say as JSON.
#ifndef MERAPI_DAXCTL_TOOLS_WINDOW_H_
#define MERAPI_DAXCTL_TOOLS_WINDOW_H_

#include <string>

#include "cli.h"
#include "graph/trace.h"
#include "graph/window.h"

namespace merapi::cli {

using graph::Image;
using graph::Window;

// Opened to look only. Throws graph::Error, also when its file becomes smaller meanwhile.
Window look_into(const std::string& name);

// What a control page said at one moment. Lines are copied one after the other: each is whole in itself only as far as
// its writer publishes it so (docs/contract.md).
struct ControlPage {
  explicit ControlPage(const Window& window);
  merapi_identity identity;
  merapi_config config;
  merapi_host_index host_index;
  merapi_host_request host_request;
  merapi_device_identity device;
  merapi_device_index device_index;
  merapi_device_ack device_ack;
  merapi_idle_record idle;
  merapi_fault_record fault;
  merapi_counters counters;
  // A device answered the generation in force and the host has not revoked it.
  bool attached() const;
};

// The path in a window's name: file:PATH, or a path alone.
std::string path_of(const std::string& name);
// `name`, for verbs whose window is there before and after them. Throws Failure when it means a device's socket.
const std::string& window_that_stays(const std::string& name);
// Does the file start like a saved window? False also when it cannot be read.
bool is_image(const std::string& path);
// Was a window being replaced by an image there, and whoever did it ended before it was one again? False also when the
// file cannot be read.
bool is_cut_off(const std::string& path);
// The image's text; an object even when the text is not one ({"text": ...}).
json image_text(const Image& image);

// A window with the image's contents in a nameless file: on tmpfs when there is room, else beside the image, else in
// memory. Gone when closed.
Window unpack(const Image& image);

json describe_config(const merapi_config& config);
json describe_device(const ControlPage& control);
json describe_counters(const uint64_t* counters);
json describe_layout(const merapi_layout& layout);
json describe_trace(const graph::TraceResult& result);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_WINDOW_H_
