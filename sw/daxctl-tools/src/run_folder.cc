// SPDX-License-Identifier: Apache-2.0
#include "run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cli.h"

namespace merapi::cli {

namespace {

// What has the name of a folder and cannot be opened as one.
std::string unopened(const std::string& folder, int code) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) return "another kind of file";
    if (status.st_uid != geteuid()) return "another user's";
  }
  return std::string("one that cannot be opened (") + strerror(code) + ")";
}

// As open_own_folder, of one that is there.
int open_present(const std::string& folder, const std::string& why) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const int code = errno;
  struct stat status {};
  const bool own = fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid();
  if (own && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return fd;
  if (fd >= 0) close(fd);
  throw Failure(kDenied, "expected a folder of your own at " + folder + ", into which nobody else writes, found " +
                             (own       ? "one that is open to others"
                              : fd >= 0 ? "another user's"
                                        : unopened(folder, code)) +
                             ": " + why);
}

std::string runs_of(const std::string& socket) { return socket + ".runs"; }

constexpr char kWhyRuns[] =
    "runs with this socket leave there what they know of each other; remove it or name another socket with --socket or "
    "MERAPI_SOCKET";

}  // namespace

void make_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) < 0 && errno != EEXIST) throw system_failure(errno, "cannot make " + folder);
}

int open_own_folder(const std::string& folder, const std::string& why) {
  make_folder(folder);
  return open_present(folder, why);
}

std::string why_no_folder(const std::string& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) == 0) return {};
  int code = errno;
  if (code == ENOENT) {
    const std::string parent = std::filesystem::path(folder).parent_path().string();
    if (access(parent.empty() ? "." : parent.c_str(), W_OK | X_OK) == 0) return {};
    code = errno;
  }
  return "cannot make " + folder + ": " + strerror(code);
}

std::string why_no_own_folder(const std::string& folder, const std::string& why) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) < 0) return why_no_folder(folder);
  try {
    close(open_present(folder, why));
    return {};
  } catch (const Failure& e) {
    return e.what();
  }
}

RunFolder::RunFolder(const std::string& socket) : path_(runs_of(socket)), fd_(open_own_folder(path_, kWhyRuns)) {}

std::string RunFolder::why_none(const std::string& socket) { return why_no_own_folder(runs_of(socket), kWhyRuns); }

RunFolder::~RunFolder() { close(fd_); }

int RunFolder::open_file(const char* name, int flags) const {
  return openat(fd_, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

std::string RunFolder::read_file(const char* name) const {
  std::string text;
  const int fd = open_file(name, O_RDONLY);
  char block[4096];
  for (ssize_t got = 1; fd >= 0 && got > 0;) {
    got = read(fd, block, sizeof block);
    if (got > 0) text.append(block, size_t(got));
    if (got < 0 && errno == EINTR) got = 1;
  }
  if (fd >= 0) close(fd);
  return text;
}

void RunFolder::write_file(const char* name, const std::string& text) const {
  const std::string next = std::string(name) + ".new";
  const int fd = open_file(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  int code = fd < 0 ? errno : 0;
  if (fd >= 0) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written != ssize_t(text.size())) code = written < 0 ? errno : ENOSPC;
    if (close(fd) < 0 && code == 0) code = errno;
  }
  if (code == 0 && renameat(fd_, next.c_str(), fd_, name) < 0) code = errno;
  if (code == 0) return;
  unlinkat(fd_, next.c_str(), 0);
  throw system_failure(code, "cannot write " + path_of(name));
}

void RunFolder::remove_file(const char* name) const { unlinkat(fd_, name, 0); }

}  // namespace merapi::cli
