// SPDX-License-Identifier: Apache-2.0
//
// Saved windows: what goes in comes out.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "image_fixture.h"

namespace merapi_test {
namespace {

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
