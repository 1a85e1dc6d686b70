// SPDX-License-Identifier: Apache-2.0
//
// device: windows, from both ends of the socket.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "scripted_device.h"

namespace merapi_test {
namespace {

merapi_lease* Accept(merapi_listener* listener, int* status = nullptr) {
  merapi_lease* lease = nullptr;
  merapi_error error{};
  int code = -EAGAIN;
  for (int tries = 0; tries < 1000 && code == -EAGAIN; tries++) {
    struct pollfd poller = {merapi_listener_fd(listener), POLLIN, 0};
    poll(&poller, 1, 10);
    code = merapi_accept(listener, &lease, &error);
  }
  if (status != nullptr) *status = code;
  return lease;
}

class Socket : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(merapi_listen(path_.c_str(), &listener_, &error_), 0) << error_.message;
    const merapi_geometry geometry = SmallGeometry();
    ASSERT_EQ(merapi_open(("device:" + path_).c_str(), &geometry, 0, &window_, &error_), 0) << error_.message;
  }
  void TearDown() override {
    merapi_close(window_);
    merapi_listener_close(listener_);
  }
  // Attach in this thread while `device` answers in another once its lease was accepted.
  int Attach(std::unique_ptr<DeviceThread>* device) {
    std::thread acceptor([&] {
      merapi_lease* lease = Accept(listener_);
      if (lease != nullptr) *device = std::make_unique<DeviceThread>(lease);
    });
    const int status = merapi_attach(window_, 10000000, &error_);
    acceptor.join();
    return status;
  }
  Folder folder_;
  std::string path_ = folder_ / "device.sock";
  merapi_listener* listener_ = nullptr;
  merapi_window* window_ = nullptr;
  merapi_error error_{};
};

TEST_F(Socket, AttachesAndTellsTheDeviceItsSize) {
  std::unique_ptr<DeviceThread> device;
  ASSERT_EQ(Attach(&device), 0) << error_.message;
  EXPECT_TRUE(merapi_attached(window_));
  EXPECT_EQ(merapi_generation(window_) % 2, 0u);
  EXPECT_FALSE(merapi_device_gone(window_));
  EXPECT_EQ(merapi_lease_bytes(device->lease()), merapi_window_bytes(window_));
  merapi_device_identity identity;
  merapi_device_info(window_, &identity);
  EXPECT_STREQ(reinterpret_cast<const char*>(identity.name), "scripted");
}

TEST_F(Socket, DeviceThatDiesIsSeenAndANewOneGetsTheSameWindow) {
  std::unique_ptr<DeviceThread> device;
  ASSERT_EQ(Attach(&device), 0) << error_.message;
  merapi_limit_set(window_, 3, 0x345678);
  const uint64_t generation = merapi_generation(window_);
  device.reset();
  EXPECT_TRUE(merapi_device_gone(window_));
  ASSERT_EQ(Attach(&device), 0) << error_.message;
  EXPECT_FALSE(merapi_device_gone(window_));
  EXPECT_GT(merapi_generation(window_), generation);
  EXPECT_EQ(merapi_limit_get(window_, 3), 0x345678u);
}

TEST_F(Socket, HostThatClosesEndsTheLease) {
  std::unique_ptr<DeviceThread> device;
  ASSERT_EQ(Attach(&device), 0) << error_.message;
  EXPECT_FALSE(merapi_lease_gone(device->lease()));
  merapi_close(window_);
  window_ = nullptr;
  EXPECT_TRUE(merapi_lease_gone(device->lease()));
}

TEST_F(Socket, NoDeviceIsENODEVAndTheWindowStays) {
  merapi_listener_close(listener_);
  listener_ = nullptr;
  EXPECT_EQ(merapi_attach(window_, 100000, &error_), -ENODEV);
  EXPECT_NE(std::strstr(error_.message, path_.c_str()), nullptr) << error_.message;
  EXPECT_FALSE(merapi_attached(window_));
  EXPECT_EQ(merapi_generation(window_) % 2, 1u);
  ASSERT_EQ(merapi_listen(path_.c_str(), &listener_, &error_), 0) << error_.message;
  std::unique_ptr<DeviceThread> device;
  EXPECT_EQ(Attach(&device), 0) << error_.message;
}

// A stopped device: the backlog takes the connection, nobody answers. Once it wakes, the same connection serves.
TEST_F(Socket, SilentDeviceIsETIMEDOUTAndTheConnectionIsKept) {
  EXPECT_EQ(merapi_attach(window_, 20000, &error_), -ETIMEDOUT);
  EXPECT_EQ(merapi_generation(window_) % 2, 1u);
  EXPECT_EQ(merapi_attach(window_, 20000, &error_), -ETIMEDOUT);
  std::unique_ptr<DeviceThread> device;
  EXPECT_EQ(Attach(&device), 0) << error_.message;
  merapi_lease* second = nullptr;
  EXPECT_EQ(merapi_accept(listener_, &second, &error_), -EAGAIN);
}

// While a lease is held nobody else can serve the window: the second device refuses and the host is told why.
TEST_F(Socket, SecondDeviceIsRefusedWhileTheFirstHoldsTheWindow) {
  std::unique_ptr<DeviceThread> device;
  ASSERT_EQ(Attach(&device), 0) << error_.message;
  // Keep the lock and the mapping as a stopped process does, but lose the connection.
  const int connection = merapi_lease_fd(device->lease());
  shutdown(connection, SHUT_RDWR);
  int status = 0;
  std::thread acceptor([&] { EXPECT_EQ(Accept(listener_, &status), nullptr); });
  EXPECT_EQ(merapi_attach(window_, 10000000, &error_), -ENODEV);
  acceptor.join();
  EXPECT_EQ(status, -EBUSY);
  EXPECT_NE(std::strstr(error_.message, "another device"), nullptr) << error_.message;
}

// A device process of another user's, which listens in a folder of this mode.
class Stranger : public Socket {
 protected:
  static constexpr uid_t kNobody = 65534;

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "expected root, which may become another user; found user " << geteuid();
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    merapi_close(window_);
  }
  // Attach to it; -ECHILD when it does not listen.
  int AttachIn(mode_t mode) {
    const std::string parent = std::filesystem::path(path_).parent_path();
    int ready[2];
    if (chown(parent.c_str(), kNobody, kNobody) < 0 || chmod(parent.c_str(), mode) < 0 || pipe(ready) < 0)
      return -ECHILD;
    child_ = fork();
    if (child_ == 0) Serve(ready[1]);
    close(ready[1]);
    char byte = 0;
    const bool listens = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (!listens) return -ECHILD;
    const merapi_geometry geometry = SmallGeometry();
    const int status = merapi_open(("device:" + path_).c_str(), &geometry, 0, &window_, &error_);
    return status < 0 ? status : merapi_attach(window_, 10000000, &error_);
  }

 private:
  [[noreturn]] void Serve(int ready) {
    if (setgid(kNobody) < 0 || setuid(kNobody) < 0) _exit(1);
    if (merapi_listen(path_.c_str(), &listener_, nullptr) < 0 || write(ready, "r", 1) != 1) _exit(1);
    merapi_lease* lease = nullptr;
    while (lease == nullptr) lease = Accept(listener_);
    ScriptedDevice device(merapi_lease_base(lease));
    device.notify = [lease] { merapi_lease_notify(lease); };
    while (true) {
      if (!device.Poll()) usleep(1000);
    }
  }
  pid_t child_ = -1;
};

TEST_F(Stranger, IsRefusedWhereAnybodyMayListen) {
  EXPECT_EQ(AttachIn(01777), -EPERM) << error_.message;
  EXPECT_NE(std::strstr(error_.message, "found one of user 65534"), nullptr) << error_.message;
  EXPECT_FALSE(merapi_attached(window_));
}

TEST_F(Stranger, IsRefusedWhereAGroupMayListen) { EXPECT_EQ(AttachIn(0775), -EPERM) << error_.message; }

TEST_F(Stranger, IsTakenWhereNobodyElseMayListen) {
  EXPECT_EQ(AttachIn(0755), 0) << error_.message;
  EXPECT_TRUE(merapi_attached(window_));
}

TEST_F(Socket, OneOfTheSameUserIsTakenWhereAnybodyMayListen) {
  ASSERT_EQ(chmod(std::filesystem::path(path_).parent_path().c_str(), 01777), 0);
  std::unique_ptr<DeviceThread> device;
  EXPECT_EQ(Attach(&device), 0) << error_.message;
}

TEST_F(Socket, LiveListenerIsNotReplacedAStaleOneIs) {
  merapi_listener* second = nullptr;
  EXPECT_EQ(merapi_listen(path_.c_str(), &second, &error_), -EADDRINUSE);
  EXPECT_EQ(second, nullptr);
  const std::string stale = folder_ / "stale.sock";
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, stale.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);
  ASSERT_EQ(merapi_listen(stale.c_str(), &second, &error_), 0) << error_.message;
  merapi_listener_close(second);
  EXPECT_NE(access(stale.c_str(), F_OK), 0);
}

TEST_F(Socket, ProbesAndNonsenseAreNotWindows) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path_.c_str());
  const int quiet = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(quiet, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  merapi_lease* lease = nullptr;
  EXPECT_EQ(merapi_accept(listener_, &lease, &error_), -EAGAIN);
  const int garbage = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(garbage, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(send(garbage, "hello", 5, 0), 5);
  int status = 0;
  EXPECT_EQ(Accept(listener_, &status), nullptr);
  EXPECT_EQ(status, -EPROTO);
  // The silent connection delays nobody.
  std::unique_ptr<DeviceThread> device;
  EXPECT_EQ(Attach(&device), 0) << error_.message;
  close(quiet);
  close(garbage);
  EXPECT_EQ(merapi_accept(listener_, &lease, &error_), -EAGAIN);
}

int OpenDescriptors() {
  return int(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

int Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  const int host = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(host, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return host;
}

// One message with these descriptors, which are closed here.
bool Send(int host, iovec vector, const std::vector<int>& fds) {
  alignas(cmsghdr) char bytes[CMSG_SPACE(16 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = bytes;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  const ssize_t sent = sendmsg(host, &message, 0);
  for (int fd : fds) close(fd);
  return sent == ssize_t(vector.iov_len);
}

// A connection on which one message with `count` descriptors was sent; -1 when it was not.
int SendDescriptors(const std::string& path, iovec vector, size_t count) {
  const int host = Connect(path);
  std::vector<int> fds;
  for (size_t i = 0; i < count; i++) fds.push_back(memfd_create("window", MFD_CLOEXEC));
  if (Send(host, vector, fds)) return host;
  close(host);
  return -1;
}

// The contract's "Handing a window over a socket".
struct Hello {
  char magic[8] = {'M', 'R', 'P', 'H', 'E', 'L', 'L', 'O'};
  uint16_t major = MERAPI_VERSION_MAJOR, minor = MERAPI_VERSION_MINOR;
  uint32_t reserved = 0;
};

// A hello with more or fewer descriptors than one is refused, and none of them stays open.
TEST_F(Socket, DescriptorsThatNobodyWantsAreClosed) {
  const int before = OpenDescriptors();
  for (size_t count : {0, 1, 2, 3, 5}) {
    Hello hello;  // with one descriptor something else is wrong
    if (count == 1) hello.magic[0] = 'm';
    const int host = SendDescriptors(path_, {&hello, sizeof hello}, count);
    ASSERT_GE(host, 0);
    int status = 0;
    EXPECT_EQ(Accept(listener_, &status), nullptr);
    EXPECT_EQ(status, -EPROTO) << count;
    close(host);
    EXPECT_EQ(OpenDescriptors(), before) << count << " descriptors";
  }
}

// A message of no bytes looks like the end of a connection; what it brings does not stay open either.
TEST_F(Socket, DescriptorsOfAnEmptyMessageAreClosed) {
  const int before = OpenDescriptors();
  for (size_t count : {0, 1, 2, 5}) {
    const int host = SendDescriptors(path_, {nullptr, 0}, count);
    ASSERT_GE(host, 0);
    merapi_lease* lease = nullptr;
    EXPECT_EQ(merapi_accept(listener_, &lease, &error_), -EAGAIN) << count;
    close(host);
    EXPECT_EQ(OpenDescriptors(), before) << count << " descriptors";
  }
  std::unique_ptr<DeviceThread> device;
  EXPECT_EQ(Attach(&device), 0) << error_.message;
}

int OfferedMemory() {
  const int fd = memfd_create("merapi-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, 4 << 20), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  return fd;
}

// TCP sockets whose last close waits for minutes: their peer reads nothing of what they have sent.
class Lingering : public Socket {
 protected:
  void SetUp() override {
    listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int small = 2048;
    setsockopt(listening_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ASSERT_EQ(listen(listening_, 16), 0);
    Socket::SetUp();
    begin_ = std::chrono::steady_clock::now();
  }
  void TearDown() override {
    Socket::TearDown();
    EXPECT_LT(std::chrono::steady_clock::now() - begin_, std::chrono::seconds(20)) << "it waited for a peer";
    for (int peer : peers_) close(peer);  // what it had not read resets the connection
    close(listening_);
  }
  int Make() {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    peers_.push_back(accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> bytes(1 << 16);
    int failures = 0;  // the kernel moves some on, until the peer's buffer is full
    while (failures < 20) {
      if (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) continue;
      failures++;
      usleep(1000);
    }
    const linger minutes{1, 600};
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &minutes, sizeof minutes), 0);
    return fd;
  }
  // A host that waits is not kept from the device.
  void ExpectService() {
    std::unique_ptr<DeviceThread> device;
    EXPECT_EQ(Attach(&device), 0) << error_.message;
  }
  Hello hello_;
  const iovec hello_vector_ = {&hello_, sizeof hello_};

 private:
  int listening_ = -1;
  std::vector<int> peers_;
  std::chrono::steady_clock::time_point begin_;
};

TEST_F(Lingering, InAMessageThatNobodyReceives) {
  const int host = Connect(path_);
  ASSERT_TRUE(Send(host, hello_vector_, {OfferedMemory()}));
  char empty = 0;
  ASSERT_TRUE(Send(host, {&empty, 0}, {}));
  ASSERT_TRUE(Send(host, {&empty, 1}, {Make()}));
  merapi_lease* const lease = Accept(listener_);
  ASSERT_NE(lease, nullptr);
  close(host);
  merapi_lease_end(lease);
  ExpectService();
}

TEST_F(Lingering, InPlaceOfAWindow) {
  for (size_t more : {0, 1, 7}) {
    std::vector<int> fds(1, Make());
    for (size_t i = 0; i < more; i++) fds.push_back(OfferedMemory());
    const int host = Connect(path_);
    ASSERT_TRUE(Send(host, hello_vector_, fds));
    int status = 0;
    EXPECT_EQ(Accept(listener_, &status), nullptr);
    EXPECT_EQ(status, more == 0 ? -EPERM : -EPROTO);
    close(host);
  }
  ExpectService();
}

TEST_F(Lingering, BehindManyThatALookWouldDrop) {
  const int host = Connect(path_);
  std::vector<int> fds;
  for (int i = 0; i < 7; i++) fds.push_back(OfferedMemory());
  fds.push_back(Make());
  ASSERT_TRUE(Send(host, hello_vector_, fds));
  int status = 0;
  EXPECT_EQ(Accept(listener_, &status), nullptr);
  EXPECT_EQ(status, -EPROTO);
  close(host);
  ExpectService();
}

TEST_F(Lingering, InAMessageOfNoBytes) {
  const int host = Connect(path_);
  ASSERT_TRUE(Send(host, {nullptr, 0}, {Make()}));
  merapi_lease* lease = nullptr;
  EXPECT_EQ(merapi_accept(listener_, &lease, &error_), -EAGAIN);
  close(host);
  ExpectService();
}

TEST_F(Lingering, OfAHostThatWasNeverAccepted) {
  const int host = Connect(path_);
  ASSERT_TRUE(Send(host, hello_vector_, {Make()}));
  close(host);
  merapi_listener_close(listener_);
  listener_ = nullptr;
}

// What may take long to close is closed all the same, and not by who accepts.
TEST_F(Socket, DescriptorsOfOtherKindsAreClosedSoon) {
  const int before = OpenDescriptors();
  for (int i = 0; i < 10; i++) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Hello hello;
    const int host = Connect(path_);
    ASSERT_TRUE(Send(host, {&hello, sizeof hello}, {ends[0], ends[1]}));
    int status = 0;
    EXPECT_EQ(Accept(listener_, &status), nullptr);
    EXPECT_EQ(status, -EPROTO);
    close(host);
  }
  for (int waited = 0; waited < 10000 && OpenDescriptors() != before; waited++) usleep(1000);
  EXPECT_EQ(OpenDescriptors(), before);
}

// To open a file that is leased waits for who has the lease, for 45 s by default.
TEST_F(Socket, AWindowUnderALeaseIsRefusedAtOnce) {
  const auto before = std::signal(SIGIO, SIG_IGN);  // tells who has the lease that somebody opens the file
  int fd = OfferedMemory();
  const int alone = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
  close(fd);
  ASSERT_EQ(fcntl(alone, F_SETLEASE, F_WRLCK), 0);
  Hello hello;
  const int host = Connect(path_);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(Send(host, {&hello, sizeof hello}, {alone}));
  merapi_lease* lease = nullptr;
  EXPECT_EQ(merapi_accept(listener_, &lease, &error_), -EPERM);
  EXPECT_NE(std::strstr(error_.message, "F_SETLEASE"), nullptr) << error_.message;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  close(host);
  std::signal(SIGIO, before);
}

// What a program prints would go into the window, or to its device, if one of them were a standard stream.
class ClosedStreams : public Socket {
 protected:
  void SetUp() override {}
  void OpenAll();
};

void ClosedStreams::OpenAll() {
  for (int fd : {0, 1, 2}) close(fd);
  const auto expect_closed = [](const char* when) {
    for (int fd : {0, 1, 2}) EXPECT_EQ(fcntl(fd, F_GETFD), -1) << fd << " is open after " << when;
  };
  const std::string path = folder_ / "window";
  const std::string name = "file:" + path;
  const uint32_t make = MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE;
  const merapi_geometry geometry = SmallGeometry();
  merapi_lease *lease = nullptr, *other = nullptr;
  ASSERT_EQ(merapi_serve_made(path.c_str(), 1 << 20, 0, 0, &lease, &error_), 0) << error_.message;
  expect_closed("serving a window file that was made");
  merapi_lease_end(lease);
  merapi_window *file = nullptr, *second = nullptr;
  ASSERT_EQ(merapi_open(name.c_str(), &geometry, make, &file, &error_), 0) << error_.message;
  expect_closed("making a window file");
  EXPECT_EQ(merapi_open(name.c_str(), nullptr, 0, &second, &error_), -EBUSY) << "the lock was lost";
  ASSERT_EQ(merapi_serve(path.c_str(), &lease, &error_), 0) << error_.message;
  expect_closed("serving a window file");
  EXPECT_EQ(merapi_serve(path.c_str(), &other, &error_), -EBUSY) << "the lock was lost";
  merapi_output* output = nullptr;
  ASSERT_EQ(merapi_output_open((folder_ / "image").c_str(), &output, &error_), 0) << error_.message;
  expect_closed("opening an output");
  merapi_output_abandon(output);
  merapi_lease_end(lease);
  merapi_close(file);
  for (const uint32_t flags : {0u, static_cast<uint32_t>(MERAPI_OPEN_READONLY)}) {
    ASSERT_EQ(merapi_open(name.c_str(), nullptr, flags, &file, &error_), 0) << error_.message;
    expect_closed("opening a window file");
    merapi_close(file);
  }

  Socket::SetUp();
  expect_closed("making a window for a device");
  std::unique_ptr<DeviceThread> device;
  ASSERT_EQ(Attach(&device), 0) << error_.message;
  expect_closed("attaching");
  device.reset();
}

TEST_F(ClosedStreams, AreNoWindowsAndNoSockets) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int told = fcntl(2, F_DUPFD, 10);
    OpenAll();
    const ::testing::TestResult& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
    for (int i = 0; i < result.total_part_count(); i++) dprintf(told, "%s\n", result.GetTestPartResult(i).message());
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Socket, TwoWindowsAtOnce) {
  merapi_window* other = nullptr;
  const merapi_geometry geometry = SmallGeometry();
  ASSERT_EQ(merapi_open(path_.c_str(), &geometry, 0, &other, &error_), 0) << error_.message;
  EXPECT_STREQ(merapi_transport_name(other), "device");
  std::unique_ptr<DeviceThread> first, second;
  ASSERT_EQ(Attach(&first), 0) << error_.message;
  std::swap(window_, other);
  ASSERT_EQ(Attach(&second), 0) << error_.message;
  merapi_limit_set(window_, 0, 1);
  EXPECT_EQ(merapi_limit_get(other, 0), 0u);
  merapi_close(other);
}

TEST(SocketOpen, NeedsAGeometryAndIsNotForInspection) {
  merapi_window* window = nullptr;
  merapi_error error{};
  const merapi_geometry geometry = SmallGeometry();
  EXPECT_EQ(merapi_open("device:/nowhere/socket", nullptr, 0, &window, &error), -EINVAL);
  EXPECT_EQ(merapi_open("device:/nowhere/socket", &geometry, MERAPI_OPEN_READONLY, &window, &error), -EINVAL);
  ASSERT_EQ(merapi_open("device:/nowhere/socket", &geometry, 0, &window, &error), 0) << error.message;
  EXPECT_TRUE(merapi_device_gone(window));
  EXPECT_EQ(merapi_attach(window, 1000, &error), -ENODEV);
  merapi_close(window);
  const std::string longest(200, 'x');
  EXPECT_EQ(merapi_open(("device:/" + longest).c_str(), &geometry, 0, &window, &error), -EINVAL);
}

TEST(SocketPath, IsTakenFromNoOtherProgram) {
  Folder folder;
  const std::string path = folder / "s";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  merapi_listener* listener = nullptr;
  merapi_error error{};
  for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
    const int other = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(other, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    for (const bool listens : {false, true}) {
      EXPECT_TRUE(!listens || type == SOCK_DGRAM || listen(other, 1) == 0);
      EXPECT_EQ(merapi_listen(path.c_str(), &listener, &error), -EADDRINUSE) << type << listens;
      EXPECT_NE(std::strstr(error.message, "another program listens there"), nullptr) << error.message;
      merapi_listener_close(listener);
      ASSERT_TRUE(std::filesystem::is_socket(path)) << type << listens;
    }
    close(other);
    // Now it is nobody's.
    ASSERT_EQ(merapi_listen(path.c_str(), &listener, &error), 0) << error.message;
    merapi_listener_close(listener);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  for (const bool folder_there : {false, true}) {
    if (folder_there)
      std::filesystem::create_directory(path);
    else
      std::ofstream(path) << "mine";
    EXPECT_EQ(merapi_listen(path.c_str(), &listener, &error), -EADDRINUSE);
    EXPECT_TRUE(std::filesystem::exists(path));
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace merapi_test
