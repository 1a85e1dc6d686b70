// SPDX-License-Identifier: Apache-2.0
//
// Which engines this process can run: the only place of the device process that names one.
#ifndef MERAPI_SIM_DEVICE_ENGINES_H_
#define MERAPI_SIM_DEVICE_ENGINES_H_

#include <memory>

#include "sim/device/options.h"
#include "sim/engine/engine.h"

namespace merapi::sim {

// `host` outlives the engine. Runs in the thread that will call step().
std::unique_ptr<Engine> make_engine(const DeviceOptions& options, const WindowMemory& memory, EngineHost* host);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_ENGINES_H_
