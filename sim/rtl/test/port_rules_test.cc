// SPDX-License-Identifier: Apache-2.0
//
// What every case's ports are held to (sim/rtl/port_rules.h), broken one rule after the other.
#include "sim/rtl/port_rules.h"

#include <gtest/gtest.h>

namespace merapi::sim::rtl::test {
namespace {

class RtlPortRules : public testing::Test {
 protected:
  void offer(uint32_t id, uint64_t address, bool ready) { rules_.reads.offered(true, ready, id, address, true); }
  void nothing() { rules_.reads.offered(false, true, 0, 0, true); }
  void write(const Line& line, bool ready) { rules_.data(true, ready, &line, true); }

  PortRules rules_;
  Line line_{{1, 2, 3, 4, 5, 6, 7, 8}};
};

TEST_F(RtlPortRules, WhatKeepsThem) {
  nothing();
  offer(1, 64, false);
  offer(1, 64, true);
  offer(2, 64, true);
  rules_.reads.answered(1);
  offer(1, 128, true);
  nothing();
  write(line_, false);
  write(line_, true);
  line_.word[7]++;
  write(line_, true);
  rules_.data(false, true, &line_, false);
}

TEST_F(RtlPortRules, AnAddressThatIsWithdrawn) {
  offer(1, 64, false);
  EXPECT_DEATH(nothing(), "a read's address was withdrawn");
}

TEST_F(RtlPortRules, AnAddressThatChanges) {
  offer(1, 64, false);
  EXPECT_DEATH(offer(1, 128, false), "a read's address changed");
  EXPECT_DEATH(offer(2, 64, true), "a read's address changed");
}

TEST_F(RtlPortRules, AnIdThatIsOutstanding) {
  offer(3, 64, true);
  EXPECT_DEATH(offer(3, 128, true), "a read's address has the id of one that is outstanding");
}

TEST_F(RtlPortRules, MoreOrLessThanALine) {
  EXPECT_DEATH(offer(1, 72, true), "a read's address is not one line's");
  EXPECT_DEATH(rules_.writes.offered(true, true, 1, 64, false), "a write's address is not one line's");
  EXPECT_DEATH(rules_.data(true, true, &line_, false), "a write's data are not one line");
}

TEST_F(RtlPortRules, DataThatChangeOrAreWithdrawn) {
  write(line_, false);
  EXPECT_DEATH(rules_.data(false, true, &line_, true), "a write's data were withdrawn");
  line_.word[7]++;
  EXPECT_DEATH(write(line_, true), "a write's data changed");
}

}  // namespace
}  // namespace merapi::sim::rtl::test
