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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIRETRY_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIRETRY_HPP

#include "gc/g1/g1ServiceThread.hpp"

// Starts the cycle that replaces an abandoned one, from the service thread as
// periodic collections are.
class G1MerapiRetryTask : public G1ServiceTask {
  volatile int _wanted;   // who sets it puts the task into the thread's queue
  bool         _registered;
public:
  G1MerapiRetryTask() : G1ServiceTask("Merapi Retry Task"), _wanted(0), _registered(false) { }

  // From any thread; requests that come before the cycle has begun are one.
  void request(G1ServiceThread* thread);
  virtual void execute();
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIRETRY_HPP
