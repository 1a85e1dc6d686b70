// SPDX-License-Identifier: Apache-2.0
// Server side of the vfio-user protocol (version 0.1), as much as a function without DMA of its own needs. Source:
// "vfio-user Protocol Specification" of QEMU's documentation, docs/interop/vfio-user.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "socket_path.h"
#include "tracer_function.h"

namespace merapi::pci {

class VfioUserServer {
 public:
  // Listens at the unix socket `path`; a stale socket is replaced, anything else is refused. Throws std::runtime_error.
  VfioUserServer(const std::string& path, TracerFunction& function);
  ~VfioUserServer();
  VfioUserServer(const VfioUserServer&) = delete;
  VfioUserServer& operator=(const VfioUserServer&) = delete;

  // Serves one client after the other until `stop_fd` is readable. A client that breaks the protocol is dropped with a
  // line on standard error; another line there tells of each client that is served no more, whoever ended it.
  void run(int stop_fd);

 private:
  class Connection;
  struct Message;

  void serve(const Connection& client);
  bool receive(const Connection& client, Message* message);
  // Executes a message. Returns 0 and the payload of the reply, or an errno.
  int execute(Message& message, std::vector<uint8_t>* reply);
  int region_info(const Message& message, std::vector<uint8_t>* reply);
  int irq_info(const Message& message, std::vector<uint8_t>* reply);
  int set_irqs(Message& message);
  int access(const Message& message, bool write, std::vector<uint8_t>* reply);
  void drop_vectors();

  merapi_socket_path path_{};
  TracerFunction& function_;
  int listener_ = -1;
};

}  // namespace merapi::pci
