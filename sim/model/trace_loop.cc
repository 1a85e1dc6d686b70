// SPDX-License-Identifier: Apache-2.0
#include "sim/model/trace_loop.h"

namespace merapi::sim {
namespace {

template <typename Oop, typename Klass, int kAlignmentLog2, bool kStrict>
constexpr auto loop() {
  using L = Loop<Oop, Klass, kAlignmentLog2, kStrict>;
  return std::pair{&L::run, &L::settle};
}

template <int kAlignmentLog2, bool kStrict>
auto by_widths(const Geometry& g) {
  if (g.oop_bytes == 4) {
    return g.klass_bytes == 4 ? loop<uint32_t, uint32_t, kAlignmentLog2, kStrict>()
                              : loop<uint32_t, uint64_t, kAlignmentLog2, kStrict>();
  }
  return g.klass_bytes == 4 ? loop<uint64_t, uint32_t, kAlignmentLog2, kStrict>()
                            : loop<uint64_t, uint64_t, kAlignmentLog2, kStrict>();
}

}  // namespace

Tracer::Loops Tracer::choose(const Geometry& g, bool strict) {
  auto [run, settle] = strict                  ? by_widths<0, true>(g)
                       : g.alignment_log2 == 3 ? by_widths<3, false>(g)
                                               : by_widths<0, false>(g);
  return {run, settle};
}

}  // namespace merapi::sim
