// SPDX-License-Identifier: Apache-2.0
//
// Opening a window whose control page (and what follows it) says anything.
#include <cerrno>

#include "fuzz.h"

using namespace merapi_fuzz;

static void Touch(merapi_window* window) {
  const merapi_layout* layout = merapi_layout_of(window);
  MUST(layout->window_bytes <= merapi_window_bytes(window));
  for (int i = 0; i < static_cast<int>(MERAPI_AREA_COUNT); i++) {
    const merapi_area_desc& area = layout->area[i];
    auto* at = static_cast<volatile uint8_t*>(merapi_map_area(window, static_cast<enum merapi_area>(i)));
    MUST((at != nullptr) == (area.size != 0));
    if (at == nullptr) continue;
    (void)at[0];
    (void)at[area.size - 1];
  }
  merapi_config config;
  merapi_get_config(window, &config);
  for (uint32_t region : {0u, config.region_count - 1, config.region_count, UINT32_MAX}) {
    merapi_limit_get(window, region);
    merapi_live_get(window, region);
    merapi_limit_set(window, region, 8);
    merapi_live_clear(window, region);
  }
  merapi_fault_record fault;
  merapi_fault_get(window, &fault);
  merapi_fault_name(fault.code);
  merapi_device_state(window);
  merapi_counter(window, MERAPI_COUNTER_ROUNDS);
  merapi_progress(window);
  merapi_next_cycle(window);
  struct merapi_shape_usage usage;
  merapi_shape_usage(window, &usage);
  MUST(usage.used + usage.tombstones <= usage.slots && usage.extension_used <= usage.extension_bytes);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kBytes = UINT64_C(16) << 20;
  MemoryFile file(kBytes);
  if (size > kBytes) return 0;
  file.Write(0, data, size);
  merapi_error error{};
  merapi_window* window = nullptr;
  for (uint32_t flags : {static_cast<uint32_t>(MERAPI_OPEN_READONLY), 0u}) {
    const int status = merapi_open(file.path().c_str(), nullptr, flags, &window, &error);
    MUST((status == 0) == (window != nullptr) && status <= 0);
    if (status < 0) {
      MUST(error.message[0] != '\0');
      continue;
    }
    if (flags == 0) MUST(merapi_attach(window, 0, &error) == -ENODEV);
    if (flags == 0) Touch(window);
    merapi_close(window);
  }
  return 0;
}
