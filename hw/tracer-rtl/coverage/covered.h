// SPDX-License-Identifier: Apache-2.0
//
// The tracer with Verilator's coverage counters. A process makes hundreds of tracers: their counts are added up, and
// the last one writes them, to the file named by MERAPI_COVERAGE, when the process ends.
#ifndef MERAPI_HW_TRACER_RTL_COVERAGE_COVERED_H_
#define MERAPI_HW_TRACER_RTL_COVERAGE_COVERED_H_

#include <verilated_cov.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <vector>

#include "Vcovered.h"
#include "Vcovered__Syms.h"
#include "Vcovered___024root.h"

namespace merapi::coverage {

class Covered : public Vcovered {
 public:
  explicit Covered(VerilatedContext* context) : Vcovered(context) {}
  ~Covered() {
    auto& counts = rootp->vlSymsp->__Vcoverage;
    auto& sum = total();
    sum.resize(std::size(counts));
    for (size_t i = 0; i < sum.size(); i++) sum[i] += counts[i];
  }

 private:
  struct Total : std::vector<uint64_t> {
    ~Total() {
      const char* file = std::getenv("MERAPI_COVERAGE");
      if (file == nullptr || empty()) return;
      VerilatedContext context;
      auto last = std::make_unique<Vcovered>(&context);
      auto& counts = last->rootp->vlSymsp->__Vcoverage;
      for (size_t i = 0; i < size(); i++) counts[i] = uint32_t(std::min<uint64_t>((*this)[i], UINT32_MAX));
      context.coveragep()->write(file);
    }
  };
  static Total& total() {
    static Total t;
    return t;
  }
};

}  // namespace merapi::coverage

#endif  // MERAPI_HW_TRACER_RTL_COVERAGE_COVERED_H_
