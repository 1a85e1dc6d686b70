// SPDX-License-Identifier: Apache-2.0
//
// Writes the seed inputs that are too large to be kept as text: a formatted control page and a small saved window.
// Usage: merapi_fuzz_seeds FOLDER
#include <sys/stat.h>

#include "fuzz.h"

using namespace merapi_fuzz;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::string folder = argv[1];
  for (const char* name : {"", "/window", "/rings", "/shapes", "/image"}) mkdir((folder + name).c_str(), 0755);
  MemoryFile file(UINT64_C(16) << 20);
  merapi_window* window = Format(file);
  merapi_shape shape{};
  shape.klass_word = 16;
  shape.kind = MERAPI_SHAPE_KIND_INSTANCE;
  shape.size_words = 40;
  shape.block_count = 5;
  const merapi_ref_block blocks[] = {{16, 1}, {32, 1}, {48, 1}, {64, 1}, {80, 1}};
  MUST(merapi_shape_put(window, &shape, blocks) == 0);
  const merapi_layout layout = *merapi_layout_of(window);
  const uint64_t bytes = layout.area[MERAPI_AREA_SHAPES].offset + layout.area[MERAPI_AREA_SHAPES].size;
  auto* metadata = static_cast<uint8_t*>(merapi_map_area(window, MERAPI_AREA_SUBMISSION)) -
                   layout.area[MERAPI_AREA_SUBMISSION].offset;
  FILE* out = std::fopen((folder + "/window/formatted").c_str(), "wb");
  MUST(out != nullptr && std::fwrite(metadata, 1, bytes, out) == bytes && std::fclose(out) == 0);
  out = std::fopen((folder + "/window/control-page").c_str(), "wb");
  MUST(out != nullptr && std::fwrite(metadata, 1, 4096, out) == 4096 && std::fclose(out) == 0);
  const uint64_t key[] = {0x100, 0x10};
  const uint8_t is_klass[] = {0, 1};
  const uint64_t first[] = {0, 2, 3};
  const uint64_t reference[] = {8, 16, 24};
  const merapi_answers answers = {2, key, is_klass, first, reference};
  MUST(merapi_image_save(window, (folder + "/image/saved").c_str(), 0, &answers, "{\"a\": 1}", nullptr) == 0);
  merapi_close(window);
  return 0;
}
