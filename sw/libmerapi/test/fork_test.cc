// SPDX-License-Identifier: Apache-2.0
//
// What a child has of the windows, leases and listeners of the process that forked it: nothing.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <set>
#include <thread>

#include "scripted_device.h"

static int Unmap(void* address, size_t bytes) { return int(syscall(SYS_munmap, address, bytes)); }

// What this thread does where the library unmaps.
using Unmapping = std::function<int(void* address, size_t bytes)>;
static thread_local const Unmapping* unmapping = nullptr;

extern "C" int munmap(void* address, size_t bytes) noexcept {
  return unmapping != nullptr ? (*unmapping)(address, bytes) : Unmap(address, bytes);
}

namespace merapi_test {
namespace {

constexpr uint32_t kMake = MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE;
constexpr size_t kPage = 4096;

// A child that lives until it is told to end, or until the test does; it is 0 when everything that it looked at was so.
class Child {
 public:
  explicit Child(const std::function<bool()>& look) {
    if (pipe(done_) != 0 || pipe(end_) != 0) return;
    pid_ = fork();
    if (pid_ != 0) {
      close(done_[1]);
      return;
    }
    close(end_[1]);
    const char found = look() ? 1 : 0;
    char byte;
    if (write(done_[1], &found, 1) != 1 || read(end_[0], &byte, 1) != 0) _exit(1);
    _exit(0);
  }
  ~Child() {
    for (int fd : {done_[0], end_[0], end_[1]}) close(fd);
    waitpid(pid_, nullptr, 0);
  }
  bool found() {
    char byte = 0;
    return read(done_[0], &byte, 1) == 1 && byte == 1;
  }

 private:
  int done_[2], end_[2];
  pid_t pid_ = -1;
};

// Descriptors of this process on sockets, memory files, epoll and what is in `folder`.
int descriptors(const std::string& folder) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry, gone).string();
    for (const char* kind : {"socket:", "/memfd:merapi", "anon_inode:[eventpoll]", "anon_inode:[timerfd]"}) {
      if (what.rfind(kind, 0) == 0) found++;
    }
    if (what.rfind(folder, 0) == 0) found++;
  }
  return found;
}

bool Mapped(void* address) {
  unsigned char in_core;
  return mincore(address, kPage, &in_core) == 0;
}

// What is unmapped at these addresses leaves them to a page of somebody else at once, and a child is forked: that page
// is none of a window, and the child has it.
class ReusedAddresses {
 public:
  explicit ReusedAddresses(
      std::set<void*> addresses, std::function<bool()> look = [] { return true; })
      : left_(std::move(addresses)), look_(std::move(look)) {
    unmapping = &reuse_;
  }
  ~ReusedAddresses() {
    unmapping = nullptr;
    for (void* page : pages_) Unmap(page, kPage);
    EXPECT_TRUE(left_.empty());
  }

 private:
  int Reuse(void* address, size_t bytes) {
    const int status = Unmap(address, bytes);
    if (left_.erase(address) == 0) return status;
    void* const page =
        mmap(address, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (page == MAP_FAILED) return status;
    pages_.insert(page);
    *static_cast<uint64_t*>(page) = 7;
    EXPECT_TRUE(Child([&] { return *static_cast<uint64_t*>(page) == 7 && look_(); }).found());
    return status;
  }
  const Unmapping reuse_ = [this](void* address, size_t bytes) { return Reuse(address, bytes); };
  std::set<void*> left_, pages_;
  std::function<bool()> look_;
};

merapi_lease* Accept(merapi_listener* listener) {
  merapi_lease* lease = nullptr;
  for (int tries = 0; tries < 5000 && lease == nullptr; tries++) {
    if (merapi_accept(listener, &lease, nullptr) < 0) usleep(1000);
  }
  return lease;
}

class Fork : public ::testing::Test {
 protected:
  void SetUp() override {
    others_ = descriptors(folder_ / "");
    ASSERT_EQ(merapi_listen(socket_.c_str(), &listener_, &error_), 0) << error_.message;
    const merapi_geometry geometry = SmallGeometry();
    ASSERT_EQ(merapi_open(("device:" + socket_).c_str(), &geometry, 0, &window_, &error_), 0) << error_.message;
    std::thread acceptor([&] { device_ = std::make_unique<DeviceThread>(Accept(listener_)); });
    const int status = merapi_attach(window_, 10000000, &error_);
    acceptor.join();
    ASSERT_EQ(status, 0) << error_.message;
  }
  void TearDown() override {
    merapi_close(window_);
    device_.reset();
    merapi_listener_close(listener_);
    // Hosts that wait at a socket that is closed are let go behind the caller's back.
    for (int i = 0; i < 10000 && descriptors(folder_ / "") > others_; i++) usleep(1000);
  }
  void* Metadata() {
    auto* const limits = static_cast<uint8_t*>(merapi_map_area(window_, MERAPI_AREA_LIMITS));
    return limits - merapi_layout_of(window_)->area[MERAPI_AREA_LIMITS].offset;
  }
  Folder folder_;
  std::string socket_ = folder_ / "device.sock", path_ = folder_ / "window";
  merapi_listener* listener_ = nullptr;
  merapi_window* window_ = nullptr;
  std::unique_ptr<DeviceThread> device_;
  merapi_error error_{};
  int others_ = 0;
};

TEST_F(Fork, AChildHasNoDescriptors) {
  ASSERT_GT(descriptors(folder_ / ""), others_);
  EXPECT_TRUE(Child([&] { return descriptors(folder_ / "") == others_; }).found());
}

TEST_F(Fork, CallsOfAChildFailAndSayNothingToTheDevice) {
  const uint64_t generation = merapi_generation(window_);
  Child child([&] {
    merapi_config config;
    merapi_get_config(window_, &config);
    merapi_submission nop{};
    merapi_completion completion;
    merapi_shape shape{};
    shape.klass_word = 8;
    shape.kind = MERAPI_SHAPE_KIND_HOST;
    shape.size_words = 2;
    bool all = !merapi_attached(window_) && merapi_device_gone(window_) && merapi_generation(window_) % 2 == 1;
    for (int status :
         {merapi_attach(window_, 1000, nullptr), merapi_configure(window_, &config, nullptr),
          merapi_submit(window_, &nop, 1), merapi_submission_room(window_), merapi_complete(window_, &completion, 1),
          merapi_pause(window_, 1000), merapi_resume(window_), merapi_abort(window_, 1000),
          merapi_shape_put(window_, &shape, nullptr), merapi_shape_remove(window_, 8), merapi_zero(window_, 0, 4096),
          merapi_image_save(window_, (folder_ / "image").c_str(), 0, nullptr, nullptr, nullptr),
          merapi_map_fixed(window_, 0, 4096, mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))}) {
      all = all && status == -ECHILD;
    }
    merapi_attach(window_, 1000, &error_);
    all = all && std::strstr(error_.message, "fork") != nullptr;
    merapi_limit_set(window_, 0, 5);
    merapi_live_clear(window_, 0);
    merapi_shape_clear(window_);
    merapi_doorbell(window_);
    merapi_revoke(window_);
    all = all && merapi_idle(window_, 1) == 0 && merapi_wait(window_, 1000) == 1;
    merapi_close(window_);
    return all;
  });
  EXPECT_TRUE(child.found());
  EXPECT_NE(merapi_limit_get(window_, 0), 5u);
  EXPECT_TRUE(merapi_attached(window_));
  EXPECT_EQ(merapi_generation(window_), generation);
  EXPECT_FALSE(merapi_device_gone(window_));
  EXPECT_EQ(merapi_pause(window_, 0), 0);
  EXPECT_EQ(merapi_resume(window_), 0);
}

TEST_F(Fork, MemoryOfAChildIsItsOwn) {
  auto* const heap = static_cast<uint8_t*>(merapi_map_area(window_, MERAPI_AREA_HEAP));
  auto* const limits = static_cast<uint64_t*>(merapi_map_area(window_, MERAPI_AREA_LIMITS));
  ASSERT_NE(heap, nullptr);
  heap[4096] = 7;
  limits[1] = 1 << 20;
  EXPECT_TRUE(Child([&] {
                const bool zero = heap[4096] == 0 && limits[1] == 0;
                heap[4096] = heap[0] = 9;
                limits[1] = 9;
                return zero;
              }).found());
  EXPECT_EQ(heap[4096], 7);
  EXPECT_EQ(heap[0], 0);
  EXPECT_EQ(limits[1], 1u << 20);
}

// The host's lock on a file, and its connection to a device, end with the host.
TEST_F(Fork, AHostEndsWhileItsChildLives) {
  merapi_window* file = nullptr;
  const merapi_geometry geometry = SmallGeometry();
  ASSERT_EQ(merapi_open(("file:" + path_).c_str(), &geometry, kMake, &file, &error_), 0) << error_.message;
  Child child([] { return true; });
  ASSERT_TRUE(child.found());
  merapi_close(file);
  ASSERT_EQ(merapi_open(("file:" + path_).c_str(), nullptr, 0, &file, &error_), 0) << error_.message;
  merapi_close(file);
  merapi_close(window_);
  window_ = nullptr;
  for (int i = 0; i < 5000 && !merapi_lease_gone(device_->lease()); i++) usleep(1000);
  EXPECT_TRUE(merapi_lease_gone(device_->lease()));
}

TEST_F(Fork, ADeviceEndsWhileItsChildLives) {
  merapi_window* file = nullptr;
  const merapi_geometry geometry = SmallGeometry();
  ASSERT_EQ(merapi_open(("file:" + path_).c_str(), &geometry, kMake, &file, &error_), 0) << error_.message;
  merapi_lease *lease = nullptr, *next = nullptr, *childs = nullptr;
  ASSERT_EQ(merapi_serve(path_.c_str(), &lease, &error_), 0) << error_.message;
  auto* const page = static_cast<uint64_t*>(merapi_lease_base(lease));
  ASSERT_EQ(*page, MERAPI_MAGIC);
  Child child([&] {
    const bool all = merapi_accept(listener_, &childs, nullptr) == -ECHILD && *page == 0 && merapi_lease_fd(lease) < 0;
    *page = 5;
    merapi_lease_notify(lease);
    merapi_lease_end(lease);
    merapi_listener_close(listener_);
    return all;
  });
  EXPECT_TRUE(child.found());
  EXPECT_EQ(*page, MERAPI_MAGIC);
  EXPECT_TRUE(std::filesystem::exists(socket_));
  merapi_lease_end(lease);
  EXPECT_TRUE(merapi_device_gone(file));
  ASSERT_EQ(merapi_serve(path_.c_str(), &next, &error_), 0) << error_.message;
  merapi_lease_end(next);
  merapi_close(file);
  device_.reset();
  EXPECT_TRUE(merapi_device_gone(window_));
}

// With the last mapping of a window whose host is gone all its pages are freed, which takes long: nobody waits for
// that, and a child that is forked meanwhile has nothing of the lease. The connection, which tells the host that
// another device may serve the window, ends when that is so.
TEST_F(Fork, NobodyWaitsWhileALeaseIsUnmapped) {
  void* const base = merapi_lease_base(device_->lease());
  std::future<int> other;
  bool returned = false, child = false, connected = false;
  const Unmapping meanwhile = [&](void* address, size_t bytes) {
    if (address == base) {
      other = std::async(std::launch::async, [&] {
        merapi_lease* lease = nullptr;
        return merapi_accept(listener_, &lease, nullptr);
      });
      returned = other.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      child = returned && Child([&] { return !Mapped(base) && descriptors(folder_ / "") == others_; }).found();
      connected = !merapi_device_gone(window_);
    }
    return Unmap(address, bytes);
  };
  unmapping = &meanwhile;
  device_.reset();
  unmapping = nullptr;
  ASSERT_TRUE(other.valid());
  EXPECT_TRUE(returned);
  EXPECT_EQ(other.get(), -EAGAIN);
  EXPECT_TRUE(child);
  EXPECT_TRUE(connected);
  EXPECT_TRUE(merapi_device_gone(window_));
}

// Who maps anything meanwhile waits for one of the parts. Memory in pages of 1 GiB has none.
TEST_F(Fork, ALargeLeaseIsUnmappedInParts) {
  merapi_geometry geometry = SmallGeometry();
  geometry.heap_bytes = UINT64_C(1) << 30;
  for (bool large_pages : {false, true}) {
    merapi_window* file = nullptr;
    ASSERT_EQ(merapi_open(("file:" + path_).c_str(), &geometry, kMake, &file, &error_), 0) << error_.message;
    merapi_lease* lease = nullptr;
    ASSERT_EQ(merapi_serve(path_.c_str(), &lease, &error_), 0) << error_.message;
    const uint64_t bytes = merapi_lease_bytes(lease);
    auto* const base = static_cast<uint8_t*>(merapi_lease_base(lease));
    uint64_t longest = 0, all = 0;
    const Unmapping count = [&](void* address, size_t part) {
      if (address >= base && address < base + bytes) {
        if (large_pages && part < bytes) return -1;
        longest = std::max<uint64_t>(longest, part);
        all += part;
      }
      return Unmap(address, part);
    };
    unmapping = &count;
    merapi_lease_end(lease);
    unmapping = nullptr;
    EXPECT_EQ(all, bytes);
    EXPECT_LE(longest, large_pages ? bytes : UINT64_C(64) << 20);
    EXPECT_TRUE(merapi_device_gone(file));
    merapi_close(file);
  }
}

// A mapping, too, holds the window's file, and with it the host's lock.
TEST_F(Fork, WhatIsMappedForAWhileIsNotInAChild) {
  merapi_ops ops{};
  bool child = false;
  ops.context = &child;
  ops.write_back = [](void* found, const void* address, size_t) {
    auto* const page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) / kPage * kPage);
    *static_cast<bool*>(found) = Mapped(page) && Child([&] { return !Mapped(page); }).found();
  };
  const uint64_t heap = merapi_layout_of(window_)->area[MERAPI_AREA_HEAP].offset;
  merapi_set_ops(window_, &ops);
  EXPECT_EQ(merapi_zero(window_, heap + 8, 8), 0);
  merapi_set_ops(window_, nullptr);
  EXPECT_TRUE(child);
}

TEST_F(Fork, AddressesOfAWindowThatIsClosedAreNotTheWindows) {
  const ReusedAddresses reused({Metadata(), merapi_map_area(window_, MERAPI_AREA_HEAP)});
  merapi_close(window_);
  window_ = nullptr;
}

TEST_F(Fork, AddressesOfAWindowThatAnImageReplacesAreNotTheWindows) {
  const std::string path = folder_ / "image";
  ASSERT_EQ(merapi_image_save(window_, path.c_str(), 0, nullptr, nullptr, &error_), 0) << error_.message;
  merapi_image* image = nullptr;
  ASSERT_EQ(merapi_image_open(path.c_str(), &image, &error_), 0) << error_.message;
  merapi_revoke(window_);
  merapi_limit_set(window_, 1, 1 << 20);
  int status = -1;
  {
    const ReusedAddresses reused({Metadata(), merapi_map_area(window_, MERAPI_AREA_HEAP)}, [&] {
      return merapi_limit_get(window_, 1) == 0 && merapi_attach(window_, 0, nullptr) == -ECHILD;
    });
    status = merapi_image_load(image, window_, &error_);
  }
  EXPECT_EQ(status, 0) << error_.message;
  merapi_image_close(image);
}

// A child may use the library for windows of its own, and its children have nothing of those.
TEST_F(Fork, AChildMayHaveWindowsOfItsOwn) {
  const merapi_geometry geometry = SmallGeometry();
  EXPECT_TRUE(Child([&] {
                merapi_window* own = nullptr;
                if (merapi_open(("file:" + path_).c_str(), &geometry, kMake, &own, nullptr) < 0) return false;
                const bool grandchild = Child([&] { return merapi_attach(own, 0, nullptr) == -ECHILD; }).found();
                const bool all = grandchild && merapi_attach(own, 0, nullptr) == -ENODEV;
                merapi_close(own);
                merapi_close(window_);
                return all;
              }).found());
  EXPECT_TRUE(merapi_attached(window_));
}

TEST_F(Fork, WhileOtherThreadsOpenAndClose) {
  std::atomic<bool> end{false};
  std::thread other([&] {
    const merapi_geometry geometry = SmallGeometry();
    while (!end.load()) {
      merapi_window* window = nullptr;
      if (merapi_open(("device:" + socket_).c_str(), &geometry, 0, &window, nullptr) == 0) {
        merapi_attach(window, 0, nullptr);
        merapi_close(window);
      }
    }
  });
  for (int i = 0; i < 100; i++) EXPECT_TRUE(Child([&] { return descriptors(folder_ / "") == others_; }).found()) << i;
  end = true;
  other.join();
}

}  // namespace
}  // namespace merapi_test
