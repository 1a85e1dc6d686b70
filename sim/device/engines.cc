// SPDX-License-Identifier: Apache-2.0
#include "sim/device/engines.h"

#include "sim/model/model.h"
#ifdef MERAPI_WITH_RTL
#include "sim/rtl/rtl_engine.h"
#endif

namespace merapi::sim {

std::unique_ptr<Engine> make_engine(const DeviceOptions& options, const WindowMemory& memory, EngineHost* host) {
#ifdef MERAPI_WITH_RTL
  if (options.engine == "rtl") {
    rtl::RtlOptions o;
    o.preset = options.rtl_preset;
    o.simulation.common = options.common;
    o.simulation.common.name = "merapi-rtl " + options.rtl_preset;
    return std::make_unique<rtl::RtlEngine>(memory, host, rtl::make_timing(options.dram, options.rtl_preset), o);
  }
#endif
  TracerOptions tracer;
  tracer.stack_entries = options.stack_entries;
  tracer.use_spill = !options.no_spill;
  tracer.strict = options.strict;
  return std::make_unique<Model>(memory, host, options.common, tracer);
}

}  // namespace merapi::sim
