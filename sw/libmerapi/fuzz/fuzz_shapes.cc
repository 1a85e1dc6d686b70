// SPDX-License-Identifier: Apache-2.0
//
// A shape table that holds anything, then any sequence of calls on it.
#include <cerrno>
#include <vector>

#include "fuzz.h"

using namespace merapi_fuzz;

static constexpr uint32_t kSlots = SmallGeometry().shape_slots;

static void Call(merapi_window* window, Input& input) {
  const uint8_t what = input.Take<uint8_t>();
  merapi_shape shape{};
  shape.klass_word = what & 0x80 ? input.Take<uint64_t>() : input.Take<uint8_t>() * UINT64_C(0x9) % (2 * kSlots);
  merapi_shape got;
  merapi_ref_block back[64];
  if (what % 4 == 0) {
    merapi_shape_remove(window, shape.klass_word);
    MUST(merapi_shape_get(window, shape.klass_word, &got, back, 64) < 0 || shape.klass_word == 0);
  } else if (what % 4 == 1) {
    merapi_shape_get(window, shape.klass_word, &got, back, input.Take<uint8_t>() % 65);
  } else {
    shape.kind = input.Take<uint8_t>() % 10;
    shape.size_words = input.Take<uint16_t>();
    shape.header_bytes = input.Take<uint8_t>();
    shape.element_log2 = input.Take<uint8_t>() % 5;
    shape.block_count = input.Take<uint8_t>() % 64;
    std::vector<merapi_ref_block> blocks(shape.block_count + 1);
    uint32_t offset = 8;
    for (uint32_t i = 0; i < shape.block_count; i++) {
      blocks[i] = {offset, 1u + input.Take<uint8_t>() % 4};
      offset += 4 * blocks[i].count + input.Take<uint8_t>() % 3 * 4;
    }
    const int status = merapi_shape_put(window, &shape, blocks.data());
    MUST(status == 0 || status == -EINVAL || status == -ENOSPC);
    if (status == 0) {
      MUST(merapi_shape_get(window, shape.klass_word, &got, back, 64) == 0);
      MUST(got.kind == shape.kind && got.size_words == shape.size_words && got.block_count == shape.block_count);
      MUST(std::memcmp(back, blocks.data(), shape.block_count * sizeof *back) == 0);
    }
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  MemoryFile file(UINT64_C(16) << 20);
  merapi_window* window = Format(file);
  const merapi_area_desc table = merapi_layout_of(window)->area[MERAPI_AREA_SHAPES];
  merapi_close(window);
  // Start with some slots from the input, or with an empty table.
  const uint64_t slots = input.Take<uint8_t>() % (kSlots + 1);
  for (uint64_t i = 0; i < slots; i++) {
    const auto slot = input.Take<merapi_shape>();
    file.Write(table.offset + i * sizeof slot, &slot, sizeof slot);
  }
  if (merapi_open(file.path().c_str(), nullptr, 0, &window, nullptr) < 0) return 0;
  while (!input.Done()) Call(window, input);
  struct merapi_shape_usage usage;
  merapi_shape_usage(window, &usage);
  MUST(usage.used + usage.tombstones <= usage.slots && usage.extension_used <= usage.extension_bytes);
  merapi_shape_clear(window);
  merapi_close(window);
  return 0;
}
