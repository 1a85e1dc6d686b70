// SPDX-License-Identifier: Apache-2.0
#include "graph/window.h"

#include <errno.h>
#include <string.h>

#include "graph/names.h"

namespace merapi::graph {

Broken::Broken(const std::string& what, uint32_t fault) : Error(-EBADMSG, what), fault(fault) {}

Window::Window(const std::string& name, const merapi_geometry* geometry, uint32_t flags) : name_(name) {
  merapi_error error{};
  merapi_window* window = nullptr;
  const int status = merapi_open(name.c_str(), geometry, flags, &window, &error);
  window_.reset(window);
  if (status < 0) throw Error(status, error.message);
}

uint8_t* Window::area(merapi_area which) const {
  void* address = merapi_map_area(get(), which);
  if (address == nullptr) {
    const int code = errno;
    throw Error(-code, name_ + ": cannot map the area " + area_name(which) + ": " + strerror(code));
  }
  return static_cast<uint8_t*>(address);
}

void Window::load(const Image& image) const {
  merapi_error error{};
  const int status = merapi_image_load(image.get(), get(), &error);
  if (status < 0) throw Error(status, error.message);
}

Image::Image(const std::string& path) : path_(path) {
  merapi_error error{};
  merapi_image* image = nullptr;
  const int status = merapi_image_open(path.c_str(), &image, &error);
  image_.reset(image);
  if (status < 0) throw Error(status, error.message);
}

void Image::check() const {
  merapi_error error{};
  const int status = merapi_image_check(get(), &error);
  if (status < 0) throw Error(status, error.message);
}

merapi_geometry Image::geometry() const {
  merapi_geometry geometry{};
  merapi_image_geometry(get(), &geometry);
  return geometry;
}

void save(const Window& window, const std::string& path, uint32_t bitmap, const merapi_answers* answers,
          const std::string& text) {
  merapi_error error{};
  const int status = merapi_image_save(window.get(), path.c_str(), bitmap, answers, text.c_str(), &error);
  if (status < 0) throw Error(status, error.message);
}

}  // namespace merapi::graph
