// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, PageLine}
import merapi.mark.Slice

/** The control unit's states for the entries of the submission ring, one at a time, and for what is left to do when the
  * last of them is executed.
  */
trait ControlCommands { unit: Control =>
  import Contract._

  private[control] def inFetch(): Unit = {
    when(fetch.io.entry.fire) {
      entry  := fetch.io.entry.bits
      index  := page.consumed
      inHand := true.B
      state  := State.Judge
    }
    when(pending) { state := State.Think }
  }
  private[control] def inJudge(): Unit = state := State.Check
  private[control] def inCheck(): Unit = {
    state := State.Think
    when(!pending && mayGo) {
      inHand        := false.B
      page.consumed := page.consumed + 1.U
      switch(verdict) {
        is(Verdict.BadSequence) {
          page.consumed := page.consumed
          fail(Fault.BadSequence, index, command.sequence)
        }
        is(Verdict.BadCommand) { fail(Fault.BadCommand, index, opcode) }
        is(Verdict.Begin) {
          after := State.Latch
          state := State.Kill
        }
        is(Verdict.Trace) {
          sweep       := true.B
          slice.first := argument.take(p.regionBits + 1)
          slice.count := payload(0).take(p.regionBits + 1)
          running     := true.B
        }
        is(Verdict.Grey) {
          offer.io.put.valid := true.B
          io.greys           := command.count.take(3)
          // As Decide would: the host was not looked at since.
          when(fetch.io.entry.valid && !lookDue) { state := State.Fetch }
        }
        is(Verdict.Clear) {
          // In a cycle the configuration is there; outside of one it is read for this command.
          when(inCycle) { state := State.Begin }.otherwise {
            latchStart := true.B
            state      := State.Latch
          }
        }
        is(Verdict.Fence) {
          // In hand until it is executed: a pause may come before.
          inHand        := true.B
          page.consumed := page.consumed
          after         := State.Fenced
          state         := State.Drain
        }
        is(Verdict.DropShapes) {
          dropShapes := true.B
          forgetSeen := true.B
        }
      }
    }
  }
  private[control] def inLatch(): Unit = {
    // BEGIN_CYCLE arrives here from Kill with nothing started, CLEAR_BITMAP with the latch running.
    when(opcode === Op.BeginCycle.U && !latchDone) {
      latchStart := true.B
      latchDone  := true.B
      bitmap     := argument(0)
      when(inCycle) { dropped := page.cycle }
      inCycle   := false.B
      page.idle := false.B
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
  private[control] def inBegin(): Unit = {
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
  // The regions of the flagged chunk, as far as the heap has them.
  private[control] def flaggedSlice: Slice = {
    val slice = Wire(new Slice(p))
    val first = (io.core.flagged.bits << io.config.flagShift).pad(p.regionBits + 1)(p.regionBits, 0)
    val rest  = io.config.regionCount - first
    val most  = (1.U((p.regionBits + 1).W) << io.config.flagShift)(p.regionBits, 0)
    slice.first := first
    slice.count := Mux(rest < most, rest, most)
    slice
  }
  // Reached from Drain: what was dropped is to be found again, so nothing may be filtered as recently tested. Other
  // copies stay right: nobody but the tracer writes before the next pause.
  private[control] def inRescan(): Unit = {
    forget    := true.B
    unflag    := true.B
    sweep     := true.B
    slice     := flaggedBefore
    io.rescan := true.B
    state     := State.Look
  }
  private[control] def inIdle(): Unit = {
    // Reports leave first; with a full ring the host must be waited for, looking at its requests meanwhile.
    when(io.reportsEmpty) {
      after := State.IdleDone
      state := State.Drain
    }.elsewhen(io.reportsFull) {
      state := State.Look
      when(indexDirty) { write(PageLine.mask(PageLine.index), State.Look) }
    }
    when(pending) { state := State.Think }
  }
  private[control] def inFenced(): Unit = {
    inHand        := false.B
    page.consumed := page.consumed + 1.U
    postDone()
    write(PageLine.mask(PageLine.allCounters: _*), State.Look)
  }
  private[control] def inIdleDone(): Unit = {
    // Something may have been reported while the core drained, or submitted: then once more. A host that submits all the
    // time hears what was executed all the same.
    lookAgain()
    when(io.reportsEmpty && settled) {
      settles        := true.B
      page.idle      := true.B
      page.idleCycle := page.cycle
      setState(DeviceState.Idle)
      write(
        PageLine.mask(PageLine.allCounters ++ Seq(PageLine.index, PageLine.idle, PageLine.indexAgain): _*),
        State.Look
      )
    }
  }
}
