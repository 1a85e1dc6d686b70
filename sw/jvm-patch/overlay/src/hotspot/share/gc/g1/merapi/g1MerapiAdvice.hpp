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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIADVICE_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIADVICE_HPP

#include "memory/allocation.hpp"
#include "utilities/globalDefinitions.hpp"

// What the machine has set up otherwise than a heap in a window would want it.
class G1MerapiAdvice : AllStatic {
public:
  // Of a window of so many bytes, by the name that the user gave it. Into the log, once.
  static void tell(const char* window, const char* transport, uint64_t bytes);
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIADVICE_HPP
