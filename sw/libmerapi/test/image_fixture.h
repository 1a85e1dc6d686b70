// SPDX-License-Identifier: Apache-2.0
//
// A window whose saved images are looked at.
#ifndef MERAPI_TEST_IMAGE_FIXTURE_H_
#define MERAPI_TEST_IMAGE_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>

#include "stepped.h"

namespace merapi_test {

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
inline void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class Image : public Stepped {
 protected:
  void SetUp() override {
    Stepped::SetUp();
    merapi_config config;
    merapi_get_config(window_, &config);
    config.heap_base = 0x700000000;
    config.oop_bytes = 4;
    ASSERT_EQ(merapi_configure(window_, &config, &error_), 0) << error_.message;
    heap_ = static_cast<uint8_t*>(merapi_map_area(window_, MERAPI_AREA_HEAP));
    std::mt19937 random(7);
    for (uint64_t page : {0, 1, 2, 500, 700, 701, 2047})
      for (int i = 0; i < 4096; i++) heap_[page * 4096 + i] = static_cast<uint8_t>(random());
    merapi_limit_set(window_, 2, 0x212340);
    merapi_shape shape{};
    shape.klass_word = 0x800000100;
    shape.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    shape.header_bytes = 16;
    ASSERT_EQ(merapi_shape_put(window_, &shape, nullptr), 0);
  }
  int Save(const merapi_answers* answers = nullptr, const char* json = nullptr, uint32_t bitmap = 1) {
    return merapi_image_save(window_, image_.c_str(), bitmap, answers, json, &error_);
  }
  bool NothingBeside(const std::set<std::string>& expected) {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(image_).parent_path()))
      found.insert(entry.path().filename());
    return found == expected;
  }
  int OpenImage(merapi_image** image) { return merapi_image_open(image_.c_str(), image, &error_); }
  std::string image_ = folder_ / "saved.mwi";
  uint8_t* heap_ = nullptr;
};

}  // namespace merapi_test

#endif  // MERAPI_TEST_IMAGE_FIXTURE_H_
