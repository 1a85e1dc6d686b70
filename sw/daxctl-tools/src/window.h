// SPDX-License-Identifier: Apache-2.0
//
// An open window, and a copy of its control page.
#ifndef MERAPI_DAXCTL_TOOLS_WINDOW_H_
#define MERAPI_DAXCTL_TOOLS_WINDOW_H_

#include <memory>
#include <string>

#include "cli.h"
#include "merapi/merapi.h"

namespace merapi::cli {

// What a control page said at one moment. Lines are copied one after the other: each is whole in itself only as far as
// its writer publishes it so (docs/contract.md).
struct ControlPage {
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

class Window {
 public:
  // Throws a Failure with libmerapi's words.
  Window(const std::string& name, const merapi_geometry* geometry, uint32_t flags);
  // For looking only: never disturbs a host or a device.
  static Window inspect(const std::string& name) { return Window(name, nullptr, MERAPI_OPEN_READONLY); }

  merapi_window* get() const { return window_.get(); }
  const std::string& name() const { return name_; }
  const merapi_layout& layout() const { return *merapi_layout_of(get()); }
  uint64_t bytes() const { return merapi_window_bytes(get()); }
  ControlPage control() const;
  // A mapped area; throws when it cannot be mapped.
  uint8_t* area(merapi_area which) const;

 private:
  struct Close {
    void operator()(merapi_window* w) const { merapi_close(w); }
  };
  std::string name_;
  std::unique_ptr<merapi_window, Close> window_;
};

class Image {
 public:
  explicit Image(const std::string& path);
  merapi_image* get() const { return image_.get(); }
  const std::string& path() const { return path_; }
  merapi_geometry geometry() const;
  // The image's text; an object even when the text is not one ({"text": ...}).
  json text() const;

 private:
  struct Close {
    void operator()(merapi_image* i) const { merapi_image_close(i); }
  };
  std::string path_;
  std::unique_ptr<merapi_image, Close> image_;
};

// Does the file start like a saved window? False also when it cannot be read.
bool is_image(const std::string& path);

// A window with the image's contents in a nameless file: on tmpfs when there is room, else beside the image.
// Gone when closed.
Window unpack(const Image& image);

json describe_config(const merapi_config& config);
json describe_device(const ControlPage& control);
json describe_counters(const merapi_counters& counters);
json describe_layout(const merapi_layout& layout);

// SIGBUS means that a mapped file became smaller: say so and end, instead of a crash without words.
void catch_truncation();

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_WINDOW_H_
