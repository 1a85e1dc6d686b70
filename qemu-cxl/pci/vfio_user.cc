// SPDX-License-Identifier: Apache-2.0
#include "vfio_user.h"

#include <errno.h>
#include <linux/vfio.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace merapi::pci {
namespace {

enum Command : uint16_t {
  kVersionCommand = 1,
  kDmaMap = 2,
  kDmaUnmap = 3,
  kDeviceInfo = 4,
  kRegionInfo = 5,
  kRegionFds = 6,
  kIrqInfo = 7,
  kSetIrqs = 8,
  kRegionRead = 9,
  kRegionWrite = 10,
  kDeviceReset = 13,
};

struct Header {
  uint16_t id;
  uint16_t command;
  uint32_t bytes;  // this header included
  uint32_t flags;
  uint32_t error;
};
static_assert(sizeof(Header) == 16, "the protocol's header");

constexpr uint32_t kReplyFlag = 1, kNoReplyFlag = 0x10, kErrorFlag = 0x20;
constexpr size_t kMostFds = 8;
// Longest message taken: registers are small, and this is told to the client.
constexpr uint32_t kMostBytes = 1 << 16;
constexpr char kCapabilities[] = R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096}})";

struct RegionAccess {
  uint64_t offset;
  uint32_t region;
  uint32_t count;
};
static_assert(sizeof(RegionAccess) == 16, "the protocol's region access");

template <typename T>
bool take(const std::vector<uint8_t>& from, T* to) {
  if (from.size() < sizeof *to) return false;
  memcpy(to, from.data(), sizeof *to);
  return true;
}

template <typename T>
void give(const T& from, std::vector<uint8_t>* to) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&from);
  to->assign(bytes, bytes + sizeof from);
}

}  // namespace

// A client's socket. Whatever waits for the client ends when `stop` is readable.
class VfioUserServer::Connection {
 public:
  Connection(int client, int stop) : client_(client), stop_(stop) {}
  ~Connection() { close(client_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The first bytes of a message with the descriptors that come with it, as recvmsg does. 0 or less: the connection is
  // over.
  ssize_t receive(msghdr* header) const {
    ssize_t got = -1;
    while (wait(POLLIN)) {
      got = recvmsg(client_, header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
      if (got >= 0 || !passing(errno)) return got;
    }
    return got;
  }

  bool read_all(uint8_t* data, size_t bytes) const {
    while (bytes > 0) {
      if (!wait(POLLIN)) return false;
      const ssize_t got = recv(client_, data, bytes, MSG_DONTWAIT);
      if (got < 0 && passing(errno)) continue;
      if (got <= 0) return false;
      data += got;
      bytes -= size_t(got);
    }
    return true;
  }

  bool write_all(const std::vector<uint8_t>& data) const {
    size_t done = 0;
    while (done < data.size()) {
      if (!wait(POLLOUT)) return false;
      const ssize_t put = send(client_, data.data() + done, data.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put < 0 && passing(errno)) continue;
      if (put <= 0) return false;
      done += size_t(put);
    }
    return true;
  }

 private:
  static bool passing(int error) { return error == EINTR || error == EAGAIN; }

  // False when the server is to stop.
  bool wait(short events) const {
    for (;;) {
      pollfd fds[2] = {{stop_, POLLIN, 0}, {client_, events, 0}};
      if (poll(fds, 2, -1) < 0 && errno != EINTR) return false;
      if (fds[0].revents != 0) return false;
      if (fds[1].revents != 0) return true;
    }
  }

  int client_, stop_;
};

struct VfioUserServer::Message {
  Header header{};
  std::vector<uint8_t> payload;
  std::vector<int> fds;

  ~Message() {
    for (int fd : fds) close(fd);
  }
  // The descriptor at `index`, which the caller owns from now on; -1 when the message has none.
  int take_fd(size_t index) {
    if (index >= fds.size()) return -1;
    int fd = fds[index];
    fds[index] = -1;
    return fd;
  }
};

VfioUserServer::VfioUserServer(const std::string& path, TracerFunction& function) : function_(function) {
  merapi_error error{};
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) throw std::runtime_error(std::string("cannot make a socket: ") + strerror(errno));
  if (merapi_socket_path_bind(&path_, listener_, path.c_str(), 1, &error) < 0) {
    close(listener_);
    throw std::runtime_error(error.message);
  }
}

VfioUserServer::~VfioUserServer() {
  merapi_socket_path_remove(&path_);
  close(listener_);
}

void VfioUserServer::run(int stop_fd) {
  for (;;) {
    pollfd fds[2] = {{stop_fd, POLLIN, 0}, {listener_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) throw std::runtime_error(std::string("poll: ") + strerror(errno));
    if (fds[0].revents != 0) return;
    if (fds[1].revents == 0) continue;
    int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    serve(Connection(client, stop_fd));
    drop_vectors();
    // A machine whose client this was has lost the function: it does not come back.
    fds[0].revents = 0;
    if (poll(fds, 1, 0) == 0) fprintf(stderr, "merapi-pci-front: the connection to a client ended\n");
  }
}

void VfioUserServer::serve(const Connection& client) {
  for (;;) {
    Message message;
    if (!receive(client, &message)) return;
    std::vector<uint8_t> payload;
    const int error = execute(message, &payload);
    if (error != 0) fprintf(stderr, "merapi-pci-front: command %u: %s\n", message.header.command, strerror(error));
    if ((message.header.flags & kNoReplyFlag) != 0) continue;
    if (error != 0) payload.clear();
    Header header = {message.header.id, message.header.command, uint32_t(sizeof(Header) + payload.size()),
                     kReplyFlag | (error != 0 ? kErrorFlag : 0), uint32_t(error)};
    std::vector<uint8_t> reply;
    give(header, &reply);
    reply.insert(reply.end(), payload.begin(), payload.end());
    if (!client.write_all(reply)) return;
  }
}

bool VfioUserServer::receive(const Connection& client, Message* message) {
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int) * kMostFds)];
  iovec part = {&message->header, sizeof message->header};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t got = client.receive(&header);
  if (got <= 0) return false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = message->fds.size();
    message->fds.resize(before + count);
    memcpy(message->fds.data() + before, CMSG_DATA(c), count * sizeof(int));
  }
  if (size_t(got) < sizeof message->header &&
      !client.read_all(reinterpret_cast<uint8_t*>(&message->header) + got, sizeof message->header - size_t(got)))
    return false;
  const uint32_t bytes = message->header.bytes;
  if (bytes < sizeof(Header) || bytes > kMostBytes || (header.msg_flags & MSG_CTRUNC) != 0) {
    fprintf(stderr, "merapi-pci-front: expected a message of 16 to %u bytes and at most %zu descriptors, found %u\n",
            kMostBytes, kMostFds, bytes);
    return false;
  }
  message->payload.resize(bytes - sizeof(Header));
  return client.read_all(message->payload.data(), message->payload.size());
}

int VfioUserServer::execute(Message& message, std::vector<uint8_t>* reply) {
  switch (message.header.command) {
    case kVersionCommand: {
      uint16_t version[2];
      if (!take(message.payload, &version)) return EINVAL;
      if (version[0] != 0) return EINVAL;
      give(version, reply);
      reply->insert(reply->end(), kCapabilities, kCapabilities + sizeof kCapabilities);
      return 0;
    }
    case kDmaMap:
      return 0;  // the window is reached through its file; nothing of the guest's own memory is touched
    case kDmaUnmap:
      *reply = message.payload;
      return 0;
    case kDeviceInfo: {
      const uint32_t info[4] = {sizeof info, VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET, VFIO_PCI_NUM_REGIONS,
                                VFIO_PCI_NUM_IRQS};
      give(info, reply);
      return 0;
    }
    case kRegionInfo:
      return region_info(message, reply);
    case kIrqInfo:
      return irq_info(message, reply);
    case kSetIrqs:
      return set_irqs(message);
    case kRegionRead:
      return access(message, false, reply);
    case kRegionWrite:
      return access(message, true, reply);
    case kDeviceReset:
      function_.reset();
      return 0;
    default:
      return ENOTSUP;
  }
}

int VfioUserServer::region_info(const Message& message, std::vector<uint8_t>* reply) {
  vfio_region_info info{};
  if (!take(message.payload, &info)) return EINVAL;
  const uint32_t index = info.index;
  info = {};
  info.argsz = sizeof info;
  info.index = index;
  if (index == VFIO_PCI_CONFIG_REGION_INDEX) info.size = kConfigBytes;
  if (index == VFIO_PCI_BAR0_REGION_INDEX || index == VFIO_PCI_BAR2_REGION_INDEX) info.size = kBarBytes;
  if (info.size != 0) info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
  give(info, reply);
  return index < VFIO_PCI_NUM_REGIONS ? 0 : EINVAL;
}

int VfioUserServer::irq_info(const Message& message, std::vector<uint8_t>* reply) {
  vfio_irq_info info{};
  if (!take(message.payload, &info)) return EINVAL;
  const uint32_t index = info.index;
  info = {};
  info.argsz = sizeof info;
  info.index = index;
  if (index == VFIO_PCI_MSIX_IRQ_INDEX) {
    info.count = kVectors;
    info.flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE;
  }
  give(info, reply);
  return index < VFIO_PCI_NUM_IRQS ? 0 : EINVAL;
}

int VfioUserServer::set_irqs(Message& message) {
  vfio_irq_set set{};
  if (!take(message.payload, &set)) return EINVAL;
  if (set.index != VFIO_PCI_MSIX_IRQ_INDEX) return set.count == 0 ? 0 : EINVAL;
  if (set.start > kVectors || set.count > kVectors - set.start) return EINVAL;
  if (set.count == 0) {
    drop_vectors();
  } else if ((set.flags & VFIO_IRQ_SET_DATA_EVENTFD) != 0) {
    for (uint32_t i = 0; i < set.count; i++) function_.set_vector(set.start + i, message.take_fd(i));
  } else {
    return ENOTSUP;
  }
  return 0;
}

int VfioUserServer::access(const Message& message, bool write, std::vector<uint8_t>* reply) {
  RegionAccess request;
  if (!take(message.payload, &request)) return EINVAL;
  if (request.count > kConfigBytes) return EINVAL;
  if (write && message.payload.size() - sizeof request < request.count) return EINVAL;
  give(request, reply);
  if (!write) reply->resize(sizeof request + request.count);
  uint8_t* out = reply->data() + sizeof request;
  const uint8_t* in = message.payload.data() + sizeof request;
  switch (request.region) {
    case VFIO_PCI_CONFIG_REGION_INDEX:
      if (write)
        function_.write_config(request.offset, in, request.count);
      else
        function_.read_config(request.offset, out, request.count);
      return 0;
    case VFIO_PCI_BAR0_REGION_INDEX:
      if (write)
        function_.write_register(request.offset, in, request.count);
      else
        function_.read_register(request.offset, out, request.count);
      return 0;
    case VFIO_PCI_BAR2_REGION_INDEX:
      return 0;  // the monitor keeps the table; what it asks here reads as zero
    default:
      return EINVAL;
  }
}

void VfioUserServer::drop_vectors() {
  for (uint32_t v = 0; v < kVectors; v++) function_.set_vector(v, -1);
}

}  // namespace merapi::pci
