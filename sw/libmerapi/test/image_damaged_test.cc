// SPDX-License-Identifier: Apache-2.0
//
// Saved windows that are damaged, or cannot be written: refused, and what was there stays.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "image_fixture.h"

namespace merapi_test {
namespace {

TEST_F(Image, WhatCannotBeWrittenIsRefusedAndStays) {
  std::filesystem::create_directory(image_);
  EXPECT_EQ(Save(), -EINVAL);
  EXPECT_NE(std::strstr(error_.message, "a folder"), nullptr) << error_.message;
  EXPECT_TRUE(std::filesystem::is_directory(image_));
  std::filesystem::remove(image_);
  std::filesystem::create_symlink("nothing", image_);
  EXPECT_EQ(Save(), -ENOENT);
  EXPECT_NE(std::strstr(error_.message, "leads nowhere"), nullptr) << error_.message;
  EXPECT_TRUE(std::filesystem::is_symlink(image_));
  EXPECT_TRUE(NothingBeside({"window", "saved.mwi"}));
  std::filesystem::remove(image_);
  ASSERT_EQ(mknod(image_.c_str(), S_IFSOCK | 0600, 0), 0);
  EXPECT_EQ(Save(), -EINVAL);
  EXPECT_TRUE(std::filesystem::is_socket(image_));
}

TEST_F(Image, EveryDamagedBitBeforeThePayloadIsSeen) {
  ASSERT_EQ(Save(nullptr, "{\"a\": 1}"), 0);
  const std::string good = ReadFile(image_);
  size_t payload = 0;
  while (good.compare(payload, 7, "MERAPI1") != 0) payload += 4096;
  merapi_image* image = nullptr;
  for (size_t at = 0; at < payload; at += at < 512 ? 1 : 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    WriteFile(image_, bad);
    const int status = OpenImage(&image);
    EXPECT_TRUE(status == -EBADMSG || status == -EPROTO) << at << " " << status;
  }
}

TEST_F(Image, DamagedPayloadIsNotLoaded) {
  ASSERT_EQ(Save(), 0);
  std::string bad = ReadFile(image_);
  bad[bad.size() - 100] ^= 1;
  WriteFile(image_, bad);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  merapi_limit_set(window_, 0, 5);
  EXPECT_EQ(merapi_image_check(image, &error_), -EBADMSG);
  EXPECT_EQ(merapi_image_load(image, window_, &error_), -EBADMSG);
  EXPECT_EQ(merapi_limit_get(window_, 0), 5u);  // untouched
  merapi_image_close(image);
}

// Somebody writes the file in place, once it was opened.
TEST_F(Image, WhatWasCheckedIsUsed) {
  const uint64_t key[] = {0x700000040}, first[] = {0, 2}, reference[] = {11, 12};
  const uint8_t is_klass[] = {0};
  const merapi_answers answers = {1, key, is_klass, first, reference};
  ASSERT_EQ(Save(&answers, "{\"a\": 1}"), 0);
  const std::string page(heap_, heap_ + 4096);
  std::string other = ReadFile(image_);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  const size_t payload = other.find("MERAPI1");
  ASSERT_EQ(payload % 4096, 0u);
  std::fill_n(other.begin(), payload, '\xff');
  WriteFile(image_, other);
  const merapi_answers* back = merapi_image_answers(image);
  EXPECT_EQ(back->first[1], 2u);
  EXPECT_EQ(back->reference[1], 12u);
  EXPECT_STREQ(merapi_image_json(image), "{\"a\": 1}");
  std::memset(heap_, 0, 4096);
  ASSERT_EQ(merapi_image_load(image, window_, &error_), 0) << error_.message;
  EXPECT_EQ(std::memcmp(merapi_map_area(window_, MERAPI_AREA_HEAP), page.data(), page.size()), 0);
  merapi_image_close(image);
}

TEST_F(Image, APayloadThatIsWrittenWhileItIsLoaded) {
  ASSERT_EQ(Save(), 0);
  std::string other = ReadFile(image_);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  ASSERT_EQ(merapi_image_check(image, &error_), 0);
  other[other.size() - 100] ^= 1;
  WriteFile(image_, other);
  EXPECT_EQ(merapi_image_load(image, window_, &error_), -EBADMSG);
  EXPECT_NE(std::strstr(error_.message, "nobody writes"), nullptr) << error_.message;
  merapi_window* none = nullptr;  // half of one and half of another is no window
  EXPECT_LT(merapi_open(("file:" + path_).c_str(), nullptr, MERAPI_OPEN_READONLY, &none, &error_), 0);
  merapi_image_close(image);
}

TEST_F(Image, TruncatedOrExtendedFilesAreRefused) {
  ASSERT_EQ(Save(), 0);
  const std::string good = ReadFile(image_);
  merapi_image* image = nullptr;
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{4096}, good.size() - 4096, good.size() - 1}) {
    WriteFile(image_, good.substr(0, size));
    EXPECT_LT(OpenImage(&image), 0) << size;
    EXPECT_EQ(image, nullptr);
  }
  WriteFile(image_, good + "x");
  EXPECT_EQ(OpenImage(&image), -EBADMSG);
  std::filesystem::remove(image_);
  EXPECT_EQ(OpenImage(&image), -ENOENT);
  EXPECT_EQ(merapi_image_open("/", &image, &error_), -EPROTO);
}

}  // namespace
}  // namespace merapi_test
