// SPDX-License-Identifier: Apache-2.0
//
// What sysfs tells of a devdax device, on a copy of such a folder. The device itself needs memory set aside by the
// kernel; the emulated expander's tests use a real one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "scripted_device.h"

extern "C" int merapi_dax_probe(const char* sysfs, unsigned major, unsigned minor, uint64_t* bytes,
                                uint64_t* alignment);

namespace merapi_test {
namespace {

namespace fs = std::filesystem;

class Dax : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "dev/char/252:3");
    fs::create_directories(folder_ / "bus/dax");
    fs::create_directories(folder_ / "class/mem");
  }
  void Device(const char* subsystem, const char* size, const char* align) {
    const std::string at = folder_ / "dev/char/252:3/";
    fs::remove(at + "subsystem");
    fs::remove(at + "align");
    fs::create_symlink(folder_ / subsystem, at + "subsystem");
    std::ofstream(at + "size") << size;
    if (align != nullptr) std::ofstream(at + "align") << align;
  }
  int Probe() { return merapi_dax_probe((folder_ / "").c_str(), 252, 3, &bytes_, &alignment_); }
  Folder folder_;
  uint64_t bytes_ = 0, alignment_ = 0;
};

TEST_F(Dax, SizeAndAlignmentComeFromSysfs) {
  Device("bus/dax", "536870912\n", "4096\n");
  ASSERT_EQ(Probe(), 0);
  EXPECT_EQ(bytes_, 536870912u);
  EXPECT_EQ(alignment_, 4096u);
}

TEST_F(Dax, OlderKernelsDoNotTellTheAlignment) {
  Device("bus/dax", "536870912\n", nullptr);
  ASSERT_EQ(Probe(), 0);
  EXPECT_EQ(alignment_, MERAPI_MAPPED_ALIGNMENT);
}

TEST_F(Dax, OtherDevicesAreRefused) {
  EXPECT_EQ(Probe(), -ENODEV);
  Device("class/mem", "1\n", nullptr);
  EXPECT_EQ(Probe(), -ENODEV);
  Device("bus/dax", "many\n", nullptr);
  EXPECT_EQ(Probe(), -EIO);
  Device("bus/dax", "4096\n", "3000\n");
  EXPECT_EQ(Probe(), -EIO);
}

TEST(Pci, NamesATracerAndItsMemory) {
  merapi_window* window = nullptr;
  merapi_error error{};
  for (const char* name : {"pci:/dev/merapi0", "pci:,/dev/dax0.0", "pci:/dev/merapi0,"}) {
    EXPECT_EQ(merapi_open(name, nullptr, 0, &window, &error), -EINVAL) << name;
    EXPECT_NE(strstr(error.message, "pci:/dev/merapi0,/dev/dax0.0"), nullptr) << error.message;
  }
  EXPECT_EQ(merapi_open("pci:/dev/no-such-tracer,/dev/null", nullptr, 0, &window, &error), -ENOENT);
  EXPECT_NE(strstr(error.message, "/dev/no-such-tracer"), nullptr) << error.message;
  // What is before the comma is opened first, and the memory must be devdax all the same.
  EXPECT_EQ(merapi_open("pci:/dev/null,/dev/null", nullptr, 0, &window, &error), -ENODEV);
  EXPECT_EQ(window, nullptr);
}

}  // namespace
}  // namespace merapi_test
