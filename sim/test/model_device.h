// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_TEST_MODEL_DEVICE_H_
#define MERAPI_SIM_TEST_MODEL_DEVICE_H_

#include "sim/test/random_trace.h"

namespace merapi::sim::test {

// The model with random sizes and slices; makes devices for random_trace.
std::unique_ptr<TracedDevice> make_model_device(Window* window, Random* random, const TraceKnobs& knobs);

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_MODEL_DEVICE_H_
