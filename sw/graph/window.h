// SPDX-License-Identifier: Apache-2.0
//
// libmerapi's windows and images as owning handles.
#ifndef MERAPI_GRAPH_WINDOW_H_
#define MERAPI_GRAPH_WINDOW_H_

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "merapi/merapi.h"

namespace merapi::graph {

// libmerapi's words; `code` is the negative errno that it gave.
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& what) : std::runtime_error(what), code(code) {}
  const int code;
};

// What was looked at breaks the contract: a heap, or what a device says.
class Broken : public Error {
 public:
  explicit Broken(const std::string& what, uint32_t fault = 0);
  const uint32_t fault;  // enum merapi_fault of a device that stopped
};

class Image;

class Window {
 public:
  // As merapi_open. Throws Error.
  Window(const std::string& name, const merapi_geometry* geometry, uint32_t flags);
  // For looking only: never disturbs a host or a device.
  static Window inspect(const std::string& name) { return Window(name, nullptr, MERAPI_OPEN_READONLY); }

  merapi_window* get() const { return window_.get(); }
  const std::string& name() const { return name_; }
  const merapi_layout& layout() const { return *merapi_layout_of(get()); }
  uint64_t bytes() const { return merapi_window_bytes(get()); }
  // A mapped area; Error when it cannot be mapped. Valid until an image is loaded or the window is closed.
  uint8_t* area(merapi_area which) const;
  // Replaces the contents; no device may be attached. Throws Error.
  void load(const Image& image) const;

 private:
  struct Close {
    void operator()(merapi_window* w) const { merapi_close(w); }
  };
  std::string name_;
  std::unique_ptr<merapi_window, Close> window_;
};

class Image {
 public:
  // Throws Error.
  explicit Image(const std::string& path);
  merapi_image* get() const { return image_.get(); }
  const std::string& path() const { return path_; }
  merapi_geometry geometry() const;
  // Reads the contents. Throws Error when they are damaged: to be called before a window is laid out for them.
  void check() const;
  uint64_t window_bytes() const { return merapi_image_window_bytes(get()); }
  // The mark bitmap that holds the greys.
  uint32_t bitmap() const { return merapi_image_bitmap(get()); }
  const merapi_answers* answers() const { return merapi_image_answers(get()); }
  const char* text() const { return merapi_image_json(get()); }

 private:
  struct Close {
    void operator()(merapi_image* i) const { merapi_image_close(i); }
  };
  std::string path_;
  std::unique_ptr<merapi_image, Close> image_;
};

// Writes the window as an image; an existing file is replaced when the new one is complete. `answers` may be null.
// Throws Error.
void save(const Window& window, const std::string& path, uint32_t bitmap, const merapi_answers* answers,
          const std::string& text);

}  // namespace merapi::graph

#endif  // MERAPI_GRAPH_WINDOW_H_
