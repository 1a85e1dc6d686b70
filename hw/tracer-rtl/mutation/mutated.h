// SPDX-License-Identifier: Apache-2.0
//
// The tracer with all mutants in it. MERAPI_MUTANT says which one is active; none without it, or with 0.
#ifndef MERAPI_HW_TRACER_RTL_MUTATION_MUTATED_H_
#define MERAPI_HW_TRACER_RTL_MUTATION_MUTATED_H_

#include <cstdlib>

#include "Vmutated.h"

namespace merapi::mutation {

class Mutated : public Vmutated {
 public:
  explicit Mutated(VerilatedContext* context) : Vmutated(context) {
    const char* which = std::getenv("MERAPI_MUTANT");
    mutant = which == nullptr ? 0 : static_cast<CData>(std::strtoul(which, nullptr, 10));
  }
};

}  // namespace merapi::mutation

#endif  // MERAPI_HW_TRACER_RTL_MUTATION_MUTATED_H_
