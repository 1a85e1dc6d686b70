// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/port_digest.h"

#include <bit>
#include <utility>

namespace merapi::sim::rtl::test {
namespace {

std::map<uint64_t, uint64_t> digests;
uint64_t seed_of_now = 0;

// Multiply and rotate: order matters, and no bit is lost.
void mix(uint64_t* digest, uint64_t value) { *digest = std::rotl((*digest ^ value) * 0x9e3779b97f4a7c15, 29); }

}  // namespace

void digest_request(const PortRequest& r) {
  uint64_t& digest = digests[seed_of_now];
  mix(&digest, r.cycle);
  mix(&digest, uint64_t{r.port} << 33 | uint64_t{r.id} << 1 | (r.line != nullptr));
  mix(&digest, r.address);
  if (r.line == nullptr) return;
  mix(&digest, r.strobe);
  for (uint64_t word : r.line->word) mix(&digest, word);
}

void digest_seed(uint64_t seed) { seed_of_now = seed; }

std::map<uint64_t, uint64_t> take_digests() {
  seed_of_now = 0;
  return std::exchange(digests, {});
}

}  // namespace merapi::sim::rtl::test
