// SPDX-License-Identifier: Apache-2.0
//
// file: windows: opening, formatting, locks, mappings.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "scripted_device.h"

namespace merapi_test {
namespace {

constexpr uint32_t kMake = MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE;

class File : public ::testing::Test {
 protected:
  int Open(uint32_t flags, merapi_window** window) {
    const merapi_geometry geometry = SmallGeometry();
    return merapi_open(("file:" + path_).c_str(), &geometry, flags, window, &error_);
  }
  void Patch(uint64_t offset, const void* data, size_t bytes) {
    const int fd = open(path_.c_str(), O_RDWR);
    ASSERT_EQ(pwrite(fd, data, bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
    close(fd);
  }
  // Whether the file system keeps anything of this part of the file.
  bool HasPages(uint64_t offset, uint64_t bytes) const {
    const int fd = open(path_.c_str(), O_RDONLY);
    const off_t first = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
    close(fd);
    return first >= 0 && first < static_cast<off_t>(offset + bytes);
  }
  Folder folder_;
  std::string path_ = folder_ / "window";
  merapi_error error_{};
};

// The bytes of UTF-8 of which each is whole.
size_t WholeCharacters(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto c = static_cast<unsigned char>(text[at]);
    const size_t bytes = c < 0x80 ? 1 : (c & 0xe0) == 0xc0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : 0;
    if (bytes == 0 || at + bytes > text.size()) break;
    for (size_t i = 1; i < bytes; i++)
      if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return at;
    at += bytes;
  }
  return at;
}

// What was found and what to do stand behind the path, which may be as long as a path can be.
TEST_F(File, MessagesOfLongPathsSayWhatToDo) {
  for (const char* letter : {"p", "ü", "€"}) {
    for (const size_t bytes : {50, 100, 440, 480, 1100, 3900}) {
      for (size_t more = 0; more < 3; more++) {
        std::filesystem::path folder = std::string(folder_ / "begin") + std::string(more, 'x');
        std::string name;
        while (folder.native().size() + name.size() < bytes) {
          name += letter;
          if (name.size() > 200) folder /= std::exchange(name, "");
        }
        std::filesystem::create_directories(folder);
        path_ = folder / (name + "end");
        merapi_window* window = nullptr;
        ASSERT_EQ(Open(0, &window), -ENOENT);
        const std::string absent = error_.message;
        EXPECT_NE(absent.find("end, found: No such file or directory; "), std::string::npos) << absent;
        EXPECT_EQ(WholeCharacters(absent), absent.size()) << absent;

        ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
        ASSERT_EQ(merapi_attach(window, 1000000, &error_), -ENODEV);
        merapi_close(window);
        const std::string alone = error_.message, begin = std::string(folder_ / "begin") + std::string(more, 'x');
        EXPECT_EQ(alone.rfind("expected a device that serves " + begin, 0), 0U) << alone;
        EXPECT_NE(alone.find("end, found none; start merapi-device with --window " + begin), std::string::npos)
            << alone;
        EXPECT_EQ(alone.substr(alone.size() - 3), "end");
        EXPECT_EQ(WholeCharacters(alone), alone.size()) << alone;
        const bool whole = 78 + 2 * path_.size() < sizeof error_.message;
        EXPECT_EQ(alone.find("...") == std::string::npos, whole) << alone;
        EXPECT_GE(alone.size(), whole ? 78 + 2 * path_.size() : sizeof error_.message - 8)
            << "more than need be is left out";
      }
    }
  }
}

TEST_F(File, IsMadeAndReadBack) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  const merapi_layout layout = *merapi_layout_of(window);
  EXPECT_EQ(merapi_window_bytes(window), layout.window_bytes);
  EXPECT_EQ(std::filesystem::file_size(path_), layout.window_bytes);
  EXPECT_EQ(merapi_generation(window) % 2, 1u);
  EXPECT_FALSE(merapi_attached(window));
  merapi_config config;
  merapi_get_config(window, &config);
  EXPECT_EQ(config.region_count, 8u);
  config.heap_base = 0x7f0000000000;
  config.oop_bytes = 4;
  ASSERT_EQ(merapi_configure(window, &config, &error_), 0) << error_.message;
  merapi_close(window);

  ASSERT_EQ(merapi_open(path_.c_str(), nullptr, 0, &window, &error_), 0) << error_.message;
  EXPECT_STREQ(merapi_transport_name(window), "file");
  EXPECT_EQ(std::memcmp(&layout, merapi_layout_of(window), sizeof layout), 0);
  merapi_config again;
  merapi_get_config(window, &again);
  EXPECT_EQ(std::memcmp(&config, &again, sizeof config), 0);
  merapi_close(window);
}

TEST_F(File, LimitsOfAFreshHeapAreTheStartsOfItsRegions) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  const auto limits = [&] {
    merapi_config config;
    merapi_get_config(window, &config);
    std::vector<uint64_t> found;
    for (uint32_t i = 0; i < config.region_count; i++) found.push_back(merapi_limit_get(window, i) >> 10);
    return found;
  };
  EXPECT_EQ(limits(), (std::vector<uint64_t>{0, 1024, 2048, 3072, 4096, 5120, 6144, 7168}));
  merapi_config config;
  merapi_get_config(window, &config);
  // Where regions stay, their limits do.
  merapi_limit_set(window, 1, 1500 << 10);
  config.heap_base = 0x7f0000000000;
  config.region_count = 2;
  ASSERT_EQ(merapi_configure(window, &config, &error_), 0) << error_.message;
  EXPECT_EQ(limits(), (std::vector<uint64_t>{0, 1500}));
  config.region_count = 4;
  merapi_limit_set(window, 3, 1);  // not configured: ignored
  ASSERT_EQ(merapi_configure(window, &config, &error_), 0) << error_.message;
  EXPECT_EQ(limits(), (std::vector<uint64_t>{0, 1500, 2048, 3072}));
  config.region_log2 = 21;
  ASSERT_EQ(merapi_configure(window, &config, &error_), 0) << error_.message;
  EXPECT_EQ(limits(), (std::vector<uint64_t>{0, 2048, 4096, 6144}));
  // A window that is laid out again keeps none.
  merapi_limit_set(window, 1, 3000 << 10);
  merapi_close(window);
  ASSERT_EQ(Open(MERAPI_OPEN_FORMAT, &window), 0) << error_.message;
  EXPECT_EQ(limits(), (std::vector<uint64_t>{0, 1024, 2048, 3072, 4096, 5120, 6144, 7168}));
  merapi_close(window);
}

TEST_F(File, SpillAreaHasNoPagesBeforeItIsUsed) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  const merapi_area_desc spill = merapi_layout_of(window)->area[MERAPI_AREA_SPILL];
  merapi_close(window);
  EXPECT_FALSE(HasPages(spill.offset, spill.size));
  // Nor does a window keep what its former life spilled.
  const std::string greys(spill.size, 'g');
  Patch(spill.offset, greys.data(), greys.size());
  ASSERT_TRUE(HasPages(spill.offset, spill.size));
  ASSERT_EQ(Open(MERAPI_OPEN_FORMAT, &window), 0) << error_.message;
  merapi_close(window);
  EXPECT_FALSE(HasPages(spill.offset, spill.size));
}

TEST_F(File, KeepsNothingOfTheHeapOfItsFormerLife) {
  merapi_window* window = nullptr;
  merapi_geometry geometry = SmallGeometry();
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  const merapi_area_desc heap = merapi_layout_of(window)->area[MERAPI_AREA_HEAP];
  merapi_close(window);
  // The next heap is smaller: what was in the rest is nobody's, either.
  const std::string secret = "what the other program had";
  for (const uint64_t place : {heap.offset, heap.offset + heap.size - secret.size()})
    Patch(place, secret.data(), secret.size());
  geometry.heap_bytes /= 2;
  ASSERT_EQ(merapi_open(path_.c_str(), &geometry, 0, &window, &error_), 0) << error_.message;
  merapi_close(window);
  EXPECT_TRUE(HasPages(heap.offset, heap.size)) << "lost without MERAPI_OPEN_FORMAT";
  ASSERT_EQ(merapi_open(path_.c_str(), &geometry, MERAPI_OPEN_FORMAT, &window, &error_), 0) << error_.message;
  const uint64_t start = merapi_layout_of(window)->area[MERAPI_AREA_HEAP].offset, bytes = merapi_window_bytes(window);
  merapi_close(window);
  ASSERT_LT(start, heap.offset + heap.size);
  EXPECT_FALSE(HasPages(start, bytes - start));
}

TEST_F(File, HasOneHost) {
  merapi_window *first = nullptr, *second = nullptr;
  ASSERT_EQ(Open(kMake, &first), 0) << error_.message;
  EXPECT_EQ(Open(0, &second), -EBUSY);
  EXPECT_EQ(Open(kMake, &second), -EBUSY);
  EXPECT_EQ(second, nullptr);
  ASSERT_EQ(Open(MERAPI_OPEN_READONLY, &second), 0) << error_.message;
  EXPECT_EQ(merapi_attach(second, 1000, &error_), -EINVAL);
  EXPECT_EQ(merapi_zero(second, 0, 4096), -EINVAL);
  merapi_close(second);
  merapi_close(first);
  ASSERT_EQ(Open(0, &second), 0) << error_.message;
  merapi_close(second);
}

TEST_F(File, ErrorsAreThoseOfTheHeader) {
  merapi_window* window = nullptr;
  EXPECT_EQ(Open(0, &window), -ENOENT);
  EXPECT_EQ(merapi_open(path_.c_str(), nullptr, 0, &window, &error_), -ENOENT);
  EXPECT_EQ(merapi_open("", nullptr, 0, &window, &error_), -EINVAL);
  EXPECT_EQ(merapi_open("file:", nullptr, 0, &window, &error_), -EINVAL);
  EXPECT_EQ(merapi_open("/", nullptr, 0, &window, &error_), -ENODEV);
  EXPECT_EQ(merapi_open("/dev/null", nullptr, 0, &window, &error_), -ENODEV);
  EXPECT_EQ(merapi_open(("file:" + path_).c_str(), nullptr, kMake, &window, &error_), -EINVAL);
  EXPECT_EQ(Open(1u << 20, &window), -EINVAL);
  std::ofstream(path_).close();
  EXPECT_EQ(Open(0, &window), -EPROTO);                   // empty
  EXPECT_EQ(Open(MERAPI_OPEN_FORMAT, &window), -ENOSPC);  // must not grow it
  std::filesystem::resize_file(path_, 1 << 20);
  EXPECT_EQ(Open(0, &window), -EPROTO);  // zeros
  EXPECT_NE(std::strstr(error_.message, "create-window"), nullptr) << error_.message;
  EXPECT_EQ(window, nullptr);
}

TEST_F(File, WhatTheHeaderClaimsIsChecked) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  const merapi_layout layout = *merapi_layout_of(window);
  merapi_close(window);
  const uint64_t directory = MERAPI_DIRECTORY_OFFSET;
  const auto expect_spoiled = [&](uint64_t offset, uint64_t value, size_t bytes, int expected) {
    uint64_t before = 0;
    const int fd = open(path_.c_str(), O_RDWR);
    ASSERT_EQ(pread(fd, &before, bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
    close(fd);
    Patch(offset, &value, bytes);
    EXPECT_EQ(Open(0, &window), expected) << std::hex << offset << " " << value << ": " << error_.message;
    if (window != nullptr) merapi_close(window);
    Patch(offset, &before, bytes);
  };
  expect_spoiled(0, 1, 8, -EPROTO);                                                  // magic
  expect_spoiled(8, MERAPI_VERSION_MAJOR + 1, 2, -EPROTO);                           // major
  expect_spoiled(10, MERAPI_VERSION_MINOR + 1, 2, -EPROTO);                          // newer minor
  expect_spoiled(12, 8192, 4, -EPROTO);                                              // control bytes
  expect_spoiled(directory, 0, 8, -EPROTO);                                          // area in the control page
  expect_spoiled(directory, 4097, 8, -EPROTO);                                       // misaligned
  expect_spoiled(directory, UINT64_MAX & ~UINT64_C(4095), 8, -ENOSPC);               // beyond the window
  expect_spoiled(directory + 8, UINT64_MAX, 8, -ENOSPC);                             // wraps
  expect_spoiled(directory + 8, 32 * 64, 8, -EPROTO);                                // ring of half a page
  expect_spoiled(directory + 8, 3 * 4096, 8, -EPROTO);                               // ring of three pages
  expect_spoiled(directory + 16 * MERAPI_AREA_SHAPES + 8, 16 * 64, 8, -EPROTO);      // shapes of a quarter of a page
  expect_spoiled(directory + 16 * MERAPI_AREA_LIVE + 8, 64, 8, -EPROTO);             // live words of less than a page
  expect_spoiled(directory + 16, layout.area[0].offset, 8, -EPROTO);                 // overlap
  expect_spoiled(directory + 16 * MERAPI_AREA_HEAP, 4096, 8, -EPROTO);               // heap not at 2 MiB
  expect_spoiled(MERAPI_CONFIG_OFFSET + 18, 5, 1, -EPROTO);                          // klass bytes
  expect_spoiled(MERAPI_CONFIG_OFFSET + 28, 9, 4, -EPROTO);                          // more regions than heap
  expect_spoiled(MERAPI_CONFIG_OFFSET + 20, 60, 1, -EPROTO);                         // region size
  std::filesystem::resize_file(path_, layout.area[MERAPI_AREA_HEAP].offset + 4096);  // truncated
  EXPECT_EQ(Open(0, &window), -ENOSPC);
}

TEST_F(File, FormatStartsANewLifeWithLaterGenerations) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  merapi_limit_set(window, 1, 77);
  auto* bitmap = static_cast<uint8_t*>(merapi_map_area(window, MERAPI_AREA_BITMAP1));
  ASSERT_NE(bitmap, nullptr);
  bitmap[100] = 1;
  const uint64_t generation = 1001;
  merapi_close(window);
  Patch(MERAPI_HOST_INDEX_OFFSET, &generation, sizeof generation);
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  EXPECT_GE(merapi_generation(window), generation);
  EXPECT_EQ(merapi_limit_get(window, 1), 1u << 20);
  EXPECT_EQ(static_cast<uint8_t*>(merapi_map_area(window, MERAPI_AREA_BITMAP1))[100], 0);
  merapi_close(window);
}

TEST_F(File, GrowsWithCreateAndKeepsALargerSize) {
  merapi_window* window = nullptr;
  std::ofstream(path_).close();
  std::filesystem::resize_file(path_, UINT64_C(256) << 20);
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  EXPECT_EQ(merapi_window_bytes(window), UINT64_C(256) << 20);
  merapi_close(window);
}

TEST_F(File, MapsAreasAndFixedRanges) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  const merapi_layout* layout = merapi_layout_of(window);
  const merapi_area_desc heap = layout->area[MERAPI_AREA_HEAP];
  auto* anywhere = static_cast<uint8_t*>(merapi_map_area(window, MERAPI_AREA_HEAP));
  ASSERT_NE(anywhere, nullptr);
  EXPECT_EQ(merapi_map_area(window, MERAPI_AREA_HEAP), anywhere);
  EXPECT_EQ(merapi_map_area(window, MERAPI_AREA_FORWARDING), nullptr);
  EXPECT_EQ(merapi_map_area(window, static_cast<merapi_area>(99)), nullptr);
  void* reserved = mmap(nullptr, heap.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  ASSERT_EQ(merapi_map_fixed(window, heap.offset, heap.size, reserved), 0);
  static_cast<uint8_t*>(reserved)[12345] = 9;
  EXPECT_EQ(anywhere[12345], 9);
  ASSERT_EQ(merapi_zero(window, heap.offset + 12340, 10), 0);
  EXPECT_EQ(anywhere[12345], 0);
  static_cast<uint8_t*>(reserved)[0] = 1;
  static_cast<uint8_t*>(reserved)[300000] = 2;
  static_cast<uint8_t*>(reserved)[300001] = 3;
  ASSERT_EQ(merapi_zero(window, heap.offset + 1, 300000), 0);
  EXPECT_EQ(anywhere[0], 1);
  EXPECT_EQ(anywhere[300000], 0);
  EXPECT_EQ(anywhere[300001], 3);
  EXPECT_EQ(merapi_map_fixed(window, heap.offset + 1, 4096, reserved), -EINVAL);
  EXPECT_EQ(merapi_map_fixed(window, heap.offset, 0, reserved), -EINVAL);
  EXPECT_EQ(merapi_map_fixed(window, merapi_window_bytes(window), 4096, reserved), -EINVAL);
  EXPECT_EQ(merapi_map_fixed(window, heap.offset, UINT64_MAX - 4095, reserved), -EINVAL);
  EXPECT_EQ(merapi_zero(window, heap.offset, UINT64_MAX), -EINVAL);
  merapi_close(window);
  static_cast<uint8_t*>(reserved)[1] = 1;  // a fixed mapping outlives the window
  munmap(reserved, heap.size);
}

TEST_F(File, ConfigurationIsChecked) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  merapi_config good;
  merapi_get_config(window, &good);
  using Spoil = void (*)(merapi_config*);
  const Spoil spoils[] = {
      [](merapi_config* c) { c->oop_bytes = 2; },
      [](merapi_config* c) { c->klass_bytes = 16; },
      [](merapi_config* c) { c->narrow_oop_shift = 9; },
      [](merapi_config* c) { c->alignment_log2 = 2; },
      [](merapi_config* c) {
        c->region_log2 = 17;
        c->alignment_log2 = 9;
      },
      [](merapi_config* c) { c->region_count = 0; },
      [](merapi_config* c) { c->region_count = 9; },
      [](merapi_config* c) {
        c->region_count = UINT32_MAX;
        c->region_log2 = 36;
      },
      [](merapi_config* c) { c->coherence = 0; },
      [](merapi_config* c) { c->coherence = 3; },
      [](merapi_config* c) { c->heap_base = 1; },
      [](merapi_config* c) { c->heap_base = UINT64_MAX & ~UINT64_C(4095); },
      [](merapi_config* c) { c->reserved2 = 1; },
      [](merapi_config* c) { c->mirror_size_offset = 3; },
  };
  int i = 0;
  for (Spoil spoil : spoils) {
    merapi_config config = good;
    spoil(&config);
    EXPECT_EQ(merapi_configure(window, &config, &error_), -EINVAL) << i;
    i++;
  }
  // Any address at which an object may lie: the host need not have the heap mapped where references find it.
  for (const unsigned log2 : {3u, 4u}) {
    merapi_config aligned = good;
    aligned.alignment_log2 = uint8_t(log2);
    aligned.heap_base += uint64_t{1} << log2;
    EXPECT_EQ(merapi_configure(window, &aligned, &error_), 0) << error_.message;
    aligned.heap_base += uint64_t{1} << (log2 - 1);
    EXPECT_EQ(merapi_configure(window, &aligned, &error_), -EINVAL);
  }
  // The heap may end where the addresses do.
  merapi_config last = good;
  last.heap_base = 0 - (uint64_t{good.region_count} << good.region_log2);
  EXPECT_EQ(merapi_configure(window, &last, &error_), 0) << error_.message;
  EXPECT_EQ(merapi_configure(window, &good, &error_), 0);
  merapi_close(window);
}

// A device in another process on a file: served, stopped, woken, killed.
TEST_F(File, DeviceProcessThatStopsAndDies) {
  merapi_window* window = nullptr;
  ASSERT_EQ(Open(kMake, &window), 0) << error_.message;
  EXPECT_TRUE(merapi_device_gone(window));
  EXPECT_EQ(merapi_attach(window, 1000000, &error_), -ENODEV);  // at once: nobody holds the device lock
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    merapi_lease* lease = nullptr;
    if (merapi_serve(path_.c_str(), &lease, nullptr) < 0) _exit(1);
    ScriptedDevice device(merapi_lease_base(lease));
    device.notify = [lease] { merapi_lease_notify(lease); };
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) {
      const uint32_t seen = device.doorbell();
      if (!device.Poll()) merapi_lease_sleep(lease, seen, 10000);
    }
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(merapi_device_gone(window));
  ASSERT_EQ(merapi_attach(window, 10000000, &error_), 0) << error_.message;
  EXPECT_EQ(merapi_pause(window, 0), 0);
  EXPECT_EQ(merapi_resume(window), 0);
  merapi_lease* second = nullptr;
  EXPECT_EQ(merapi_serve(path_.c_str(), &second, &error_), -EBUSY);

  int status;
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(merapi_pause(window, 20000), -ETIMEDOUT);
  merapi_revoke(window);
  EXPECT_FALSE(merapi_device_gone(window));                          // stopped is not gone
  EXPECT_EQ(merapi_serve(path_.c_str(), &second, &error_), -EBUSY);  // and keeps its window
  EXPECT_EQ(merapi_attach(window, 20000, &error_), -ETIMEDOUT);
  ASSERT_EQ(kill(child, SIGCONT), 0);
  EXPECT_EQ(merapi_attach(window, 10000000, &error_), 0) << error_.message;
  EXPECT_EQ(merapi_pause(window, 0), 0);
  EXPECT_EQ(merapi_resume(window), 0);

  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(merapi_device_gone(window));
  EXPECT_EQ(merapi_pause(window, 5000), -ENODEV);
  EXPECT_EQ(merapi_attach(window, 1000000, &error_), -ENODEV);
  EXPECT_EQ(merapi_serve(path_.c_str(), &second, &error_), 0) << error_.message;
  merapi_lease_end(second);
  merapi_close(window);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(File, CannotBeServedWhenItIsNone) {
  merapi_lease* lease = nullptr;
  EXPECT_EQ(merapi_serve(path_.c_str(), &lease, &error_), -ENOENT);
  std::ofstream(path_).close();
  EXPECT_EQ(merapi_serve(path_.c_str(), &lease, &error_), -ENOSPC);
  EXPECT_EQ(merapi_serve("/dev/null", &lease, &error_), -ENODEV);
  EXPECT_EQ(lease, nullptr);
}

// Opening one for reading would wait for a writer.
TEST_F(File, APipeIsNoWindow) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  merapi_window* window = nullptr;
  merapi_lease* lease = nullptr;
  for (const char* transport : {"file:", "dax:"})
    for (const uint32_t flags : {0u, static_cast<uint32_t>(MERAPI_OPEN_READONLY)})
      EXPECT_EQ(merapi_open((transport + path_).c_str(), nullptr, flags, &window, &error_), -ENODEV) << error_.message;
  EXPECT_EQ(merapi_serve(path_.c_str(), &lease, &error_), -ENODEV) << error_.message;
}

TEST_F(File, IsMadeLargerUnderTheDeviceLockAlone) {
  constexpr uint64_t kMiB = UINT64_C(1) << 20;
  merapi_lease *lease = nullptr, *other = nullptr;
  EXPECT_EQ(merapi_serve_made(path_.c_str(), 3, 0, 0, &lease, &error_), -ENOSPC) << error_.message;
  EXPECT_EQ(merapi_serve_made(path_.c_str(), 4 * kMiB, 4 * kMiB, 4 * kMiB, &lease, &error_), -EINVAL);
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_EQ(merapi_serve_made(path_.c_str(), 4 * kMiB, 0, 4 * kMiB, &lease, &error_), 0) << error_.message;
  EXPECT_EQ(std::filesystem::file_size(path_), 4 * kMiB);
  EXPECT_EQ(merapi_serve_made(path_.c_str(), 8 * kMiB, 0, 0, &other, &error_), -EBUSY);
  EXPECT_EQ(std::filesystem::file_size(path_), 4 * kMiB);
  // Beside the part that is served there may be more.
  ASSERT_EQ(merapi_serve_made(path_.c_str(), 8 * kMiB, 4 * kMiB, 0, &other, &error_), 0) << error_.message;
  EXPECT_EQ(merapi_lease_bytes(other), 4 * kMiB);
  EXPECT_EQ(std::filesystem::file_size(path_), 8 * kMiB);
  merapi_lease_end(other);
  merapi_lease_end(lease);
  ASSERT_EQ(merapi_serve_made(path_.c_str(), 16 * kMiB, 0, 0, &lease, &error_), 0) << error_.message;
  merapi_lease_end(lease);
  EXPECT_EQ(std::filesystem::file_size(path_), 16 * kMiB);
}

TEST_F(File, WhatIsNoWindowIsNeitherLaidOutNorServed) {
  merapi_window* window = nullptr;
  merapi_lease* lease = nullptr;
  const auto refused = [&](uint64_t offset, const std::string& content, const char* found) {
    std::filesystem::remove(path_);
    std::ofstream(path_).close();
    std::filesystem::resize_file(path_, 32 << 20);
    Patch(offset, content.data(), content.size());
    for (const uint32_t flags : {kMake, uint32_t{MERAPI_OPEN_FORMAT}}) {
      EXPECT_EQ(Open(flags, &window), -EPROTO) << offset << " " << content;
      EXPECT_NE(std::strstr(error_.message, found), nullptr) << error_.message;
      merapi_close(window);
      window = nullptr;
    }
    EXPECT_EQ(merapi_serve(path_.c_str(), &lease, &error_), -EPROTO) << offset << " " << content;
    merapi_lease_end(lease);
    lease = nullptr;
    EXPECT_EQ(merapi_serve_made(path_.c_str(), 64 << 20, 0, 0, &lease, &error_), -EPROTO);
    EXPECT_EQ(std::filesystem::file_size(path_), 32u << 20);
    std::string now(content.size(), 0);
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(now.data(), static_cast<std::streamsize>(now.size()));
    EXPECT_EQ(now, content);
  };
  refused(0, "public class U {}", "other data");
  refused(0, "MERAPIMG", "a saved window");
  refused(4095, "x", "other data");
  refused(MERAPI_HOST_INDEX_OFFSET, std::string("\2", 1), "other data");
  // An ext file system: its first kilobyte is free, then follow counts.
  refused(1024, std::string("\0\x40\0\0\0\0\1", 7), "other data");
  // Short files too.
  std::ofstream(path_, std::ios::trunc) << "short";
  EXPECT_EQ(Open(kMake, &window), -EPROTO);
  EXPECT_EQ(std::filesystem::file_size(path_), 5u);
  std::filesystem::remove(path_);
  std::ofstream(path_).close();
  std::filesystem::resize_file(path_, 8 << 20);
  // A part that is named is an expander's memory: it may hold anything.
  Patch(0, "other", 5);
  Patch(4 << 20, "other", 5);
  for (const uint64_t offset : {0, 4 << 20}) {
    ASSERT_EQ(merapi_serve_part(path_.c_str(), offset, 4 << 20, &lease, &error_), 0) << error_.message;
    merapi_lease_end(lease);
    lease = nullptr;
  }
  EXPECT_EQ(merapi_serve_part(path_.c_str(), 0, 0, &lease, &error_), -EPROTO);
}

TEST_F(File, WhatKilledProcessesLeaveIsUsedAgain) {
  merapi_window* window = nullptr;
  merapi_lease* lease = nullptr;
  const auto taken = [&] {
    EXPECT_EQ(merapi_serve(path_.c_str(), &lease, &error_), 0) << error_.message;
    merapi_lease_end(lease);
    EXPECT_EQ(Open(kMake, &window), 0) << error_.message;
    merapi_close(window);
    window = nullptr;
  };
  const uint32_t one = 1;
  const uint64_t odd = 7, none = 0;
  // A device that slept before any host came.
  std::ofstream(path_).close();
  std::filesystem::resize_file(path_, 32 << 20);
  const uint64_t device = MERAPI_DEVICE_INDEX_OFFSET;
  Patch(device + offsetof(merapi_device_index, sleeping), &one, sizeof one);
  taken();
  // A host that was laying a window out, with a device that served it before.
  const std::string zeros(MERAPI_CONTROL_BYTES, 0);
  Patch(0, zeros.data(), zeros.size());
  Patch(MERAPI_HOST_INDEX_OFFSET, &odd, sizeof odd);
  const uint32_t magic = MERAPI_DEVICE_MAGIC;
  Patch(MERAPI_DEVICE_IDENTITY_OFFSET, &magic, sizeof magic);
  Patch(device, &odd, sizeof odd);
  taken();
  // An image being loaded.
  Patch(0, &none, sizeof none);
  taken();
}

TEST_F(File, AFileThatItMadeGoesWhenAWindowCannotBeMade) {
  merapi_geometry geometry = SmallGeometry();
  geometry.heap_bytes = UINT64_C(1) << 46;  // more than any file system's file
  geometry.region_log2 = 30;
  merapi_window* window = nullptr;
  EXPECT_LT(merapi_open(("file:" + path_).c_str(), &geometry, kMake, &window, &error_), 0);
  merapi_close(window);
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::ofstream(path_).close();
  EXPECT_LT(merapi_open(("file:" + path_).c_str(), &geometry, kMake, &window, &error_), 0);
  EXPECT_TRUE(std::filesystem::exists(path_)) << "it was there before";
  EXPECT_EQ(merapi_open((path_ + "/w").c_str(), nullptr, 0, &window, &error_), -ENOTDIR);
  const merapi_geometry small = SmallGeometry();
  EXPECT_EQ(merapi_open(("file:" + (folder_ / "no/w")).c_str(), &small, kMake, &window, &error_), -ENOENT);
  EXPECT_NE(std::strstr(error_.message, "folder"), nullptr) << error_.message;
  EXPECT_EQ(std::strstr(error_.message, "MERAPI_"), nullptr) << error_.message;
}

TEST_F(File, PartsAreServedBesideEachOther) {
  constexpr uint64_t kMiB = UINT64_C(1) << 20;
  std::ofstream(path_).close();
  std::filesystem::resize_file(path_, 8 * kMiB);
  merapi_lease *first = nullptr, *second = nullptr, *other = nullptr;
  ASSERT_EQ(merapi_serve_part(path_.c_str(), 0, 4 * kMiB, &first, &error_), 0) << error_.message;
  ASSERT_EQ(merapi_serve_part(path_.c_str(), 4 * kMiB, 0, &second, &error_), 0) << error_.message;
  EXPECT_EQ(merapi_lease_bytes(first), 4 * kMiB);
  EXPECT_EQ(merapi_lease_bytes(second), 4 * kMiB);
  *static_cast<uint64_t*>(merapi_lease_base(second)) = 0x1234;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(4 * kMiB);
  uint64_t word = 0;
  file.read(reinterpret_cast<char*>(&word), sizeof word);
  EXPECT_EQ(word, 0x1234u);
  // What overlaps is refused, the whole file too.
  EXPECT_EQ(merapi_serve_part(path_.c_str(), 2 * kMiB, 4 * kMiB, &other, &error_), -EBUSY);
  EXPECT_EQ(merapi_serve(path_.c_str(), &other, &error_), -EBUSY);
  merapi_lease_end(first);
  EXPECT_EQ(merapi_serve(path_.c_str(), &other, &error_), -EBUSY);
  merapi_lease_end(second);
  EXPECT_EQ(merapi_serve_part(path_.c_str(), kMiB, kMiB, &other, &error_), -EINVAL);
  EXPECT_EQ(merapi_serve_part(path_.c_str(), 6 * kMiB, 4 * kMiB, &other, &error_), -EINVAL);
  EXPECT_EQ(merapi_serve_part(path_.c_str(), 10 * kMiB, 0, &other, &error_), -EINVAL);
  EXPECT_EQ(merapi_serve_part(path_.c_str(), 8 * kMiB, 0, &other, &error_), -ENOSPC);
  EXPECT_EQ(other, nullptr);
  // Nor does the whole replace what a part holds.
  EXPECT_EQ(merapi_serve(path_.c_str(), &other, &error_), -EPROTO);
  std::filesystem::resize_file(path_, 4 * kMiB);
  std::filesystem::resize_file(path_, 8 * kMiB);
  ASSERT_EQ(merapi_serve(path_.c_str(), &other, &error_), 0) << error_.message;
  merapi_lease_end(other);
}

}  // namespace
}  // namespace merapi_test
