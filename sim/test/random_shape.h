// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_TEST_RANDOM_SHAPE_H_
#define MERAPI_SIM_TEST_RANDOM_SHAPE_H_

#include "sim/test/random.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::test {

// Overflows for most heaps made here where storage on chip is small; the other size never does.
constexpr uint64_t kSmallSpill = 4096;

// A small heap of any layout that the contract allows, anywhere in the address space; its window dense or scattered.
WindowShape random_shape(Random* random, bool large_spill);

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_RANDOM_SHAPE_H_
