// SPDX-License-Identifier: Apache-2.0
//
// What the regression has met, by name: fault codes, counters that were not zero, device states, kinds of completions.
// With MERAPI_REACHED the names are appended to that file when the process ends (hw/tracer-rtl/coverage).
#ifndef MERAPI_SIM_RTL_TEST_REACHED_H_
#define MERAPI_SIM_RTL_TEST_REACHED_H_

#include <string>

#include "sim/test/window_fixture.h"

namespace merapi::sim::rtl::test {

void reached(const std::string& kind, uint64_t which);
// The control page and the completion ring as a tracer leaves them.
void reached_window(merapi::sim::test::Window* window);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_REACHED_H_
