// SPDX-License-Identifier: Apache-2.0
//
// Saved windows: what goes in comes out, and what is damaged is refused.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

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

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class Image : public Stepped {
 protected:
  void SetUp() override {
    Stepped::SetUp();
    merapi_config config;
    merapi_get_config(window_, &config);
    config.heap_base = 0x700000000;
    config.oop_bytes = 4;
    ASSERT_EQ(merapi_configure(window_, &config, &error_), 0) << error_.message;
    heap_ = static_cast<uint8_t*>(merapi_map_area(window_, MERAPI_AREA_HEAP));
    std::mt19937 random(7);
    for (uint64_t page : {0, 1, 2, 500, 700, 701, 2047})
      for (int i = 0; i < 4096; i++) heap_[page * 4096 + i] = static_cast<uint8_t>(random());
    merapi_limit_set(window_, 2, 0x212340);
    merapi_shape shape{};
    shape.klass_word = 0x800000100;
    shape.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    shape.header_bytes = 16;
    ASSERT_EQ(merapi_shape_put(window_, &shape, nullptr), 0);
  }
  int Save(const merapi_answers* answers = nullptr, const char* json = nullptr, uint32_t bitmap = 1) {
    return merapi_image_save(window_, image_.c_str(), bitmap, answers, json, &error_);
  }
  bool NothingBeside(const std::set<std::string>& expected) {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(image_).parent_path()))
      found.insert(entry.path().filename());
    return found == expected;
  }
  int OpenImage(merapi_image** image) { return merapi_image_open(image_.c_str(), image, &error_); }
  std::string image_ = folder_ / "saved.mwi";
  uint8_t* heap_ = nullptr;
};

TEST_F(Image, KeepsItsLayoutWhateverTheDefaultsAre) {
  merapi_geometry geometry = SmallGeometry();
  geometry.spill_bytes = merapi_layout_of(window_)->area[MERAPI_AREA_SPILL].size / 2;
  merapi_window* odd = nullptr;
  ASSERT_EQ(merapi_open(("file:" + (folder_ / "odd")).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &odd,
                        &error_),
            0)
      << error_.message;
  const merapi_layout layout = *merapi_layout_of(odd);
  ASSERT_EQ(layout.area[MERAPI_AREA_SPILL].size, geometry.spill_bytes);
  ASSERT_EQ(merapi_image_save(odd, image_.c_str(), 0, nullptr, nullptr, &error_), 0) << error_.message;
  merapi_close(odd);

  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  merapi_geometry wanted;
  merapi_image_geometry(image, &wanted);
  EXPECT_EQ(wanted.spill_bytes, geometry.spill_bytes);
  // Into a window laid out by today's defaults: it has the room, and the image's layout counts.
  ASSERT_EQ(merapi_image_load(image, window_, &error_), 0) << error_.message;
  EXPECT_EQ(std::memcmp(merapi_layout_of(window_)->area, layout.area, sizeof layout.area), 0);
  merapi_image_close(image);
}

TEST_F(Image, ComesBackAsItWas) {
  const uint64_t key[] = {0x700000100, 0x800000100, 0x700000040};
  const uint8_t is_klass[] = {0, 1, 0};
  const uint64_t first[] = {0, 2, 2, 3};
  const uint64_t reference[] = {11, 12, 13};
  const merapi_answers answers = {3, key, is_klass, first, reference};
  ASSERT_EQ(Save(&answers, "{\"marking_ms\": 12}"), 0) << error_.message;
  EXPECT_LT(std::filesystem::file_size(image_), 32u * 4096);  // zeros are not stored

  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  EXPECT_EQ(merapi_image_bitmap(image), 1u);
  EXPECT_STREQ(merapi_image_json(image), "{\"marking_ms\": 12}");
  const merapi_answers* back = merapi_image_answers(image);
  ASSERT_EQ(back->count, 3u);
  EXPECT_EQ(back->key[0], 0x700000040u);
  EXPECT_EQ(back->key[1], 0x700000100u);
  EXPECT_EQ(back->key[2], 0x800000100u);
  EXPECT_EQ(back->is_klass[2], 1);
  EXPECT_EQ(back->first[1] - back->first[0], 1u);
  EXPECT_EQ(back->reference[back->first[1]], 11u);
  EXPECT_EQ(back->reference[back->first[1] + 1], 12u);
  EXPECT_EQ(back->first[3], 3u);

  merapi_geometry geometry;
  merapi_image_geometry(image, &geometry);
  merapi_window* other = nullptr;
  ASSERT_EQ(merapi_open(("file:" + (folder_ / "other")).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE,
                        &other, &error_),
            0)
      << error_.message;
  EXPECT_GE(merapi_window_bytes(other), merapi_image_window_bytes(image));
  std::memset(merapi_map_area(other, MERAPI_AREA_HEAP), 0xEE, geometry.heap_bytes);
  auto* control = static_cast<uint8_t*>(merapi_map_area(other, MERAPI_AREA_SUBMISSION)) -
                  merapi_layout_of(other)->area[MERAPI_AREA_SUBMISSION].offset;
  const uint64_t generation = 1001;  // this window had a life of its own, and its generations go on
  std::memcpy(control + MERAPI_HOST_INDEX_OFFSET, &generation, sizeof generation);
  ASSERT_EQ(merapi_image_load(image, other, &error_), 0) << error_.message;
  EXPECT_GE(merapi_generation(other), generation);
  EXPECT_EQ(std::memcmp(merapi_map_area(other, MERAPI_AREA_HEAP), heap_, geometry.heap_bytes), 0);
  EXPECT_EQ(merapi_limit_get(other, 2), 0x212340u);
  merapi_shape shape;
  EXPECT_EQ(merapi_shape_get(other, 0x800000100, &shape, nullptr, 0), 0);
  merapi_config config;
  merapi_get_config(other, &config);
  EXPECT_EQ(config.heap_base, 0x700000000u);
  EXPECT_EQ(merapi_generation(other) % 2, 1u);
  merapi_image_close(image);
  merapi_close(other);
  // The loaded window is one that can be opened and served.
  ASSERT_EQ(merapi_open((folder_ / "other").c_str(), nullptr, 0, &other, &error_), 0) << error_.message;
  merapi_lease* lease = nullptr;
  ASSERT_EQ(merapi_serve((folder_ / "other").c_str(), &lease, &error_), 0) << error_.message;
  {
    DeviceThread device(lease);
    EXPECT_EQ(merapi_attach(other, 10000000, &error_), 0) << error_.message;
    merapi_close(other);
  }
}

TEST_F(Image, WithoutAnswersAndText) {
  ASSERT_EQ(Save(), 0) << error_.message;
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  EXPECT_EQ(merapi_image_answers(image)->count, 0u);
  EXPECT_EQ(merapi_image_answers(image)->first[0], 0u);
  EXPECT_STREQ(merapi_image_json(image), "{}");
  merapi_image_close(image);
}

TEST_F(Image, SavingTwiceGivesTheSameBytes) {
  ASSERT_EQ(Save(), 0);
  const std::string one = ReadFile(image_);
  ASSERT_EQ(Save(), 0);
  EXPECT_EQ(one, ReadFile(image_));
}

TEST_F(Image, BadArgumentsAreRefused) {
  EXPECT_EQ(Save(nullptr, nullptr, 2), -EINVAL);
  const uint64_t key[] = {5, 5};
  const uint8_t is_klass[] = {0, 0};
  const uint64_t first[] = {0, 1, 1}, falling[] = {0, 1, 0};
  const uint64_t reference[] = {1};
  const merapi_answers twice = {2, key, is_klass, first, reference};
  EXPECT_EQ(Save(&twice), -EINVAL);
  const merapi_answers disordered = {2, key, is_klass, falling, reference};
  EXPECT_EQ(Save(&disordered), -EINVAL);
  EXPECT_FALSE(std::filesystem::exists(image_));
  EXPECT_TRUE(NothingBeside({"window"}));
  EXPECT_EQ(merapi_image_save(window_, "/nowhere/at/all", 0, nullptr, nullptr, &error_), -ENOENT);
}

TEST_F(Image, IsForItsOwnerAloneAndTakesNoNameOfOthers) {
  const std::string other = image_ + ".tmp", linked = folder_ / "linked";
  WriteFile(other, "mine");
  WriteFile(image_, "before");
  ASSERT_EQ(Save(), 0) << error_.message;
  EXPECT_EQ(ReadFile(other), "mine");
  struct stat status {};
  ASSERT_EQ(stat(image_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_TRUE(NothingBeside({"window", "saved.mwi", "saved.mwi.tmp"}));
  // A link stays, what it leads to is replaced.
  WriteFile(linked, "before");
  std::filesystem::remove(image_);
  std::filesystem::create_symlink(linked, image_);
  ASSERT_EQ(Save(), 0) << error_.message;
  EXPECT_TRUE(std::filesystem::is_symlink(image_));
  EXPECT_EQ(ReadFile(linked).substr(0, 8), "MERAPIMG");
}

TEST_F(Image, NothingIsLeftOfAKilledWriter) {
  const int nameless = open(std::filesystem::path(image_).parent_path().c_str(), O_RDWR | O_TMPFILE, 0600);
  if (nameless < 0) GTEST_SKIP() << "files without a name: " << strerror(errno);
  close(nameless);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    merapi_output* output = nullptr;
    if (merapi_output_open(image_.c_str(), &output, nullptr) == 0 && write(merapi_output_fd(output), "half", 4) == 4)
      kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_TRUE(NothingBeside({"window"}));
}

// A file without a name could not get one.
bool CoverProc() {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

TEST_F(Image, IsWrittenWithoutProcToo) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    merapi_window* window = nullptr;  // of the child's own
    if (!CoverProc() || merapi_open(path_.c_str(), nullptr, MERAPI_OPEN_READONLY, &window, nullptr) < 0) _exit(1);
    _exit(merapi_image_save(window, image_.c_str(), 1, nullptr, nullptr, nullptr) == 0 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) GTEST_SKIP() << "no mounts for this user";
  ASSERT_EQ(status, 0);
  EXPECT_EQ(ReadFile(image_).substr(0, 8), "MERAPIMG");
  EXPECT_TRUE(NothingBeside({"window", "saved.mwi"}));
}

TEST_F(Image, DevicesAndPipesStayWhatTheyAre) {
  ASSERT_EQ(Save(), 0) << error_.message;
  const std::string expected = ReadFile(image_);
  std::filesystem::remove(image_);
  ASSERT_EQ(mkfifo(image_.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = ReadFile(image_); });
  EXPECT_EQ(Save(), 0) << error_.message;
  EXPECT_TRUE(std::filesystem::is_fifo(image_));
  // Were the pipe gone, nothing else would let the reader end.
  const int end = open(image_.c_str(), O_WRONLY | O_NONBLOCK);
  if (end >= 0) close(end);
  if (!std::filesystem::is_fifo(image_)) return reader.detach();
  reader.join();
  EXPECT_EQ(read, expected);
  merapi_image* image = nullptr;
  EXPECT_EQ(OpenImage(&image), -EPROTO) << "a pipe that nobody writes is not waited for";

  std::filesystem::remove(image_);
  std::filesystem::create_symlink("/dev/null", image_);
  EXPECT_EQ(Save(), 0) << error_.message;
  EXPECT_TRUE(std::filesystem::is_symlink(image_));
  EXPECT_TRUE(std::filesystem::is_character_file(image_));
}

TEST_F(Image, APipeThatNobodyReadsIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(image_.c_str(), 0600), 0);
  EXPECT_EQ(Save(), -ENXIO);
  EXPECT_NE(std::strstr(error_.message, "nobody reads it"), nullptr) << error_.message;
  EXPECT_TRUE(std::filesystem::is_fifo(image_));
  // One who comes a little later is; and takes what does not fit into the pipe at once.
  ASSERT_EQ(Save(nullptr, std::string(1 << 20, ' ').c_str()), -ENXIO);
  std::string read;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    read = ReadFile(image_);
  });
  EXPECT_EQ(Save(nullptr, std::string(1 << 20, ' ').c_str()), 0) << error_.message;
  reader.join();
  EXPECT_GT(read.size(), size_t{1} << 20);
}

TEST_F(Image, AnOutputThatIsADescriptorsIsKnown) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string pipe = "/proc/self/fd/" + std::to_string(ends[1]);
  WriteFile(image_, "before");
  const int file = open(image_.c_str(), O_WRONLY);
  EXPECT_TRUE(merapi_output_is(pipe.c_str(), ends[1]));
  EXPECT_TRUE(merapi_output_is(image_.c_str(), file));
  EXPECT_FALSE(merapi_output_is(image_.c_str(), ends[1]));
  EXPECT_FALSE(merapi_output_is(pipe.c_str(), file));
  EXPECT_FALSE(merapi_output_is((folder_ / "nothing").c_str(), file));
  for (const int fd : {ends[0], ends[1], file}) close(fd);
  EXPECT_FALSE(merapi_output_is(image_.c_str(), file));
}

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

// Where holes take a page to be read: on a tmpfs, which may be full.
TEST_F(Image, SavingTouchesNoHole) {
  merapi_geometry geometry = SmallGeometry();
  geometry.heap_bytes = UINT64_C(128) << 20;
  const std::string path = "/dev/shm/merapi-test-" + std::to_string(getpid());
  merapi_window* sparse = nullptr;
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  ASSERT_EQ(merapi_open(("file:" + path).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &sparse, &error_),
            0)
      << error_.message;
  const uint64_t heap = merapi_layout_of(sparse)->area[MERAPI_AREA_HEAP].offset;
  const int fd = open(path.c_str(), O_WRONLY);
  unlink(path.c_str());
  const std::set<uint64_t> pages = {0, 2, 3, 511, 512, 1000, 16383 - heap / 4096 % 16384, 16384, 20000, 32767};
  for (const uint64_t page : pages) ASSERT_EQ(pwrite(fd, "x", 1, static_cast<off_t>(heap + page * 4096)), 1);
  struct stat before {
  }, after{};
  fstat(fd, &before);
  EXPECT_EQ(merapi_image_save(sparse, image_.c_str(), 0, nullptr, nullptr, &error_), 0) << error_.message;
  fstat(fd, &after);
  EXPECT_EQ(before.st_blocks, after.st_blocks);
  close(fd);
  merapi_close(sparse);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  ASSERT_EQ(merapi_open("device:/nowhere/socket", &geometry, 0, &sparse, &error_), 0) << error_.message;
  ASSERT_EQ(merapi_image_load(image, sparse, &error_), 0) << error_.message;
  const auto* loaded = static_cast<const uint8_t*>(merapi_map_area(sparse, MERAPI_AREA_HEAP));
  std::set<uint64_t> found;
  for (uint64_t at = 0; at < geometry.heap_bytes; at += 4096)
    if (loaded[at] == 'x') found.insert(at / 4096);
  EXPECT_EQ(found, pages);
  merapi_close(sparse);
  merapi_image_close(image);
}

// A small image whose directory has a large area that nobody writes: loading it takes no memory for that.
TEST_F(Image, LoadingTakesOfTheTablesWhatIsUsed) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  constexpr uint64_t kClaimed = UINT64_C(256) << 20;
  merapi_geometry geometry = SmallGeometry();
  geometry.spill_bytes = kClaimed;
  const std::string path = "/dev/shm/merapi-test-" + std::to_string(getpid());
  merapi_window* window = nullptr;
  const auto open_new = [&] {
    return merapi_open(("file:" + path).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &window, &error_);
  };
  ASSERT_EQ(open_new(), 0) << error_.message;
  auto* areas = reinterpret_cast<merapi_directory*>(static_cast<uint8_t*>(merapi_map_area(window, MERAPI_AREA_SHAPES)) -
                                                    merapi_layout_of(window)->area[MERAPI_AREA_SHAPES].offset +
                                                    MERAPI_DIRECTORY_OFFSET)
                    ->area;
  areas[MERAPI_AREA_FORWARDING] = areas[MERAPI_AREA_SPILL];
  areas[MERAPI_AREA_FORWARDING].size -= 4096;
  areas[MERAPI_AREA_SPILL].offset += areas[MERAPI_AREA_FORWARDING].size;
  areas[MERAPI_AREA_SPILL].size = 4096;
  ASSERT_EQ(merapi_image_save(window, image_.c_str(), 0, nullptr, nullptr, &error_), 0) << error_.message;
  merapi_close(window);
  unlink(path.c_str());
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  EXPECT_LT(std::filesystem::file_size(image_), UINT64_C(1) << 20);
  ASSERT_EQ(open_new(), 0) << error_.message;
  const int fd = open(path.c_str(), O_RDONLY);
  unlink(path.c_str());
  EXPECT_EQ(merapi_image_load(image, window, &error_), 0) << error_.message;
  EXPECT_NE(merapi_layout_of(window)->area[MERAPI_AREA_FORWARDING].size, 0u);
  struct stat loaded {};
  fstat(fd, &loaded);
  EXPECT_LT(uint64_t(loaded.st_blocks) * 512, kClaimed / 16);
  close(fd);
  merapi_close(window);
  merapi_image_close(image);
}

// A window whose zeros are holes, as one's are that was loaded or copied: looking at it, or taking it over, gives it no
// page, and misses nothing.
TEST_F(Image, OpeningTouchesNoHole) {
  merapi_geometry geometry = SmallGeometry();
  geometry.shape_slots = 0;  // as many as there are by default
  geometry.submission_entries = 4096;
  const std::string path = "/dev/shm/merapi-test-" + std::to_string(getpid());
  merapi_window* sparse = nullptr;
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  ASSERT_EQ(merapi_open(("file:" + path).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &sparse, &error_),
            0)
      << error_.message;
  const merapi_layout layout = *merapi_layout_of(sparse);
  merapi_shape shape{};
  shape.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
  shape.header_bytes = 16;
  for (shape.klass_word = 0x800000000; shape.klass_word < 0x800000000 + 20 * 8; shape.klass_word += 8)
    ASSERT_EQ(merapi_shape_put(sparse, &shape, nullptr), 0);
  auto* ring = static_cast<merapi_submission*>(merapi_map_area(sparse, MERAPI_AREA_SUBMISSION));
  ring[3000].cycle = 77;
  const auto* metadata = static_cast<const uint8_t*>(merapi_map_area(sparse, MERAPI_AREA_SUBMISSION)) -
                         layout.area[MERAPI_AREA_SUBMISSION].offset;
  const int fd = open(path.c_str(), O_RDWR);
  const std::string zeros(4096, '\0');
  for (uint64_t at = 0; at < layout.metadata_bytes; at += 4096)
    if (std::memcmp(metadata + at, zeros.data(), 4096) == 0) {
      EXPECT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), 4096), 0);
    }
  merapi_close(sparse);
  struct stat before {
  }, after{};
  fstat(fd, &before);
  EXPECT_LT(before.st_blocks * 512, 40 * 4096);
  for (const uint32_t flags : {uint32_t(MERAPI_OPEN_READONLY), uint32_t(0)}) {
    EXPECT_EQ(merapi_open(path.c_str(), nullptr, flags, &sparse, &error_), 0) << error_.message;
    if (sparse == nullptr) break;
    struct merapi_shape_usage usage {};
    merapi_shape_usage(sparse, &usage);
    EXPECT_EQ(usage.used, 20u);
    EXPECT_EQ(merapi_next_cycle(sparse), 78u);
    merapi_close(sparse);
    fstat(fd, &after);
    EXPECT_EQ(before.st_blocks, after.st_blocks) << flags;
  }
  close(fd);
  unlink(path.c_str());
}

TEST_F(Image, WhatCannotBeWrittenIsRefusedAndStays) {
  std::filesystem::create_directory(image_);
  EXPECT_EQ(Save(), -EINVAL);
  EXPECT_NE(std::strstr(error_.message, "a folder"), nullptr) << error_.message;
  EXPECT_TRUE(std::filesystem::is_directory(image_));
  std::filesystem::remove(image_);
  std::filesystem::create_symlink("nothing", image_);
  EXPECT_EQ(Save(), -ENOENT);
  EXPECT_NE(std::strstr(error_.message, "leads nowhere"), nullptr) << error_.message;
  EXPECT_TRUE(std::filesystem::is_symlink(image_));
  EXPECT_TRUE(NothingBeside({"window", "saved.mwi"}));
  std::filesystem::remove(image_);
  ASSERT_EQ(mknod(image_.c_str(), S_IFSOCK | 0600, 0), 0);
  EXPECT_EQ(Save(), -EINVAL);
  EXPECT_TRUE(std::filesystem::is_socket(image_));
}

TEST_F(Image, EveryDamagedBitBeforeThePayloadIsSeen) {
  ASSERT_EQ(Save(nullptr, "{\"a\": 1}"), 0);
  const std::string good = ReadFile(image_);
  size_t payload = 0;
  while (good.compare(payload, 7, "MERAPI1") != 0) payload += 4096;
  merapi_image* image = nullptr;
  for (size_t at = 0; at < payload; at += at < 512 ? 1 : 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    WriteFile(image_, bad);
    const int status = OpenImage(&image);
    EXPECT_TRUE(status == -EBADMSG || status == -EPROTO) << at << " " << status;
  }
}

TEST_F(Image, DamagedPayloadIsNotLoaded) {
  ASSERT_EQ(Save(), 0);
  std::string bad = ReadFile(image_);
  bad[bad.size() - 100] ^= 1;
  WriteFile(image_, bad);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  merapi_limit_set(window_, 0, 5);
  EXPECT_EQ(merapi_image_check(image, &error_), -EBADMSG);
  EXPECT_EQ(merapi_image_load(image, window_, &error_), -EBADMSG);
  EXPECT_EQ(merapi_limit_get(window_, 0), 5u);  // untouched
  merapi_image_close(image);
}

// Somebody writes the file in place, once it was opened.
TEST_F(Image, WhatWasCheckedIsUsed) {
  const uint64_t key[] = {0x700000040}, first[] = {0, 2}, reference[] = {11, 12};
  const uint8_t is_klass[] = {0};
  const merapi_answers answers = {1, key, is_klass, first, reference};
  ASSERT_EQ(Save(&answers, "{\"a\": 1}"), 0);
  const std::string page(heap_, heap_ + 4096);
  std::string other = ReadFile(image_);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  const size_t payload = other.find("MERAPI1");
  ASSERT_EQ(payload % 4096, 0u);
  std::fill_n(other.begin(), payload, '\xff');
  WriteFile(image_, other);
  const merapi_answers* back = merapi_image_answers(image);
  EXPECT_EQ(back->first[1], 2u);
  EXPECT_EQ(back->reference[1], 12u);
  EXPECT_STREQ(merapi_image_json(image), "{\"a\": 1}");
  std::memset(heap_, 0, 4096);
  ASSERT_EQ(merapi_image_load(image, window_, &error_), 0) << error_.message;
  EXPECT_EQ(std::memcmp(merapi_map_area(window_, MERAPI_AREA_HEAP), page.data(), page.size()), 0);
  merapi_image_close(image);
}

TEST_F(Image, APayloadThatIsWrittenWhileItIsLoaded) {
  ASSERT_EQ(Save(), 0);
  std::string other = ReadFile(image_);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  ASSERT_EQ(merapi_image_check(image, &error_), 0);
  other[other.size() - 100] ^= 1;
  WriteFile(image_, other);
  EXPECT_EQ(merapi_image_load(image, window_, &error_), -EBADMSG);
  EXPECT_NE(std::strstr(error_.message, "nobody writes"), nullptr) << error_.message;
  merapi_window* none = nullptr;  // half of one and half of another is no window
  EXPECT_LT(merapi_open(("file:" + path_).c_str(), nullptr, MERAPI_OPEN_READONLY, &none, &error_), 0);
  merapi_image_close(image);
}

TEST_F(Image, WhatLiesBetweenTheAreasIsNotSaved) {
  const merapi_layout& layout = *merapi_layout_of(window_);
  std::map<uint64_t, uint64_t> areas;  // end by begin
  for (const merapi_area_desc& area : layout.area)
    if (area.size > 0) areas[area.offset] = area.offset + area.size;
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  const std::string former = "a former program's";
  int gaps = 0;
  for (auto at = areas.begin(); at != areas.end(); at++) {
    const uint64_t begin = (at->second + 4095) / 4096 * 4096;
    const uint64_t end = std::next(at) == areas.end() ? layout.window_bytes : std::next(at)->first;
    if (begin + 4096 > end) continue;
    gaps++;
    for (const uint64_t place : {begin, end - 4096})
      file.seekp(std::streamoff(place)).write(former.data(), ptrdiff_t(former.size()));
  }
  file.close();
  ASSERT_GT(gaps, 0);
  ASSERT_EQ(Save(), 0) << error_.message;
  EXPECT_EQ(ReadFile(image_).find(former), std::string::npos);
}

TEST_F(Image, TruncatedOrExtendedFilesAreRefused) {
  ASSERT_EQ(Save(), 0);
  const std::string good = ReadFile(image_);
  merapi_image* image = nullptr;
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{4096}, good.size() - 4096, good.size() - 1}) {
    WriteFile(image_, good.substr(0, size));
    EXPECT_LT(OpenImage(&image), 0) << size;
    EXPECT_EQ(image, nullptr);
  }
  WriteFile(image_, good + "x");
  EXPECT_EQ(OpenImage(&image), -EBADMSG);
  std::filesystem::remove(image_);
  EXPECT_EQ(OpenImage(&image), -ENOENT);
  EXPECT_EQ(merapi_image_open("/", &image, &error_), -EPROTO);
}

TEST_F(Image, NeedsAWindowThatIsLargeEnoughAndFree) {
  ASSERT_EQ(Save(), 0);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  merapi_geometry geometry = SmallGeometry();
  geometry.heap_bytes = UINT64_C(2) << 20;
  merapi_window* small = nullptr;
  ASSERT_EQ(merapi_open(("file:" + (folder_ / "small")).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE,
                        &small, &error_),
            0);
  EXPECT_EQ(merapi_image_load(image, small, &error_), -ENOSPC);
  merapi_close(small);
  ASSERT_EQ(Attach(), 0) << error_.message;
  EXPECT_EQ(merapi_image_load(image, window_, &error_), -EBUSY);
  merapi_image_close(image);
}

// Into a window that was laid out for another heap, and into a memfd.
TEST_F(Image, LoadsIntoAnotherLayout) {
  ASSERT_EQ(Save(), 0);
  merapi_image* image = nullptr;
  ASSERT_EQ(OpenImage(&image), 0) << error_.message;
  merapi_geometry geometry = SmallGeometry();
  geometry.heap_bytes = UINT64_C(64) << 20;
  geometry.submission_entries = 0;
  merapi_window* other = nullptr;
  ASSERT_EQ(merapi_open("device:/nowhere/socket", &geometry, 0, &other, &error_), 0) << error_.message;
  ASSERT_EQ(merapi_image_load(image, other, &error_), 0) << error_.message;
  EXPECT_EQ(merapi_layout_of(other)->area[MERAPI_AREA_HEAP].size, UINT64_C(8) << 20);
  EXPECT_EQ(std::memcmp(merapi_map_area(other, MERAPI_AREA_HEAP), heap_, UINT64_C(8) << 20), 0);
  merapi_close(other);
  merapi_image_close(image);
}

}  // namespace
}  // namespace merapi_test
