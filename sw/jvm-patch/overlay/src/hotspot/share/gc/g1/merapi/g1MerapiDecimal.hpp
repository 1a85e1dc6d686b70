/*
 * Copyright (c) 2026, the Merapi authors. All rights reserved.
 * DO NOT ALTER OR REMOVE COPYRIGHT NOTICES OR THIS FILE HEADER.
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * as provided in the LICENSE file that accompanies OpenJDK.
 *
 * This code is distributed in the hope that it will be useful, but WITHOUT
 * ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or
 * FITNESS FOR A PARTICULAR PURPOSE.  See the GNU General Public License
 * version 2 for more details.
 */

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIDECIMAL_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIDECIMAL_HPP

#include "memory/allocation.hpp"
#include "runtime/os.hpp"
#include "utilities/globalDefinitions.hpp"

// A time as a decimal number with a point. The class library sets the user's
// locale, in which "%.3f" may write a comma, and that is no JSON.
class G1MerapiDecimal : public StackObj {
  char _text[32];

  // In units of `last` nanoseconds, which the last of `digits` digits behind the point stands for.
  G1MerapiDecimal(julong nanos, julong last, int digits) {
    julong one = 1;
    for (int i = 0; i < digits; i++) {
      one *= 10;
    }
    julong rounded = nanos / last + (nanos % last >= last / 2 ? 1 : 0);
    os::snprintf(_text, sizeof(_text), JULONG_FORMAT ".%0*d", rounded / one, digits, (int)(rounded % one));
  }

public:
  static G1MerapiDecimal millis(jlong nanos) { return G1MerapiDecimal((julong)nanos, 1000, 3); }
  static G1MerapiDecimal micros(jlong nanos) { return G1MerapiDecimal((julong)nanos, 100, 1); }

  const char* text() const { return _text; }
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIDECIMAL_HPP
