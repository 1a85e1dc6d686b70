// SPDX-License-Identifier: Apache-2.0
//
// Waveforms of a case, for rtl_test_waves (make rtl-waves).
#ifndef MERAPI_SIM_RTL_TEST_WAVES_H_
#define MERAPI_SIM_RTL_TEST_WAVES_H_

#include "sim/rtl/simulation.h"

namespace merapi::sim::rtl::test {

// With what the environment asks for: MERAPI_WAVES=FILE.vcd, MERAPI_WAVES_FROM=CYCLE, MERAPI_WAVES_CYCLES=COUNT. Each
// further simulation of the program has a file of its own: FILE-2.vcd, FILE-3.vcd and so on. Throws std::runtime_error
// for what is no number.
SimulationOptions with_waves(SimulationOptions options);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_WAVES_H_
