// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Commands, handshake, pause, abort, faults, idle: the one place where things are decided, one at a time.
  *
  * It looks at the host's two lines again and again (HostLook) and decides what comes first (see `Decide`): faults,
  * generation, abort, pause, then commands (SubmissionFetch, CommandCheck), then what an idle tracer owes. Long commands
  * (a sweep, clearing) run beside it, so that requests are seen within a poll. Whatever it waits for in a state of its
  * own ends by itself: memory answers, or the draining of a held core, which needs memory alone. DONE entries that find
  * the completion ring full wait in `done` while polling goes on.
  *
  * The unit is the only one that writes the control page, and the page's lines are written strictly in order.
  */
class Control(p: TracerParameters) extends Module {
  val io = IO(new ControlPorts(p))
  import Contract._

  object State extends ChiselEnum {
    val Look, Looking, Think, Decide, Pace                                                    = Value
    val Kill, KillDone, Drain, Flush, WritePage, WriteWait, Swept                             = Value
    val Identify, Identifying, Answer, Answered                                               = Value
    val Fetch, Judge, Check, Latch, Begin                                                     = Value
    val GreySend, Rescan, Idle, IdleDone, Fenced, PauseDone, AbortLook, AbortLooking, Aborted = Value
    val FaultWrite, FaultEntry                                                                = Value
  }
  val state = RegInit(State.Look)
  val after = RegInit(State.Look) // where Kill, Drain, WritePage and Swept lead

  // ---- what the host said last
  val look           = Module(new HostLook(p))
  val hostGeneration = look.io.hostGeneration
  val submitted      = look.io.submitted
  val pauseAsked     = look.io.pause
  val resumeAsked    = look.io.resume
  val abortAsked     = look.io.abort
  // ---- what was answered
  val page      = RegInit(0.U.asTypeOf(new PageState))
  val attached  = RegInit(false.B)
  val paused    = RegInit(false.B)
  val inCycle   = RegInit(false.B)
  val dropped   = RegInit(0.U(32.W))                   // cycle whose late commands are ignored
  val faulted   = RegInit(false.B)
  val ringsGood = RegInit(false.B)
  val shown     = RegInit(0.U.asTypeOf(new PageState)) // as last written in the index line
  // ---- faults: the first one since the last was dealt with
  val pending      = RegInit(false.B)
  val pendingFault = Reg(new FaultReport)
  val raise        = WireDefault(0.U.asTypeOf(Valid(new FaultReport)))
  when(!pending && (io.fault.valid || raise.valid)) {
    pending      := true.B
    pendingFault := Mux(raise.valid, raise.bits, io.fault.bits)
  }
  private def fail(code: Int, address: UInt, detail: UInt): Unit = {
    raise.valid := true.B
    raise.bits  := FaultReport(code, address, detail)
    state       := State.Think
  }

  // ---- the command in hand
  val entry    = Reg(UInt(p.lineBits.W))
  val index    = Reg(UInt(64.W))
  val command  = Command.of(p, entry)
  val opcode   = command.opcode
  val argument = command.argument
  val payload  = command.payload
  val running  = RegInit(false.B) // a sweep or a clearing of the command in hand
  val greyLeft = RegInit(false.B) // a GREY entry is to be offered (again)
  val done     = RegInit(0.U.asTypeOf(Valid(new Completion)))
  io.entry.valid := done.valid
  io.entry.bits  := done.bits
  when(io.entry.fire) { done.valid := false.B }
  private def postDone(): Unit = {
    done.valid           := true.B
    done.bits            := 0.U.asTypeOf(new Completion)
    done.bits.kind       := Comp.Done.U
    done.bits.arg        := opcode
    done.bits.payload(0) := index
    done.bits.payload(1) := argument
    done.bits.payload(2) := payload(0)
  }

  // ---- orders
  val hold     = paused || faulted || pending || !attached
  val draining = state.isOneOf(State.Kill, State.KillDone, State.Drain, State.Flush, State.PauseDone, State.Swept)
  val killing  = state.isOneOf(State.Kill, State.KillDone)
  io.orders.hold     := hold || draining || state.isOneOf(State.WritePage, State.WriteWait)
  io.orders.suppress := pending || faulted || killing || !attached
  io.orders.block    := killing
  io.orders.clear    := state === State.KillDone
  io.orders.flush    := state === State.Flush
  // Pulses that follow from much, a cycle later.
  val invalidate    = WireDefault(false.B)
  val dropShapes    = WireDefault(false.B)
  val unflag        = WireDefault(false.B)
  val forgetSeen    = WireDefault(false.B)
  val clearCounters = WireDefault(false.B)
  io.orders.invalidate   := RegNext(invalidate, false.B)
  io.orders.dropShapes   := RegNext(dropShapes, false.B)
  io.orders.unflag.valid := RegNext(unflag, false.B)
  io.orders.unflag.bits  := RegNext(io.core.flagged.bits)
  io.forgetSeen          := RegNext(forgetSeen, false.B)
  io.clearCounters       := RegNext(clearCounters, false.B)
  io.restart             := false.B
  io.dropReports         := pending || killing || !attached
  io.flushReports        := state === State.Flush || state === State.Idle
  io.rescan              := false.B
  io.rounds              := false.B
  io.greys               := 0.U

  // ---- configuration
  val latch      = Module(new ConfigLatch(p))
  val bitmap     = RegInit(0.U(1.W)) // of the cycle
  val latchDone  = RegInit(false.B)
  val latchStart = WireDefault(false.B)
  val latchRings = WireDefault(false.B)
  latch.io.start       := RegNext(latchStart, false.B)
  latch.io.rings       := RegNext(latchRings, false.B)
  latch.io.bitmap      := bitmap
  latch.io.windowLines := io.windowLines
  latch.io.coherence   := io.who.coherence
  io.latchRead <> latch.io.read
  io.config := latch.io.config
  val submission = latch.io.ringAreas(0)
  val completion = latch.io.ringAreas(1)
  val subEntries = submission.count
  io.ring     := completion.first
  io.ringLog2 := Log2(completion.count)
  val grants = Module(new WriteGrants(p))
  grants.io.config    := io.config
  grants.io.areas     := latch.io.areas
  grants.io.ring      := completion
  grants.io.bitmap    := bitmap
  grants.io.ringsGood := ringsGood
  grants.io.inCycle   := inCycle
  grants.io.clearing  := running && opcode === Op.ClearBitmap.U
  grants.io.command   := command
  io.grants           := grants.io.grants

  // ---- long commands
  val sweep = WireDefault(false.B)
  val slice = WireDefault(0.U.asTypeOf(new Slice(p)))
  val clear = WireDefault(false.B)
  io.slice.valid := RegNext(sweep, false.B)
  io.slice.bits  := RegNext(slice)
  io.clear.valid := RegNext(clear, false.B)
  io.clear.bits  := RegNext(grants.io.range)
  assert(!io.slice.valid || io.slice.ready, "a sweep started while one runs")
  val sweepBusy = io.core.sweepBusy || io.slice.valid
  val clearBusy = io.core.clearBusy || io.clear.valid
  val offer     = Module(new GreyOffer(p))
  offer.io.start   := state === State.GreySend
  offer.io.command := command
  offer.io.stop    := pending
  offer.io.ends    := io.greyEnds
  io.grey <> offer.io.out

  val check = Module(new CommandCheck(p))
  check.io.command := command
  check.io.index   := index
  check.io.inCycle := inCycle
  check.io.cycle   := page.cycle
  check.io.dropped := dropped
  check.io.bitmap  := bitmap
  check.io.regions := io.config.regionCount

  val verdict   = RegNext(check.io.verdict)
  val clearGood = RegNext(check.io.clearGood)

  // ---- pace and poll
  val pace = RegInit(0.U(log2Ceil(p.pollInterval + 1).W))
  // Commands run one after the other without a look at the host in between, but not for longer than the interval.
  val sinceLook = RegInit(0.U(log2Ceil(p.pollInterval + 1).W))
  val lookDue   = sinceLook === p.pollInterval.U
  val elapsed   = RegInit(0.U(64.W)) // since the pause was seen
  elapsed            := elapsed + 1.U
  io.pauseTime.valid := false.B
  io.pauseTime.bits  := elapsed
  when(look.io.done) { sinceLook := 0.U }.elsewhen(!lookDue) { sinceLook := sinceLook + 1.U }
  look.io.start      := state === State.Look || state === State.AbortLook
  look.io.restart    := io.restart
  look.io.produced   := io.produced
  look.io.attached   := attached && ringsGood
  look.io.generation := page.generation
  when(look.io.overrun.valid && !faulted) {
    raise.valid := true.B
    raise.bits  := FaultReport(Fault.RingOverrun, look.io.overrun.bits, io.produced)
  }
  val shake = Module(new Handshake(p))
  shake.io.start      := state === State.Identify
  shake.io.latchDone  := latch.io.done
  shake.io.latchFault := latch.io.fault
  val shared = Module(new SharedRead(p, 2))
  shared.io.readers(0) <> look.io.read
  shared.io.readers(1) <> shake.io.read
  io.read <> shared.io.port
  val fetch = Module(new SubmissionFetch(p))
  fetch.io.enabled       := attached && ringsGood && !faulted && !pending
  fetch.io.ring          := submission.first
  fetch.io.entries       := subEntries
  fetch.io.submitted     := submitted
  fetch.io.restart.valid := state === State.Identifying || RegNext(state === State.Aborted, false.B)
  fetch.io.restart.bits  := page.consumed
  fetch.io.entry.ready   := state === State.Fetch && !pending
  io.fetchRead <> fetch.io.read

  io.pageWrite.valid := state === State.WritePage
  val toWrite = Reg(UInt(PageLine.count.W))
  io.pageWrite.bits := toWrite
  private def write(lines: UInt, next: State.Type): Unit = {
    toWrite := lines
    after   := next
    state   := State.WritePage
  }
  private def setState(s: Int): Unit = page.state := s.U
  val pageNow                        = WireDefault(page)
  pageNow.produced := io.written
  io.page          := pageNow

  // Of the cycle before: wide comparisons. `Think` lies between a change and whoever decides by them.
  val indexDirty = RegNext(
    page.consumed =/= shown.consumed || io.written =/= shown.produced || page.state =/= shown.state,
    false.B
  )
  val ahead        = submitted - page.consumed
  val entryThere   = RegNext(ahead =/= 0.U, false.B)
  val overrun      = RegNext(ahead > subEntries, false.B)
  val otherHost    = RegNext(hostGeneration =/= page.generation, false.B)
  val hostThere    = RegNext(hostGeneration =/= 0.U && !hostGeneration(0), false.B)
  val abortNew     = RegNext(abortAsked =/= page.ackAbort, false.B)
  val pauseWanted  = RegNext(pauseAsked =/= resumeAsked, false.B)
  val pauseUnacked = RegNext(page.ackPause =/= pauseAsked, false.B)
  val flagged      = io.core.flagged.valid
  val settled      = inCycle && io.core.empty && !running && !greyLeft && !done.valid && !entryThere
  // Not tracing any more once everything is recorded.
  io.tracing  := inCycle && !page.idle && !paused && !faulted
  io.paused   := false.B
  io.cycle    := page.cycle
  io.consumed := look.io.taken
  val nothingToDo = !attached || paused || faulted ||
    (!entryThere && !running && !greyLeft && !done.valid && (!inCycle || page.idle))
  io.step := state.asUInt
  io.sleeping := state === State.Pace && nothingToDo && !pending && (!attached || !indexDirty) &&
    (io.reportsEmpty || !attached || faulted || paused)

  switch(state) {
    is(State.Look) { state := State.Looking }
    is(State.Looking) { when(look.io.done) { state := State.Think } }

    is(State.Think) { state := State.Decide } // what is compared is known in the next cycle

    // What comes first. Data of an errored read is zero and is not looked at: the fault is dealt with before.
    is(State.Decide) {
      pace  := (p.pollInterval - 1).U
      state := State.Pace
      when(pending) {
        when(attached && !faulted) {
          after := State.FaultWrite
          state := State.Kill
        }.otherwise { pending := false.B }
      }.elsewhen(lookDue) {
        state := State.Look
        when(attached && !paused && !faulted && indexDirty) { write(PageLine.mask(PageLine.index), State.Look) }
      }.elsewhen(otherHost && attached) {
        attached := false.B
        after    := State.Look
        state    := State.Kill
      }.elsewhen(!attached) {
        when(hostThere) {
          after := State.Identify
          state := State.Kill
        }
      }.elsewhen(abortNew) {
        after := State.AbortLook
        state := State.Kill
      }.elsewhen(pauseWanted) {
        when(!paused) {
          elapsed := 0.U
          after   := State.PauseDone
          state   := State.Drain
        }.elsewhen(pauseUnacked) {
          page.ackPause  := pauseAsked
          page.ackResume := resumeAsked
          write(PageLine.mask(PageLine.ack, PageLine.indexAgain), State.Look)
        }
      }.elsewhen(paused || pauseUnacked) {
        // Resumed: nothing that was held before the pause is believed.
        when(paused && !faulted) {
          invalidate := true.B
          dropShapes := true.B
        }
        state := State.Swept
      }.elsewhen(faulted) {
        state := State.Pace
      }.elsewhen(overrun) {
        fail(Fault.RingOverrun, submitted, page.consumed)
      }.elsewhen(running && !sweepBusy && !clearBusy) {
        running := false.B
        when(opcode =/= Op.BeginCycle.U) { postDone() }
        when(opcode === Op.ClearBitmap.U) {
          write(PageLine.mask(PageLine.allCounters: _*), State.Look)
        }.otherwise { state := State.Think }
      }.elsewhen(greyLeft) {
        state := State.GreySend
      }.elsewhen(!running && !done.valid && !sweepBusy && entryThere) {
        when(page.idle) {
          page.idle := false.B
          setState(DeviceState.Tracing)
          write(PageLine.mask(PageLine.idle), State.Fetch)
        }.otherwise { state := State.Fetch }
      }.elsewhen(settled && !page.idle) {
        after := State.Rescan
        state := State.Drain
        when(!flagged) { state := State.Idle }
      }.elsewhen(indexDirty) {
        write(PageLine.mask(PageLine.index), State.Look)
      }
    }
    is(State.Pace) {
      pace := pace - 1.U
      val urgent = pending || (running && !sweepBusy && !clearBusy) || (settled && !page.idle)
      when(pace === 0.U || urgent) { state := Mux(pending, State.Think, State.Look) }
      when(paused || faulted) { when(pace =/= 0.U && !pending) { state := State.Pace } }
    }

    // End everything that was asked of the memory, then put the core back to its state after reset.
    is(State.Kill) { when(io.memoryQuiet) { state := State.KillDone } }
    is(State.KillDone) {
      running    := false.B
      greyLeft   := false.B
      done.valid := false.B
      state      := after
    }
    // Let the core come to rest with everything it holds, then write back what the host will look at.
    is(State.Drain) {
      when(io.core.quiet) { state := State.Flush }
      when(pending) { state := State.Think }
    }
    is(State.Flush) {
      when(io.core.cleaned && io.core.liveFlushed && (io.reportsEmpty || io.reportsFull)) { state := after }
      when(pending) { state := State.Think }
    }
    is(State.WritePage) {
      when(io.pageWrite.fire) {
        state := State.WriteWait
        when((toWrite & PageLine.mask(PageLine.index, PageLine.indexAgain)).orR) { shown := pageNow }
      }
    }
    is(State.WriteWait) { when(!io.pageBusy) { state := after } }

    // Handshake. The generation is answered even when the window is refused, so that the host can read why.
    is(State.Identify) {
      io.restart      := true.B
      page            := 0.U.asTypeOf(new PageState)
      page.generation := hostGeneration
      shown           := 0.U.asTypeOf(new PageState)
      faulted         := false.B
      paused          := false.B
      inCycle         := false.B
      ringsGood       := false.B
      pending         := false.B
      dropped         := 0.U
      setState(DeviceState.Ready)
      page.ackAbort := 0.U
      state         := State.Identifying
    }
    is(State.Identifying) {
      latchStart := shake.io.latchStart
      latchRings := true.B
      when(shake.io.done) {
        ringsGood := !shake.io.fault.valid
        raise     := shake.io.fault
        state     := State.Answer
      }
    }
    is(State.Answer) {
      when(pending) {
        faulted          := true.B
        pending          := false.B
        page.faultCode   := pendingFault.code
        page.faultAt     := pendingFault.address
        page.faultDetail := pendingFault.detail
        setState(DeviceState.Faulted)
      }
      // The abort counter starts at what the host shows now.
      write(
        PageLine.mask(PageLine.allCounters ++ Seq(PageLine.fault, PageLine.identity, PageLine.idle, PageLine.ack): _*),
        State.Answered
      )
    }
    is(State.Answered) {
      attached := true.B
      write(PageLine.mask(PageLine.index), State.Look)
    }

    // Commands.
    is(State.Fetch) {
      when(fetch.io.entry.fire) {
        entry := fetch.io.entry.bits
        index := page.consumed
        state := State.Judge
      }
      when(pending) { state := State.Think }
    }
    is(State.Judge) { state := State.Check }
    is(State.Check) {
      state := State.Think
      when(!pending) {
        page.consumed := page.consumed + 1.U
        io.rounds     := true.B
        switch(verdict) {
          is(Verdict.BadSequence) {
            page.consumed := page.consumed
            io.rounds     := false.B
            fail(Fault.BadSequence, index, command.sequence)
          }
          is(Verdict.BadCommand) { fail(Fault.BadCommand, index, opcode) }
          is(Verdict.Begin) {
            after := State.Latch
            state := State.Kill
          }
          is(Verdict.Trace) {
            sweep       := true.B
            slice.first := argument
            slice.count := payload(0)
            running     := true.B
          }
          is(Verdict.Grey) {
            greyLeft := true.B
            io.greys := command.count
            state    := State.GreySend
          }
          is(Verdict.Clear) {
            // In a cycle the configuration is there; before the first one it is read for this command.
            when(inCycle) { state := State.Begin }.otherwise {
              latchStart := true.B
              state      := State.Latch
            }
          }
          is(Verdict.Fence) {
            after := State.Fenced
            state := State.Drain
          }
          is(Verdict.DropShapes) {
            dropShapes := true.B
            forgetSeen := true.B
          }
        }
      }
    }
    is(State.Latch) {
      // BEGIN_CYCLE arrives here from Kill with nothing started, CLEAR_BITMAP with the latch running.
      when(opcode === Op.BeginCycle.U && !latchDone) {
        latchStart := true.B
        latchDone  := true.B
        bitmap     := argument
        inCycle    := false.B
        page.idle  := false.B
      }
      when(latch.io.done) {
        latchDone := false.B
        state     := State.Begin
        when(latch.io.fault.valid) {
          raise := latch.io.fault
          state := State.Think
        }
      }
      when(pending) {
        latchDone := false.B
        state     := State.Think
      }
    }
    is(State.Begin) {
      running := true.B
      state   := State.Look
      when(opcode === Op.BeginCycle.U) {
        inCycle       := true.B
        page.cycle    := command.cycle
        clearCounters := true.B
        forgetSeen    := true.B
        clear         := true.B
        setState(DeviceState.Tracing)
      }.elsewhen(clearGood) { clear := true.B }.otherwise {
        running := false.B
        fail(Fault.BadCommand, index, opcode)
      }
    }
    is(State.GreySend) {
      when(offer.io.done) {
        greyLeft := offer.io.refused
        state    := State.Think
        // As Decide would: the host was not looked at since. What is compared is known from the second cycle here on.
        val next = entryThere && !overrun && RegNext(state === State.GreySend, false.B)
        when(!offer.io.refused && next && !running && !done.valid && !sweepBusy && !lookDue) { state := State.Fetch }
      }
      when(pending) { state := State.Think }
    }
    // Reached from Drain: what was dropped is to be found again, so nothing may be filtered as recently tested.
    is(State.Rescan) {
      invalidate := true.B
      unflag     := true.B
      sweep      := true.B
      val first = (io.core.flagged.bits << io.config.flagShift).pad(p.regionBits + 1)(p.regionBits, 0)
      val rest  = io.config.regionCount - first
      val most  = (1.U((p.regionBits + 1).W) << io.config.flagShift)(p.regionBits, 0)
      slice.first := first
      slice.count := Mux(rest < most, rest, most)
      io.rescan   := true.B
      state       := State.Look
    }
    is(State.Idle) {
      // Reports leave first; with a full ring the host must be waited for, looking at its requests meanwhile.
      when(io.reportsEmpty) {
        after := State.IdleDone
        state := State.Drain
      }.elsewhen(io.reportsFull) {
        pace  := (p.pollInterval - 1).U
        state := State.Look
        when(indexDirty) { write(PageLine.mask(PageLine.index), State.Look) }
      }
      when(pending) { state := State.Think }
    }
    is(State.Fenced) {
      postDone()
      write(PageLine.mask(PageLine.allCounters: _*), State.Look)
    }
    is(State.IdleDone) {
      // Something may have been reported while the core drained: then once more.
      state := State.Look
      when(io.reportsEmpty && settled) {
        page.idle      := true.B
        page.idleCycle := page.cycle
        setState(DeviceState.Idle)
        write(
          PageLine.mask(PageLine.allCounters ++ Seq(PageLine.index, PageLine.idle, PageLine.indexAgain): _*),
          State.Look
        )
      }
    }
    is(State.PauseDone) {
      paused             := true.B
      io.paused          := true.B
      io.pauseTime.valid := true.B
      page.ackPause      := pauseAsked
      when(!faulted) { setState(DeviceState.Paused) }
      write(
        PageLine.mask(PageLine.allCounters ++ Seq(PageLine.index, PageLine.ack, PageLine.indexAgain): _*),
        State.Look
      )
    }
    is(State.Swept) {
      when(!io.core.sweeping) {
        paused         := false.B
        page.ackPause  := pauseAsked
        page.ackResume := resumeAsked
        when(!faulted) {
          page.state := Mux(inCycle, Mux(page.idle, DeviceState.Idle.U, DeviceState.Tracing.U), DeviceState.Ready.U)
        }
        // As at a pause: who sees the acknowledgement sees the state too.
        write(PageLine.mask(PageLine.index, PageLine.ack, PageLine.indexAgain), State.Look)
      }
    }

    // Abort: the submissions dropped are those made when the request is seen.
    is(State.AbortLook) { state := State.AbortLooking }
    is(State.AbortLooking) { when(look.io.done) { state := State.Aborted } }
    is(State.Aborted) {
      when(inCycle) { dropped := page.cycle }
      inCycle       := false.B
      faulted       := false.B
      pending       := false.B
      page.idle     := false.B
      page.cycle    := 0.U
      page.ackAbort := abortAsked
      page.consumed := submitted
      setState(DeviceState.Ready)
      when(!ringsGood) {
        faulted       := true.B
        page.consumed := page.consumed
        setState(DeviceState.Faulted)
      }.elsewhen(submitted - page.consumed > subEntries) {
        page.consumed := page.consumed
        raise.valid   := true.B
        raise.bits    := FaultReport(Fault.RingOverrun, submitted, page.consumed)
      }
      write(PageLine.mask(PageLine.index, PageLine.idle, PageLine.ack, PageLine.indexAgain), State.Look)
    }

    // A fault: the record keeps the first since the handshake; the entry goes out when the ring has room.
    is(State.FaultWrite) {
      faulted   := true.B
      pending   := false.B
      page.idle := false.B
      setState(DeviceState.Faulted)
      // The record keeps the first.
      when(page.faultCode === 0.U) {
        page.faultCode   := pendingFault.code
        page.faultCycle  := page.cycle
        page.faultAt     := pendingFault.address
        page.faultDetail := pendingFault.detail
      }
      done.valid           := ringsGood
      done.bits            := 0.U.asTypeOf(new Completion)
      done.bits.kind       := Comp.Fault.U
      done.bits.arg        := pendingFault.code
      done.bits.payload(0) := pendingFault.address
      done.bits.payload(1) := pendingFault.detail
      write(
        PageLine
          .mask(PageLine.allCounters ++ Seq(PageLine.fault, PageLine.index, PageLine.idle, PageLine.indexAgain): _*),
        State.FaultEntry
      )
    }
    is(State.FaultEntry) { state := State.Look }
  }
}
