// SPDX-License-Identifier: Apache-2.0
//
// SOCKET.runs: what runs that share a device's socket leave for each other. A folder of its own, made for its user
// alone: a socket may be named in a folder of all, beside files and links of anybody.
#ifndef MERAPI_DAXCTL_TOOLS_RUN_FOLDER_H_
#define MERAPI_DAXCTL_TOOLS_RUN_FOLDER_H_

#include <string>

namespace merapi::cli {

// For its user alone; one that is there stays as it is. Throws Failure.
void make_folder(const std::string& folder);

// A descriptor, the caller's, of the folder that is there now, or of a new one. Throws Failure when what has its name
// is not a folder of this user's into which nobody else writes, or cannot be opened, with `why` that matters and what
// to do.
int open_own_folder(const std::string& folder, const std::string& why);

// Why make_folder, and open_own_folder, would throw; empty when they would not. Nothing is made.
std::string why_no_folder(const std::string& folder);
std::string why_no_own_folder(const std::string& folder, const std::string& why);

class RunFolder {
 public:
  // As open_own_folder.
  explicit RunFolder(const std::string& socket);
  // As why_no_own_folder.
  static std::string why_none(const std::string& socket);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // A descriptor of the file, which is the caller's, made with mode 0600 when there is none (O_CREAT in `flags`); -1
  // with errno. Links are not followed.
  int open_file(const char* name, int flags) const;
  // All of it; empty when there is none.
  std::string read_file(const char* name) const;
  // All of it or, on a file system that is full, what was there before: throws Failure.
  void write_file(const char* name, const std::string& text) const;
  void remove_file(const char* name) const;
  std::string path_of(const char* name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
  const int fd_;
};

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_RUN_FOLDER_H_
