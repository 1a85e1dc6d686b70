// SPDX-License-Identifier: Apache-2.0
//
// Ages a saved heap: live objects of one size change places at random, as allocation and compaction over a long time
// would have them lie; sizes, regions, limits and the object graph stay what they were.
#ifndef MERAPI_SIM_REPLAY_AGE_H_
#define MERAPI_SIM_REPLAY_AGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/object_graph.h"

namespace merapi::sim {

struct AgeOptions {
  uint32_t percent = 50;  // of the objects of each size that change places
  uint64_t seed = 1;
};

struct AgeResult {
  uint64_t live = 0, moved = 0;
};

// Answers with their addresses translated, in the order that saving needs.
struct AgedAnswers {
  std::vector<uint64_t> key, first, reference;
  std::vector<uint8_t> is_klass;
  merapi_answers view() const;
};

// `window` holds the image after a trace: its bitmap has every live object's mark. `greys` is the bitmap as it was
// saved; it is aged too and put back, so that the window can be saved. Throws std::runtime_error.
AgeResult age(const graph::Window& window, uint32_t bitmap, const merapi_answers* answers, const graph::Bits& greys,
              const AgeOptions& options, AgedAnswers* aged);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_AGE_H_
