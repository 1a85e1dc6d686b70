// SPDX-License-Identifier: Apache-2.0
//
// Is there room for a copy of a window in memory? Asked before it is made: memory that turns out to be missing while it
// is written ends the process, and perhaps another one, without a word.
#ifndef MERAPI_SIM_REPLAY_ROOM_H_
#define MERAPI_SIM_REPLAY_ROOM_H_

#include <cstdint>
#include <string>

#include "graph/window.h"

namespace merapi::sim {

// Bytes that this process may still fill: of the machine, and of the control groups (v2) that it is in.
uint64_t memory_available();

// Throws std::runtime_error when there is no memory for `bytes`, which are wanted for `what`.
void require_room(uint64_t bytes, const std::string& what);

// For a window into which the image is loaded: what the image holds is written, the rest is not touched.
void require_room_to_load(const graph::Image& image);
// For a window whose whole heap is read and written anew, and a second copy of that heap.
void require_room_to_rewrite(const graph::Image& image);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_ROOM_H_
