// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_RTL_TEST_PAGE_CHECK_H_
#define MERAPI_SIM_RTL_TEST_PAGE_CHECK_H_

#include <cstdint>

#include "sim/rtl/window_access.h"

namespace merapi::sim::rtl::test {

// What holds for every line of the control page that a tracer writes, whatever it was told: it is one of the device's,
// what nothing uses is zero, counts only grow within a generation and never exceed what the host has shown,
// acknowledgements are what the host asked for, and the first fault stays (contract, sections 4, 9, 10 and 13).
// `window`: its first byte, as it is before the line is written. Throws std::runtime_error that says what was written.
void check_page_write(const uint8_t* window, uint64_t address, const Line& line);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_PAGE_CHECK_H_
