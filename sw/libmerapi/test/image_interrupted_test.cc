// SPDX-License-Identifier: Apache-2.0
//
// Saved windows whose writers are interrupted, and files that change places meanwhile.
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "image_fixture.h"
#include "stepped.h"

// What the library asks of the disk, in order: 'h' for a header, 't' for a text, 's' for all of it being on the disk.
// The process ends within call number `last` (counted from 0), with half of a text written: a header is within one
// page, of which a process that is killed writes all or nothing, and within one sector.
static std::string* calls = nullptr;
static int last = -1;

static void EndAt(char call) {
  calls->push_back(call);
  if (int(calls->size()) == last + 1) _exit(0);
}

// Called before a file is opened for reading and writing.
static std::function<void()>* before_open = nullptr;

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (before_open != nullptr && (flags & O_ACCMODE) == O_RDWR) (*before_open)();
  return int(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  if (calls != nullptr && at != 0 && int(calls->size()) == last) (void)!syscall(SYS_pwrite64, fd, data, bytes / 2, at);
  if (calls != nullptr) EndAt(at == 0 ? 'h' : 't');
  return syscall(SYS_pwrite64, fd, data, bytes, at);
}

extern "C" int fsync(int fd) {
  if (calls != nullptr) EndAt('s');
  return int(syscall(SYS_fsync, fd));
}

namespace merapi_test {
namespace {

// As a JVM does it: the text is blank until G1's time is known. The image was damaged.
TEST_F(Image, AnInterruptedTextLeavesTheImage) {
  const std::string blank = "{}" + std::string(1021, ' '), old = "{\"of\":\"old\"}" + std::string(1000, ' ');
  const std::string text = "{\"g1_mark_ms\":12.5,\"note\":\"" + std::string(800, 'x') + "\"}";
  for (const std::string& before : {blank, old}) {
    ASSERT_EQ(Save(nullptr, before.c_str()), 0) << error_.message;
    const std::string saved = ReadFile(image_);
    std::string all;
    calls = &all;
    ASSERT_EQ(merapi_image_annotate(image_.c_str(), text.c_str(), &error_), 0) << error_.message;
    calls = nullptr;
    EXPECT_EQ(all, before == blank ? "tshs" : "hstshs");
    for (int end = 0; end <= int(all.size()); end++) {
      WriteFile(image_, saved);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        std::string done;
        calls = &done;
        last = end;
        merapi_image_annotate(image_.c_str(), text.c_str(), nullptr);
        _exit(0);
      }
      ASSERT_EQ(waitpid(child, nullptr, 0), child);
      merapi_image* image = nullptr;
      ASSERT_EQ(OpenImage(&image), 0) << error_.message << " after " << end << " of " << all;
      std::string found = merapi_image_json(image);
      found.erase(found.find_last_not_of(' ') + 1);
      EXPECT_TRUE(found == (end == int(all.size()) ? text : "{}") || (end == 0 && before.rfind(found, 0) == 0) ||
                  (end + 1 == int(all.size()) && found == text))
          << found << " after " << end << " of " << all;
      EXPECT_EQ(merapi_image_load(image, window_, &error_), 0) << error_.message;
      merapi_image_close(image);
      // The next one writes all of it.
      ASSERT_EQ(merapi_image_annotate(image_.c_str(), text.c_str(), &error_), 0) << error_.message;
      ASSERT_EQ(OpenImage(&image), 0) << error_.message;
      EXPECT_EQ(std::string(merapi_image_json(image)).rfind(text, 0), 0u);
      merapi_image_close(image);
    }
  }
  // Other tables have no such second sum.
  std::string damaged = ReadFile(image_);
  damaged[128] ^= 1;
  WriteFile(image_, damaged);
  merapi_image* image = nullptr;
  EXPECT_EQ(OpenImage(&image), -EBADMSG);
}

// One that was interrupted leaves a window without its magic. Its next life's generations are others all the same.
TEST_F(Image, GenerationsGoOnAfterAnInterruptedLoad) {
  const std::string path = folder_ / "again";
  const merapi_geometry geometry = SmallGeometry();
  const uint64_t former = 101;
  for (const bool interrupted : {false, true}) {
    merapi_window* window = nullptr;
    const auto format = [&] {
      const int status =
          merapi_open(("file:" + path).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &window, &error_);
      if (status == 0) merapi_close(window);
      return status;
    };
    ASSERT_EQ(format(), 0) << error_.message;
    std::string content = ReadFile(path);
    std::memcpy(&content[MERAPI_HOST_INDEX_OFFSET], &former, sizeof former);
    if (interrupted) std::memset(content.data(), 0, 8);
    WriteFile(path, content);
    ASSERT_EQ(format(), 0) << error_.message;
    uint64_t now;
    std::memcpy(&now, &ReadFile(path)[MERAPI_HOST_INDEX_OFFSET], sizeof now);
    EXPECT_EQ(now, former) << "interrupted: " << interrupted;
    std::filesystem::remove(path);
  }
}

// A text for the file that was looked at, not for one that has taken its name since.
TEST_F(Image, AnotherFileOfItsNameGetsNoText) {
  ASSERT_EQ(Save(nullptr, ("{}" + std::string(40, ' ')).c_str()), 0) << error_.message;
  const std::string other = folder_ / "other.mwi";
  heap_[0] ^= 1;
  ASSERT_EQ(merapi_image_save(window_, other.c_str(), 1, nullptr, "{\"other\": 1}", &error_), 0) << error_.message;
  const std::string content = ReadFile(other);
  std::function<void()> replace = [&] { std::filesystem::rename(other, image_); };
  before_open = &replace;
  const int status = merapi_image_annotate(image_.c_str(), "{\"text\": 1}", &error_);
  before_open = nullptr;
  EXPECT_EQ(status, -EBUSY);
  EXPECT_NE(std::string(error_.message).find("to stay the same file"), std::string::npos) << error_.message;
  EXPECT_TRUE(ReadFile(image_) == content);
}

}  // namespace
}  // namespace merapi_test
