// SPDX-License-Identifier: Apache-2.0
//
// The tracer with all mutants in it. MERAPI_MUTANT says which one is active; none without it, or with 0.
#ifndef MERAPI_HW_TRACER_RTL_MUTATION_MUTATED_H_
#define MERAPI_HW_TRACER_RTL_MUTATION_MUTATED_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "Vmutated.h"

namespace merapi::mutation {

class Mutated : public Vmutated {
 public:
  explicit Mutated(VerilatedContext* context) : Vmutated(context) {
    const char* which = std::getenv("MERAPI_MUTANT");
    const uint64_t number = which == nullptr ? 0 : std::strtoul(which, nullptr, 10);
    mutant = static_cast<std::remove_reference_t<decltype(mutant)>>(number);
    if (mutant != number) {
      std::fprintf(stderr, "expected a mutant of this build in MERAPI_MUTANT, found %s\n", which);
      std::exit(2);
    }
  }
};

}  // namespace merapi::mutation

#endif  // MERAPI_HW_TRACER_RTL_MUTATION_MUTATED_H_
