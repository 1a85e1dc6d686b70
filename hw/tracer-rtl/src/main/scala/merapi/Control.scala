// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** What the control unit sees of the tracing core. All of it is a fact of the present cycle. */
class CoreStatus(p: TracerParameters) extends Bundle {
  val quiet        = Bool() // held: nothing moves
  val moving       = UInt(9.W) // what does: lanes, filters, host's filter, banks, walker, live, stores, sweep, clearer
  val empty        = Bool() // no grey, no object, no reference, no sweep
  val cleaned      = Bool() // no dirty bitmap line
  val liveFlushed  = Bool()
  val sweeping     = Bool() // on-chip memories are being cleared
  val sweepBusy    = Bool()
  val clearBusy    = Bool()
  val flagged      = Valid(UInt(p.flagLog2.W)) // a chunk to be swept again
}

/** What it orders. Levels, except those called pulses. */
class CoreOrders(p: TracerParameters) extends Bundle {
  val hold       = Bool() // start nothing new
  val suppress   = Bool() // no effect on memory any more
  val block      = Bool() // no request to memory any more
  val clear      = Bool() // pulse: back to the state after reset; with block, memory quiet
  val flush      = Bool() // write back what is dirty (with hold, quiet)
  val invalidate = Bool() // pulse: drop clean copies
  val dropShapes = Bool() // pulse
  val unflag     = Valid(UInt(p.flagLog2.W)) // pulse
}

/** Commands, handshake, pause, abort, faults, idle: the one place where things are decided, one at a time.
  *
  * It looks at the host's two lines again and again and decides what comes first (see `Decide`): faults, generation,
  * abort, pause, then commands, then what an idle tracer owes. Long commands (a sweep, clearing) run beside it, so that
  * requests are seen within a poll. Whatever it waits for in a state of its own ends by itself: memory answers, or the
  * draining of a held core, which needs memory alone. DONE entries that find the completion ring full wait in
  * `done` while polling goes on.
  *
  * The unit is the only one that writes the control page, and the page's lines are written strictly in order.
  */
class Control(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val who         = Input(new DeviceIdentity)
    val windowLines = Input(UInt((p.lineAddress + 1).W))
    val core        = Input(new CoreStatus(p))
    val orders      = Output(new CoreOrders(p))
    val memoryQuiet = Input(Bool())
    val fault       = Flipped(Valid(new FaultReport)) // from anywhere
    val config      = Output(new TraceConfig(p))
    val grants      = Output(Vec(6, new WriteGrant(p)))
    val slice       = Decoupled(new Slice(p))
    val clearFirst  = Output(UInt((p.lineAddress + 1).W))
    val clearCount  = Output(UInt((p.lineAddress + 1).W))
    val clearValid  = Output(Bool())
    val grey        = Decoupled(new RawReference(p))
    val greyEnded   = Input(Bool())
    val greyAnswer  = Flipped(Valid(Bool()))
    // Reporter
    val cycle       = Output(UInt(32.W))
    val consumed    = Output(UInt(64.W))
    val ring        = Output(UInt(p.lineAddress.W))
    val ringLog2    = Output(UInt(5.W))
    val entry       = Decoupled(new Completion)
    val flushReports = Output(Bool())
    val restart     = Output(Bool())
    val dropReports = Output(Bool())
    val forgetSeen  = Output(Bool())
    val written     = Input(UInt(64.W))
    val produced    = Input(UInt(64.W))
    val reportsEmpty = Input(Bool())
    val reportsFull = Input(Bool())
    // Counters and page
    val clearCounters = Output(Bool())
    val pauseTime   = Valid(UInt(64.W))
    val page        = Output(new PageState)
    val pageWrite   = Decoupled(UInt(PageLine.count.W))
    val pageBusy    = Input(Bool())
    val latchRead   = new ReadPort(p)
    val read        = new ReadPort(p)
    val tracing     = Output(Bool())
    val rounds      = Output(Bool())
    val greys       = Output(UInt(3.W))
    val rescan      = Output(Bool())
    val paused      = Output(Bool())
    val step        = Output(UInt(6.W)) // state of this unit, for debugging
    val sleeping    = Output(Bool()) // nothing to do before the host does something
  })
  import Contract._

  object State extends ChiselEnum {
    val PollIndex, PollIndexWait, PollRequest, PollRequestWait, Decide, Pace = Value
    val Kill, KillDone, Drain, Flush, WritePage, WriteWait, Swept            = Value
    val Identify, IdentifyWait, RingLatch, Answer, Answered                  = Value
    val Fetch, FetchWait, Check, Latch, Begin                                = Value
    val GreySend, GreyWait, Rescan, Idle, IdleDone, Fenced, PauseDone, Aborted, AbortIndex, AbortIndexWait = Value
    val FaultWrite, FaultEntry = Value
  }
  val state = RegInit(State.PollIndex)
  val after = RegInit(State.PollIndex) // where Kill, Drain, WritePage and Swept lead

  // ---- what the host said last
  val hostGeneration = RegInit(0.U(64.W))
  val submitted      = RegInit(0.U(64.W))
  val taken          = RegInit(0.U(64.W)) // completions read by the host
  val pauseAsked     = RegInit(0.U(32.W))
  val resumeAsked    = RegInit(0.U(32.W))
  val abortAsked     = RegInit(0.U(32.W))
  // ---- what was answered
  val page     = RegInit(0.U.asTypeOf(new PageState))
  val attached = RegInit(false.B)
  val paused   = RegInit(false.B)
  val inCycle  = RegInit(false.B)
  val dropped  = RegInit(0.U(32.W)) // cycle whose late commands are ignored
  val faulted  = RegInit(false.B)
  val ringsGood = RegInit(false.B)
  val shown    = RegInit(0.U.asTypeOf(new PageState)) // as last written in the index line
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
    state       := State.Decide
  }

  // ---- the command in hand
  val entry     = Reg(UInt(p.lineBits.W))
  val index     = Reg(UInt(64.W))
  private def field(at: Int, bytes: Int): UInt = entry(8 * (at + bytes) - 1, 8 * at)
  val opcode    = field(SubmissionLayout.Opcode, 1)
  val argument  = field(SubmissionLayout.Arg, 4)
  val count     = field(SubmissionLayout.Count, 2)
  val payload   = VecInit((0 until 6).map(i => field(SubmissionLayout.Payload + 8 * i, 8)))
  val sequence  = field(SubmissionLayout.Sequence, 4)
  val cycleOf   = field(SubmissionLayout.Cycle, 4)
  val running   = RegInit(false.B) // a sweep or a clearing of the command in hand
  val greyLeft  = RegInit(false.B) // a GREY entry is to be offered (again)
  val greyAt    = Reg(UInt(3.W))
  val refused   = Reg(Bool())
  val done      = RegInit(0.U.asTypeOf(Valid(new Completion)))
  io.entry.valid := done.valid
  io.entry.bits  := done.bits
  when(io.entry.fire) { done.valid := false.B }
  private def postDone(): Unit = {
    done.valid        := true.B
    done.bits         := 0.U.asTypeOf(new Completion)
    done.bits.kind    := Comp.Done.U
    done.bits.arg     := opcode
    done.bits.payload(0) := index
    done.bits.payload(1) := argument
    done.bits.payload(2) := payload(0)
  }

  // ---- orders
  val hold = paused || faulted || pending || !attached
  val draining = state.isOneOf(State.Kill, State.KillDone, State.Drain, State.Flush, State.PauseDone, State.Swept)
  val killing  = state.isOneOf(State.Kill, State.KillDone)
  io.orders.hold       := hold || draining || state.isOneOf(State.WritePage, State.WriteWait)
  io.orders.suppress   := pending || faulted || killing || !attached
  io.orders.block      := killing
  io.orders.clear      := state === State.KillDone
  io.orders.flush      := state === State.Flush
  io.orders.invalidate := false.B
  io.orders.dropShapes := false.B
  io.orders.unflag.valid := false.B
  io.orders.unflag.bits  := io.core.flagged.bits
  io.restart       := false.B
  io.dropReports   := pending || killing || !attached
  io.forgetSeen    := false.B
  io.clearCounters := false.B
  io.flushReports  := state === State.Flush || state === State.Idle
  io.rescan        := false.B
  io.rounds        := false.B
  io.greys         := 0.U

  // ---- configuration
  val latch     = Module(new ConfigLatch(p))
  val bitmap    = RegInit(0.U(1.W)) // of the cycle
  val latchDone = RegInit(false.B)
  latch.io.start       := false.B
  latch.io.rings       := false.B
  latch.io.bitmap      := bitmap
  latch.io.windowLines := io.windowLines
  latch.io.coherence   := io.who.coherence
  io.latchRead <> latch.io.read
  io.config := latch.io.config
  private def lines(bytes: UInt): UInt = (bytes >> 6)(p.lineAddress - 1, 0)
  val submission = latch.io.ringAreas(0)
  val completion = latch.io.ringAreas(1)
  val subEntries = lines(submission.size)
  io.ring     := lines(completion.offset)
  io.ringLog2 := Log2(lines(completion.size))
  private def grant(i: Int, valid: Bool, first: UInt, count: UInt): Unit = {
    io.grants(i).valid := valid
    io.grants(i).first := first
    io.grants(i).count := count
  }
  private def area(i: Int) = latch.io.areas(i)
  val clearing = running && opcode === Op.ClearBitmap.U
  val beginning = running && opcode === Op.BeginCycle.U
  val target   = Mux(argument(0), area(Contract.Area.Bitmap1), area(Contract.Area.Bitmap0))
  val pageFirst = DeviceIdentityLayout.At / 64
  grant(0, true.B, pageFirst.U, ((CountersLayout.At + CountersLayout.Bytes) / 64 - pageFirst).U)
  grant(1, ringsGood, lines(completion.offset), lines(completion.size))
  grant(2, inCycle, io.config.live, lines(area(Contract.Area.Live).size))
  grant(3, inCycle, io.config.spill, lines(area(Contract.Area.Spill).size))
  grant(4, inCycle, io.config.bitmap, lines(Mux(bitmap(0), area(Contract.Area.Bitmap1).size, area(Contract.Area.Bitmap0).size)))
  grant(5, clearing, lines(target.offset), lines(target.size))

  // ---- long commands
  io.slice.valid := false.B
  io.slice.bits  := 0.U.asTypeOf(new Slice(p))
  io.clearValid  := false.B
  // Half lines: a region of 2^16 bytes at an alignment of 2^8 has 32 bytes of bitmap.
  val halvesLog2 = io.config.regionLog2 - io.config.alignmentLog2 - 8.U
  io.clearFirst := (Cat(lines(target.offset), 0.U(1.W)) + (payload(0) << halvesLog2)(p.lineAddress, 0))
  io.clearCount := (payload(1) << halvesLog2)(p.lineAddress, 0)
  when(opcode === Op.BeginCycle.U) {
    io.clearFirst := Cat(io.config.live, 0.U(1.W))
    io.clearCount := ((io.config.regionCount +& 3.U) >> 2)
  }
  io.grey.valid       := state === State.GreySend
  io.grey.bits.value  := payload(greyAt)
  io.grey.bits.source := 0.U
  io.grey.bits.host   := true.B

  // A reference may end in the cycle in which it is offered.
  val greyOver = io.greyEnded || io.greyAnswer.valid
  val nowRefused = refused || (io.greyAnswer.valid && io.greyAnswer.bits)

  // ---- pace and poll
  val pace  = RegInit(0.U(log2Ceil(p.pollInterval + 1).W))
  val elapsed = RegInit(0.U(64.W)) // since the pause was seen
  elapsed := elapsed + 1.U
  io.pauseTime.valid := false.B
  io.pauseTime.bits  := elapsed
  io.read.request.valid := state.isOneOf(State.PollIndex, State.PollRequest, State.Identify, State.Fetch, State.AbortIndex)
  io.read.request.bits.tag := 0.U
  io.read.request.bits.line := MuxLookup(state, (HostIndexLayout.At / 64).U)(
    Seq(
      State.PollRequest -> (HostRequestLayout.At / 64).U(p.lineAddress.W),
      State.Identify    -> (IdentityLayout.At / 64).U(p.lineAddress.W),
      State.Fetch       -> (lines(submission.offset) + (page.consumed(31, 0) & (subEntries - 1.U)))
    )
  )
  val sent   = io.read.request.fire
  val came   = io.read.response.valid
  val answer = io.read.response.bits.data
  private def answered(at: Int, bytes: Int): UInt = answer(8 * (at + bytes) - 1, 8 * at)

  io.pageWrite.valid := state === State.WritePage
  val toWrite = Reg(UInt(PageLine.count.W))
  io.pageWrite.bits := toWrite
  private def write(lines: UInt, next: State.Type): Unit = {
    toWrite := lines
    after   := next
    state   := State.WritePage
  }
  private def setState(s: Int): Unit = page.state := s.U
  val pageNow = WireDefault(page)
  pageNow.produced := io.written
  io.page := pageNow

  val indexDirty = page.consumed =/= shown.consumed || io.written =/= shown.produced || page.state =/= shown.state
  val flagged    = io.core.flagged.valid
  val settled    = inCycle && io.core.empty && !running && !greyLeft && !done.valid && page.consumed === submitted
  // Not tracing any more once everything is recorded.
  io.tracing := inCycle && !page.idle && !paused && !faulted
  io.paused  := false.B
  io.cycle    := page.cycle
  io.consumed := taken
  val nothingToDo = !attached || paused || faulted ||
    (page.consumed === submitted && !running && !greyLeft && !done.valid && (!inCycle || page.idle))
  io.step := state.asUInt
  io.sleeping := state === State.Pace && nothingToDo && !pending && (!attached || !indexDirty) &&
    (io.reportsEmpty || !attached || faulted || paused)

  switch(state) {
    is(State.PollIndex) { when(sent) { state := State.PollIndexWait } }
    is(State.PollIndexWait) {
      when(came) {
        hostGeneration := answered(HostIndexLayout.Generation, 8)
        submitted      := answered(HostIndexLayout.SubmissionProduced, 8)
        val now = answered(HostIndexLayout.CompletionConsumed, 8)
        val sameGeneration = answered(HostIndexLayout.Generation, 8) === page.generation
        when(attached && ringsGood && sameGeneration && (now < taken || now > io.produced)) {
          raise.valid := !faulted
          raise.bits  := FaultReport(Fault.RingOverrun, now, io.produced)
        }.otherwise { taken := now }
        state := State.PollRequest
      }
    }
    is(State.PollRequest) { when(sent) { state := State.PollRequestWait } }
    is(State.PollRequestWait) {
      when(came) {
        pauseAsked  := answered(HostRequestLayout.Pause, 4)
        resumeAsked := answered(HostRequestLayout.Resume, 4)
        abortAsked  := answered(HostRequestLayout.Abort, 4)
        state       := State.Decide
      }
    }

    // What comes first. Data of an errored read is zero and is not looked at: the fault is dealt with before.
    is(State.Decide) {
      pace  := (p.pollInterval - 1).U
      state := State.Pace
      val ahead = submitted - page.consumed
      when(pending) {
        when(attached && !faulted) {
          after := State.FaultWrite
          state := State.Kill
        }.otherwise { pending := false.B }
      }.elsewhen(hostGeneration =/= page.generation && attached) {
        attached := false.B
        after    := State.PollIndex
        state    := State.Kill
      }.elsewhen(!attached) {
        when(hostGeneration =/= 0.U && !hostGeneration(0)) {
          after := State.Identify
          state := State.Kill
        }
      }.elsewhen(abortAsked =/= page.ackAbort) {
        after := State.AbortIndex
        state := State.Kill
      }.elsewhen(pauseAsked =/= resumeAsked) {
        when(!paused) {
          elapsed := 0.U
          after := State.PauseDone
          state := State.Drain
        }.elsewhen(page.ackPause =/= pauseAsked) {
          page.ackPause  := pauseAsked
          page.ackResume := resumeAsked
          write(PageLine.mask(PageLine.ack, PageLine.indexAgain), State.PollIndex)
        }
      }.elsewhen(paused || page.ackPause =/= pauseAsked) {
        // Resumed: nothing that was held before the pause is believed.
        when(paused && !faulted) {
          io.orders.invalidate := true.B
          io.orders.dropShapes := true.B
        }
        state := State.Swept
      }.elsewhen(faulted) {
        state := State.Pace
      }.elsewhen(ahead > subEntries) {
        fail(Fault.RingOverrun, submitted, page.consumed)
      }.elsewhen(running && !io.core.sweepBusy && !io.core.clearBusy) {
        running := false.B
        when(opcode =/= Op.BeginCycle.U) { postDone() }
        when(opcode === Op.ClearBitmap.U) {
          write(PageLine.mask(PageLine.allCounters: _*), State.PollIndex)
        }.otherwise { state := State.Decide }
      }.elsewhen(greyLeft) {
        greyAt  := 0.U
        refused := false.B
        state   := State.GreySend
      }.elsewhen(!running && !done.valid && !io.core.sweepBusy && ahead =/= 0.U) {
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
        write(PageLine.mask(PageLine.index), State.PollIndex)
      }
    }
    is(State.Pace) {
      pace := pace - 1.U
      val urgent = pending || (running && !io.core.sweepBusy && !io.core.clearBusy) || (settled && !page.idle)
      when(pace === 0.U || urgent) { state := Mux(pending, State.Decide, State.PollIndex) }
      when(paused || faulted) { when(pace =/= 0.U && !pending) { state := State.Pace } }
    }

    // End everything that was asked of the memory, then put the core back to its state after reset.
    is(State.Kill) { when(io.memoryQuiet) { state := State.KillDone } }
    is(State.KillDone) {
      running  := false.B
      greyLeft := false.B
      done.valid := false.B
      state    := after
    }
    // Let the core come to rest with everything it holds, then write back what the host will look at.
    is(State.Drain) {
      when(io.core.quiet) { state := State.Flush }
      when(pending) { state := State.Decide }
    }
    is(State.Flush) {
      when(io.core.cleaned && io.core.liveFlushed && (io.reportsEmpty || io.reportsFull)) { state := after }
      when(pending) { state := State.Decide }
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
      io.restart := true.B
      page       := 0.U.asTypeOf(new PageState)
      page.generation := hostGeneration
      shown      := 0.U.asTypeOf(new PageState)
      faulted    := false.B
      paused     := false.B
      inCycle    := false.B
      ringsGood  := false.B
      pending    := false.B
      dropped    := 0.U
      taken      := 0.U
      setState(DeviceState.Ready)
      page.ackAbort := 0.U
      when(sent) { state := State.IdentifyWait }
    }
    is(State.IdentifyWait) {
      when(came) {
        val major = answered(IdentityLayout.VersionMajor, 2)
        val minor = answered(IdentityLayout.VersionMinor, 2)
        val magic = answered(IdentityLayout.Magic, 8)
        state := State.RingLatch
        latch.io.start := true.B
        latch.io.rings := true.B
        when(magic =/= Contract.Magic.U) {
          fail(Fault.BadMagic, magic, 0.U)
          state := State.Answer
          latch.io.start := false.B
        }.elsewhen(major =/= Contract.VersionMajor.U || minor > Contract.VersionMinor.U) {
          fail(Fault.BadVersion, (IdentityLayout.At + IdentityLayout.VersionMajor).U, Cat(major, minor))
          state := State.Answer
          latch.io.start := false.B
        }
      }
    }
    is(State.RingLatch) {
      when(latch.io.done) {
        ringsGood := !latch.io.fault.valid
        when(latch.io.fault.valid) {
          raise := latch.io.fault
        }
        state := State.Answer
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
      write(PageLine.mask(PageLine.index), State.PollIndex)
    }

    // Commands.
    is(State.Fetch) { when(sent) { state := State.FetchWait } }
    is(State.FetchWait) {
      when(came) {
        entry := answer
        index := page.consumed
        state := State.Check
      }
    }
    is(State.Check) {
      state := State.Decide
      val regions  = io.config.regionCount
      val ours     = inCycle && cycleOf === page.cycle
      val tooEarly = !inCycle && (cycleOf =/= dropped || dropped === 0.U)
      def badCommand(): Unit = fail(Fault.BadCommand, index, opcode)
      when(!pending) {
        page.consumed := page.consumed + 1.U
        io.rounds     := true.B
        when(sequence =/= (index(31, 0) + 1.U)(31, 0)) {
          page.consumed := page.consumed
          io.rounds     := false.B
          fail(Fault.BadSequence, index, sequence)
        }.otherwise {
          switch(opcode) {
            is(Op.Nop.U) {}
            is(Op.BeginCycle.U) {
              when(argument > 1.U || cycleOf === 0.U) { badCommand() }.otherwise {
                after := State.Latch
                state := State.Kill
              }
            }
            is(Op.TraceRegion.U) {
              when(tooEarly) { badCommand() }.elsewhen(ours) {
                when(
                  payload(0) === 0.U || argument >= regions || payload(0) > regions - argument ||
                    payload(1) =/= (Scope.Heap | Order.Any << 8).U
                ) { badCommand() }.otherwise {
                  io.slice.valid      := true.B
                  io.slice.bits.first := argument
                  io.slice.bits.count := payload(0)
                  running             := true.B
                  assert(io.slice.ready, "a sweep started while one runs")
                  state := State.PollIndex
                }
              }
            }
            is(Op.Grey.U) {
              when(tooEarly || (ours && count > EntryWords.U)) { badCommand() }.elsewhen(ours && count =/= 0.U) {
                greyLeft := true.B
                io.greys := count
              }
            }
            is(Op.ClearBitmap.U) {
              when(argument > 1.U) { badCommand() }.elsewhen(inCycle) { state := State.Begin }.otherwise {
                latch.io.start := true.B
                state          := State.Latch
              }
            }
            is(Op.Fence.U) {
              after := State.Fenced
              state := State.Drain
            }
            is(Op.InvalidateShapes.U) {
              io.orders.dropShapes := true.B
              io.forgetSeen        := true.B
            }
          }
          when(opcode > Op.InvalidateShapes.U) { badCommand() }
        }
      }
    }
    is(State.Latch) {
      // BEGIN_CYCLE arrives here from Kill with nothing started, CLEAR_BITMAP with the latch running.
      when(opcode === Op.BeginCycle.U && !latchDone) {
        latch.io.start := true.B
        latchDone      := true.B
        bitmap         := argument
        inCycle        := false.B
        page.idle      := false.B
      }
      when(latch.io.done) {
        latchDone := false.B
        state     := State.Begin
        when(latch.io.fault.valid) {
          raise := latch.io.fault
          state := State.Decide
        }
      }
      when(pending) {
        latchDone := false.B
        state     := State.Decide
      }
    }
    is(State.Begin) {
      running := true.B
      state   := State.PollIndex
      when(opcode === Op.BeginCycle.U) {
        inCycle          := true.B
        page.cycle       := cycleOf
        io.clearCounters := true.B
        io.forgetSeen    := true.B
        io.clearValid    := true.B
        setState(DeviceState.Tracing)
      }.otherwise {
        val regions = io.config.regionCount
        when(
          (inCycle && argument(0) === bitmap) || payload(1) === 0.U || payload(0) >= regions ||
            payload(1) > regions - payload(0)
        ) {
          running := false.B
          fail(Fault.BadCommand, index, opcode)
        }.otherwise { io.clearValid := true.B }
      }
    }
    // One reference at a time; a refused one has the whole entry offered again after the next look at the host.
    is(State.GreySend) { when(io.grey.fire && !greyOver) { state := State.GreyWait } }
    is(State.GreyWait) { when(pending) { state := State.Decide } }
    // Reached from Drain: what was dropped is to be found again, so nothing may be filtered as recently tested.
    is(State.Rescan) {
      io.orders.invalidate   := true.B
      io.orders.unflag.valid := true.B
      io.slice.valid         := true.B
      val first = (io.core.flagged.bits << io.config.flagShift).pad(p.regionBits + 1)(p.regionBits, 0)
      val rest  = io.config.regionCount - first
      val most  = (1.U((p.regionBits + 1).W) << io.config.flagShift)(p.regionBits, 0)
      io.slice.bits.first := first
      io.slice.bits.count := Mux(rest < most, rest, most)
      io.rescan           := true.B
      state               := State.PollIndex
    }
    is(State.Idle) {
      // Reports leave first; with a full ring the host must be waited for, looking at its requests meanwhile.
      when(io.reportsEmpty) {
        after := State.IdleDone
        state := State.Drain
      }.elsewhen(io.reportsFull) {
        pace  := (p.pollInterval - 1).U
        state := State.PollIndex
        when(indexDirty) { write(PageLine.mask(PageLine.index), State.PollIndex) }
      }
      when(pending) { state := State.Decide }
    }
    is(State.Fenced) {
      postDone()
      write(PageLine.mask(PageLine.allCounters: _*), State.PollIndex)
    }
    is(State.IdleDone) {
      // Something may have been reported while the core drained: then once more.
      state := State.PollIndex
      when(io.reportsEmpty && settled) {
        page.idle      := true.B
        page.idleCycle := page.cycle
        setState(DeviceState.Idle)
        write(
          PageLine.mask(PageLine.allCounters ++ Seq(PageLine.index, PageLine.idle, PageLine.indexAgain): _*),
          State.PollIndex
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
        State.PollIndex
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
        write(PageLine.mask(PageLine.ack, PageLine.indexAgain), State.PollIndex)
      }
    }

    // Abort: the submissions dropped are those made when the request is seen.
    is(State.AbortIndex) { when(sent) { state := State.AbortIndexWait } }
    is(State.AbortIndexWait) {
      when(came) {
        submitted := answered(HostIndexLayout.SubmissionProduced, 8)
        state     := State.Aborted
      }
    }
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
      write(PageLine.mask(PageLine.index, PageLine.idle, PageLine.ack, PageLine.indexAgain), State.PollIndex)
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
      done.valid        := ringsGood
      done.bits         := 0.U.asTypeOf(new Completion)
      done.bits.kind    := Comp.Fault.U
      done.bits.arg     := pendingFault.code
      done.bits.payload(0) := pendingFault.address
      done.bits.payload(1) := pendingFault.detail
      write(
        PageLine
          .mask(PageLine.allCounters ++ Seq(PageLine.fault, PageLine.index, PageLine.idle, PageLine.indexAgain): _*),
        State.FaultEntry
      )
    }
    is(State.FaultEntry) { state := State.PollIndex }
  }

  when((io.grey.fire || state === State.GreyWait) && greyOver && !pending) {
    refused := nowRefused
    greyAt  := greyAt + 1.U
    state   := State.GreySend
    when(greyAt + 1.U === count) {
      greyLeft := nowRefused
      state    := State.PollIndex
    }
  }
}
