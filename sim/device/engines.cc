// SPDX-License-Identifier: Apache-2.0
#include "sim/device/engines.h"

#include "sim/model/model.h"

namespace merapi::sim {

std::unique_ptr<Engine> make_engine(const DeviceOptions& options, const WindowMemory& memory, EngineHost* host) {
  if (options.engine == "rtl") return make_rtl_engine(options.rtl, options.common, memory, host);
  TracerOptions tracer;
  tracer.stack_entries = options.stack_entries;
  tracer.use_spill = !options.no_spill;
  tracer.strict = options.strict;
  return std::make_unique<Model>(memory, host, options.common, tracer);
}

}  // namespace merapi::sim
