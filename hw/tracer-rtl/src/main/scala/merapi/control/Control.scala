// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, FaultReport, PageLine, TracerParameters}
import merapi.mark.Slice
import merapi.memory.SharedRead

/** Commands, handshake, pause, abort, faults, idle: the one place where things are decided, one at a time.
  *
  * It looks at the host's two lines again and again (HostLook) and decides what comes first (see `Decide`): faults,
  * generation, abort, pause, then commands (SubmissionFetch, CommandCheck), then what an idle tracer owes. Long commands
  * (a sweep, clearing) run beside it, so that requests are seen within a poll. Whatever it waits for in a state of its
  * own ends by itself: memory answers, or the draining of a held core, which needs memory alone. DONE entries that find
  * the completion ring full wait in `done` while polling goes on.
  *
  * The unit is the only one that writes the control page, and the page's lines are written strictly in order.
  *
  * Here are its parts and what is decided; what then happens for the host's requests and for faults is in
  * ControlRequests, for commands in ControlCommands.
  */
class Control(val p: TracerParameters) extends Module with ControlRequests with ControlCommands {
  val io = IO(new ControlPorts(p))
  import Contract._

  object State extends ChiselEnum {
    val Look, Looking, Think, Decide, Pace                                          = Value
    val Kill, KillDone, Drain, Flush, WritePage, WriteWait, Swept                   = Value
    val Identify, Identifying, Answer, Answered, Attached                           = Value
    val Fetch, Judge, Check, Latch, Begin                                           = Value
    val Rescan, Idle, IdleDone, Fenced, PauseDone, AbortLook, AbortLooking, Aborted = Value
    val FaultWrite, FaultEntry                                                      = Value
  }
  val state       = RegInit(State.Look)
  val after       = RegInit(State.Look)                     // where Kill, Drain and WritePage lead
  val sweptBefore = RegNext(state === State.Swept, false.B) // not the first cycle of it

  // ---- what the host said last
  val look           = Module(new HostLook(p))
  val hostGeneration = look.io.hostGeneration
  val submitted      = look.io.submitted
  val pauseAsked     = look.io.pause
  val resumeAsked    = look.io.resume
  val abortAsked     = look.io.abort
  // ---- what was answered
  val page     = RegInit(0.U.asTypeOf(new PageState))
  val attached = RegInit(false.B)
  val paused   = RegInit(false.B)
  val resuming = RegInit(false.B) // copies are dropped, the resume is still to be acknowledged
  val resumed = RegInit(
    false.B
  ) // after a pause, in which shapes may have been replaced; the host was not looked at since
  val inCycle   = RegInit(false.B)
  val dropped   = RegInit(0.U(32.W))                   // cycle whose late commands are ignored
  val faulted   = RegInit(false.B)
  val ringsGood = RegInit(false.B)
  val untold    = RegInit(false.B)                     // of a fault: what a host waits for may not have been written
  val shown     = RegInit(0.U.asTypeOf(new PageState)) // as last written in the index line
  // ---- faults: the first one since the last was dealt with
  val pending      = RegInit(false.B)
  val pendingFault = Reg(new FaultReport)
  val raise        = WireDefault(0.U.asTypeOf(Valid(new FaultReport)))
  when(!pending && (io.fault.valid || raise.valid)) {
    pending      := true.B
    pendingFault := Mux(raise.valid, raise.bits, io.fault.bits)
  }
  private[control] def fail(code: Int, address: UInt, detail: UInt): Unit = {
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
  val inHand   = RegInit(false.B) // an entry was fetched and is still to be executed
  val done     = RegInit(0.U.asTypeOf(Valid(new Completion)))
  io.entry.valid := done.valid
  io.entry.bits  := done.bits
  when(io.entry.fire) { done.valid := false.B }
  private[control] def postDone(): Unit = {
    done.valid           := true.B
    done.bits            := 0.U.asTypeOf(new Completion)
    done.bits.kind       := Comp.Done.U
    done.bits.arg        := opcode
    done.bits.cycle      := command.cycle
    done.bits.payload(0) := index
    done.bits.payload(1) := argument
    done.bits.payload(2) := payload(0)
  }

  // ---- orders
  val hold     = paused || faulted || pending || !attached
  val draining = state.isOneOf(State.Kill, State.KillDone, State.Drain, State.Flush, State.PauseDone, State.Swept)
  val killing  = state.isOneOf(State.Kill, State.KillDone)
  io.orders.hold := hold || resumed || draining
  // What the core says of its rest is two cycles old, and it must have been held since: between a resume and a FENCE that
  // waited in hand it is not, for a cycle.
  private val held = RegNext(io.orders.hold, false.B) && RegNext(RegNext(io.orders.hold, false.B), false.B)
  io.orders.suppress := pending || faulted || killing || !attached
  io.orders.block    := killing
  io.orders.clear    := state === State.KillDone
  io.orders.drain    := state.isOneOf(State.Drain, State.Flush)
  io.orders.flush    := state === State.Flush
  // Pulses that follow from much, a cycle later.
  val invalidate    = WireDefault(false.B)
  val forget        = WireDefault(false.B)
  val dropShapes    = WireDefault(false.B)
  val redefined     = WireDefault(false.B)
  val unflag        = WireDefault(false.B)
  val settles       = WireDefault(false.B)
  val forgetSeen    = WireDefault(false.B)
  val clearCounters = WireDefault(false.B)
  io.orders.invalidate   := RegNext(invalidate, false.B)
  io.orders.forget       := RegNext(forget, false.B)
  io.orders.dropShapes   := RegNext(dropShapes, false.B)
  io.orders.redefined    := RegNext(redefined, false.B)
  io.orders.unflag.valid := RegNext(unflag, false.B)
  io.orders.unflag.bits  := RegNext(io.core.flagged.bits)
  io.orders.settled      := RegNext(settles, false.B)
  io.forgetSeen          := RegNext(forgetSeen, false.B)
  io.clearCounters       := RegNext(clearCounters || !attached, false.B)
  io.restart             := false.B
  io.dropReports         := (pending && !faulted) || killing || !attached // a fault's own entry stays
  io.holdReports         := paused
  io.flushReports        := state === State.Flush || state === State.Idle
  io.rescan              := false.B
  io.greys               := 0.U

  // ---- configuration
  val latch      = Module(new ConfigLatch(p))
  val bitmap     = RegInit(0.U(1.W)) // of the cycle
  val latchDone  = RegInit(false.B)
  val latchStart = WireDefault(false.B)
  val latchRings = WireDefault(false.B)
  latch.io.start       := RegNext(latchStart, false.B)
  latch.io.stop        := killing
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
  io.ringLog2 := latch.io.ringLog2
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
  // The flagged chunk stays the same while nothing moves: what was made of it a cycle before its sweep is right.
  private val chunkNow = flaggedSlice
  val flaggedBefore    = RegNext(chunkNow)
  assert(state =/= State.Rescan || flaggedBefore.asUInt === chunkNow.asUInt, "another chunk in the cycle of its sweep")
  io.slice.valid := RegNext(sweep, false.B)
  io.slice.bits  := RegNext(slice)
  io.clear.valid := RegNext(clear, false.B)
  io.clear.bits  := RegNext(grants.io.range)
  val sweepBusy = io.core.sweepBusy || io.slice.valid
  val clearBusy = io.core.clearBusy || io.clear.valid
  val offer     = Module(new GreyOffer(p))
  offer.io.hold                := hold || draining
  offer.io.again               := false.B
  offer.io.clear               := state === State.KillDone
  offer.io.ends                := io.greyEnds
  offer.io.put.valid           := false.B
  offer.io.put.bits.count      := command.count.take(3)
  offer.io.put.bits.references := payload
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

  // Greys join those that are under way; any other command sees the effects of all of them. While on-chip memories are
  // being cleared nothing begins that a pause would have to wait for. A cycle, which begins with killing all that is
  // under way, waits until the host has its answers to what came before.
  val sweeping  = RegNext(io.core.sweeping, true.B)
  val doneWaits = RegNext(io.doneWaits, false.B)
  val mayGo = Mux(verdict === Verdict.Grey, offer.io.room, offer.io.empty) && !sweeping &&
    !(verdict === Verdict.Begin && doneWaits)

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
  // For a pause the core is drained at once. For anything else that takes as long as a pause may, so the host is looked at
  // meanwhile.
  val between = state.isOneOf(State.Drain, State.Flush) && after =/= State.PauseDone
  val heard   = RegNext(RegNext(look.io.done, false.B), false.B) // what is compared with it is known
  // A look that is under way, or heard of in this cycle: nothing is decided by the drained core before.
  private val lookedBefore = RegNext(look.io.busy, false.B)
  val unheard              = look.io.busy || lookedBefore || RegNext(lookedBefore, false.B)
  // A DONE on its way to the reporter is none of its reports yet.
  private val reported = (io.reportsEmpty && !done.valid) || io.reportsFull
  val flushed          = state === State.Flush && io.core.cleaned && io.core.liveFlushed && reported
  look.io.start      := state === State.Look || state === State.AbortLook || (between && lookDue && !flushed)
  look.io.restart    := io.restart
  look.io.produced   := io.produced
  look.io.attached   := attached && ringsGood
  look.io.generation := page.generation
  when(RegNext(look.io.overrun.valid, false.B) && !faulted) {
    raise.valid := true.B
    raise.bits  := FaultReport(Fault.RingOverrun, RegNext(look.io.overrun.bits), io.produced)
  }
  val shake = Module(new Handshake(p))
  shake.io.start      := state === State.Identify
  shake.io.latchDone  := latch.io.done
  shake.io.latchFault := latch.io.fault
  val shared = Module(new SharedRead(p, 2))
  look.io.unread := io.unread
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
  private[control] def write(lines: UInt, next: State.Type): Unit = {
    toWrite := lines
    after   := next
    state   := State.WritePage
  }
  // While the core drains. What it was to drain for is still to be done after a pause, and then looked at anew.
  private[control] def heed(): Unit = {
    when(between && revoked) { state := State.Think }.elsewhen(between && heard) {
      when(otherHost || abortNew) { state := State.Think }.elsewhen(pauseWanted) {
        elapsed := 0.U
        after   := State.PauseDone
      }
    }
    when(pending) { state := State.Think }
  }
  // Between two things to do.
  private[control] def lookAgain(): Unit = {
    state := State.Look
    when(attached && !paused && !faulted && indexDirty) { write(PageLine.mask(PageLine.index), State.Look) }
  }
  // Of a fault, what a host waits for.
  private[control] def tellAgain(): Unit = {
    untold := false.B
    write(PageLine.mask(PageLine.fault, PageLine.index, PageLine.ack, PageLine.indexAgain), State.Look)
  }
  private[control] def setState(s: Int): Unit = page.state := s.U
  val pageNow                                 = WireDefault(page)
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
  val revoked      = RegNext(hostGeneration =/= page.generation && !look.io.unseen, false.B)
  val hostThere    = RegNext(hostGeneration =/= 0.U && !hostGeneration(0), false.B)
  val abortNew     = RegNext(abortAsked =/= page.ackAbort, false.B)
  val pauseWanted  = RegNext(pauseAsked =/= resumeAsked, false.B)
  val pauseUnacked = RegNext(page.ackPause =/= pauseAsked, false.B)
  assert(!(state === State.WritePage && attached && revoked), "the page is written for a host that has revoked")
  io.orders.pausing := io.orders.hold && pauseWanted
  val flagged = io.core.flagged.valid
  val settled = inCycle && io.core.empty && !running && offer.io.empty && !done.valid && !entryThere
  // Not tracing any more once everything is recorded.
  io.tracing  := inCycle && !page.idle && !paused && !faulted
  io.paused   := false.B
  io.cycle    := page.cycle
  io.consumed := look.io.taken
  val nothingToDo = !attached || paused || faulted ||
    (!entryThere && !running && offer.io.empty && !done.valid && (!inCycle || page.idle))
  io.step := state.asUInt
  // A fault's own entry is on its way, unless it waits for room.
  private val told =
    (io.reportsEmpty && RegNext(io.reportsEmpty, false.B) && !done.valid) || (faulted && io.reportsFull)
  io.sleeping := state === State.Pace && nothingToDo && !pending && (!attached || !(indexDirty || untold)) &&
    (told || !attached || paused)

  // One switch for all states: firtool writes what an earlier one says into every branch of a later one.
  switch(state) {
    is(State.Look) { when(!look.io.busy) { state := State.Looking } }
    is(State.Looking) { when(look.io.done || (attached && revoked)) { state := State.Think } }

    is(State.Think) { state := State.Decide } // what is compared is known in the next cycle

    // What comes first: a host that has revoked hears of nothing any more, of no fault either. Data of an errored read is
    // zero and says nothing (`revoked`): the fault is dealt with, and the host looked at again.
    is(State.Decide) {
      pace  := (p.pollInterval - 1).U
      state := State.Pace
      // What the host submitted in the pause may say that klass words mean other klasses: it is executed later.
      when(resumed) {
        resumed    := false.B
        forgetSeen := entryThere
        redefined  := entryThere
      }
      when(attached && revoked) {
        attached := false.B
        after    := State.Look
        state    := State.Kill
      }.elsewhen(pending) {
        when(attached && !faulted) {
          after := State.FaultWrite
          state := State.Kill
        }.otherwise {
          pending := false.B
          // What failed may be the write of one of the lines that a host waits for: those once more.
          when(attached) {
            untold := true.B
            state  := State.Look
          }
        }
      }.elsewhen(lookDue) {
        lookAgain()
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
          // Asked for before the resume was acknowledged: nothing went on in between.
          io.paused      := true.B
          resuming       := false.B // the host may lower limits again
          page.ackPause  := pauseAsked
          page.ackResume := resumeAsked
          when(!faulted) { setState(DeviceState.Paused) } // an abort may have ended the pause before
          write(
            PageLine.mask(PageLine.allCounters ++ Seq(PageLine.index, PageLine.ack, PageLine.indexAgain): _*),
            State.Look
          )
        }.elsewhen(faulted && (indexDirty || untold)) { tellAgain() }
      }.elsewhen(paused || pauseUnacked) {
        // Resumed: nothing that was held before the pause is believed.
        when(paused && !faulted && !resuming) {
          resuming   := true.B
          invalidate := true.B
          dropShapes := true.B
        }
        state := State.Swept
      }.elsewhen(faulted) {
        // The fault's own entry, which may have waited for room.
        when(indexDirty || untold) { tellAgain() }
      }.elsewhen(overrun) {
        fail(Fault.RingOverrun, submitted, page.consumed)
      }.elsewhen(running && !sweepBusy && !clearBusy) {
        running := false.B
        when(opcode =/= Op.BeginCycle.U) { postDone() }
        when(opcode === Op.ClearBitmap.U) {
          write(PageLine.mask(PageLine.allCounters: _*), State.Look)
        }.otherwise { state := State.Think }
      }.elsewhen(offer.io.refused) {
        // Lanes make room while the host is looked at.
        offer.io.again := true.B
        lookAgain()
      }.elsewhen(inHand) {
        state := State.Check
        when(!mayGo) { lookAgain() }
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
      val urgent = pending || (running && !sweepBusy && !clearBusy) || offer.io.refused || (settled && !page.idle)
      when(pace === 0.U || urgent) { state := Mux(pending, State.Think, State.Look) }
      when(paused || faulted) { when(pace =/= 0.U && !pending) { state := State.Pace } }
    }

    // End everything that was asked of the memory, then put the core back to its state after reset.
    is(State.Kill) { when(io.memoryQuiet && !look.io.busy) { state := State.KillDone } }
    is(State.KillDone) {
      running    := false.B
      inHand     := false.B
      done.valid := false.B
      state      := after
    }
    // Let the core come to rest with everything it holds, then write back what the host will look at.
    is(State.Drain) {
      when(io.core.quiet && held) { state := State.Flush }
      heed()
    }
    is(State.Flush) {
      when(flushed && !unheard) { state := after }
      heed()
    }
    is(State.WritePage) {
      state := State.WriteWait
      when((toWrite & PageLine.mask(PageLine.index, PageLine.indexAgain)).orR) { shown := pageNow }
    }
    is(State.WriteWait) { when(!io.pageBusy) { state := after } }

    // What the host asks for beside the ring, and faults: ControlRequests.
    is(State.Identify) { inIdentify() }
    is(State.Identifying) { inIdentifying() }
    is(State.Answer) { inAnswer() }
    is(State.Answered) { inAnswered() }
    is(State.Attached) { inAttached() }
    is(State.PauseDone) { inPauseDone() }
    is(State.Swept) { inSwept() }
    is(State.AbortLook) { inAbortLook() }
    is(State.AbortLooking) { inAbortLooking() }
    is(State.Aborted) { inAborted() }
    is(State.FaultWrite) { inFaultWrite() }
    is(State.FaultEntry) { inFaultEntry() }

    // The entries of the submission ring: ControlCommands.
    is(State.Fetch) { inFetch() }
    is(State.Judge) { inJudge() }
    is(State.Check) { inCheck() }
    is(State.Latch) { inLatch() }
    is(State.Begin) { inBegin() }
    is(State.Rescan) { inRescan() }
    is(State.Idle) { inIdle() }
    is(State.Fenced) { inFenced() }
    is(State.IdleDone) { inIdleDone() }
  }
}
