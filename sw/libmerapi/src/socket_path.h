/* SPDX-License-Identifier: Apache-2.0
 *
 * The name of a listening unix socket in the file system, for the device process and for the PCI front of qemu-cxl.
 */
#ifndef MERAPI_SOCKET_PATH_H_
#define MERAPI_SOCKET_PATH_H_

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "merapi/merapi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero: no name. */
struct merapi_socket_path {
  dev_t device; /* of the socket's file, to remove it only while it is still ours */
  ino_t inode;
  char path[sizeof(((struct sockaddr_un*)0)->sun_path)];
};

/* Bind `socket` to `path` and listen. A socket that its process has left behind makes way; anything else of that name
 * is left as it is: -EADDRINUSE. -EINVAL: the path is too long. `socket` stays the caller's. */
int merapi_socket_path_bind(struct merapi_socket_path* bound, int socket, const char* path, int backlog,
                            struct merapi_error* error);

/* Remove the name, unless it is another's by now. */
void merapi_socket_path_remove(const struct merapi_socket_path* bound);

#ifdef __cplusplus
}
#endif

#endif /* MERAPI_SOCKET_PATH_H_ */
