// SPDX-License-Identifier: Apache-2.0
//
// A saved window without the data of its program: what a tracer reads stays, everything else becomes zero.
#ifndef MERAPI_SIM_REPLAY_STRIP_H_
#define MERAPI_SIM_REPLAY_STRIP_H_

#include <cstdint>
#include <string>

#include "graph/window.h"

namespace merapi::sim {

struct StripResult {
  uint64_t objects = 0;     // live objects of the window
  uint64_t kept_bytes = 0;  // of the heap: klass words, array lengths, mirrors' sizes, references
  uint64_t heap_bytes = 0;
};

// Trace `image` with a private model (checked), then save it to `path` with only what a
// trace reads. Of the image's text the time that stock marking took is kept. Throws std::runtime_error when the image
// does not replay right or cannot be written; `path` is untouched then.
StripResult strip(const graph::Image& image, const std::string& path);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_STRIP_H_
