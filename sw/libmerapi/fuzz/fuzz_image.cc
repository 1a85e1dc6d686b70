// SPDX-License-Identifier: Apache-2.0
//
// Opening and loading a file that claims to be a saved window. Checksums do not count in this build.
#include "fuzz.h"

using namespace merapi_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  MemoryFile file(0);
  file.Write(0, data, size);
  merapi_image* image = nullptr;
  merapi_error error{};
  const int status = merapi_image_open(file.path().c_str(), &image, &error);
  MUST((status == 0) == (image != nullptr) && status <= 0);
  if (status < 0) {
    MUST(error.message[0] != '\0');
    return 0;
  }
  volatile uint64_t sum = std::strlen(merapi_image_json(image));
  const merapi_answers* answers = merapi_image_answers(image);
  for (uint64_t i = 0; i < answers->count; i++)
    for (uint64_t r = answers->first[i]; r < answers->first[i + 1]; r++) sum = sum + answers->reference[r];
  merapi_geometry geometry;
  merapi_image_geometry(image, &geometry);
  if (merapi_image_window_bytes(image) <= UINT64_C(64) << 20) {
    const merapi_geometry small = SmallGeometry();
    merapi_window* window = nullptr;
    // Into one that may be too small and into one that its geometry asks for.
    MUST(merapi_open("device:/nowhere", &small, 0, &window, nullptr) == 0);
    if (merapi_image_load(image, window, &error) == 0) merapi_next_cycle(window);
    merapi_close(window);
    merapi_layout layout;
    if (merapi_layout_compute(&geometry, &layout, nullptr) == 0 && layout.window_bytes <= UINT64_C(64) << 20) {
      MUST(layout.window_bytes >= merapi_image_window_bytes(image));
      MUST(merapi_open("device:/nowhere", &geometry, 0, &window, nullptr) == 0);
      merapi_image_load(image, window, &error);
      merapi_close(window);
    }
  }
  merapi_image_close(image);
  return 0;
}
