// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, PageLine}

/** The control unit's states for what the host asks for beside the ring (a handshake, a pause, a resume, an abort) and
  * for a fault. Each is entered with the core at rest, from Drain or Kill, and ends by writing the page.
  */
trait ControlRequests { unit: Control =>
  import Contract._

  // Handshake. The generation is answered even when the window is refused, so that the host can read why.
  private[control] def inIdentify(): Unit = {
    io.restart      := true.B
    page            := 0.U.asTypeOf(new PageState)
    page.generation := hostGeneration
    shown           := 0.U.asTypeOf(new PageState)
    faulted         := false.B
    paused          := false.B
    resuming        := false.B
    resumed         := false.B
    inCycle         := false.B
    ringsGood       := false.B
    pending         := false.B
    dropped         := 0.U
    untold          := false.B
    setState(DeviceState.Ready)
    state := State.Identifying
  }
  private[control] def inIdentifying(): Unit = {
    latchStart := shake.io.latchStart
    latchRings := true.B
    when(shake.io.done) {
      // A host asks with empty rings. What is in them was said to another tracer, which has answered this generation
      // before: it may be of cycles that are over.
      ringsGood := !shake.io.fault.valid && !look.io.used
      when(look.io.used) { fail(Fault.RingOverrun, submitted, page.consumed) }
      when(shake.io.fault.valid) { raise := shake.io.fault }
      state := State.Answer
    }
  }
  private[control] def inAnswer(): Unit = {
    when(pending) { refuse() }
    writeAnswer()
  }
  // All of it but the generation.
  private[control] def writeAnswer(): Unit = write(
    PageLine.mask(PageLine.allCounters ++ Seq(PageLine.fault, PageLine.identity, PageLine.idle, PageLine.ack): _*),
    State.Answered
  )
  private[control] def refuse(): Unit = {
    ringsGood        := false.B
    faulted          := true.B
    pending          := false.B
    page.faultCode   := pendingFault.code
    page.faultAt     := pendingFault.address
    page.faultDetail := pendingFault.detail
    setState(DeviceState.Faulted)
  }
  private[control] def inAnswered(): Unit = when(pending && !faulted) {
    // One of these lines could not be written: a refusal as well, of which the host reads before it sees the answer.
    refuse()
    writeAnswer()
  }.elsewhen(pending) {
    // The refusal could not be written either: the host, if it is still there, is answered anew.
    pending := false.B
    state   := State.Look
  }.otherwise {
    attached := true.B
    write(PageLine.mask(PageLine.index), State.Attached)
  }
  private[control] def inAttached(): Unit = {
    state := State.Look
    // The answer itself: once more, behind its fault.
    when(pending && !faulted) {
      refuse()
      write(PageLine.mask(PageLine.fault, PageLine.index), State.Look)
    }
  }

  private[control] def inPauseDone(): Unit = {
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
  private[control] def inSwept(): Unit = {
    // A sweep takes longer than a pause may: the host is looked at in it. Not from Pace, where a tracer that is paused may
    // sleep. (What was ordered on the way here is known to sweep in the first cycle, whether it does in the second.)
    when(sweptBefore) { state := State.Look }
    when(!io.core.sweeping) {
      resuming       := false.B
      paused         := false.B
      resumed        := paused // not after a pause that the host took back before it was seen: no lane is at rest
      page.ackPause  := pauseAsked
      page.ackResume := resumeAsked
      when(!faulted) {
        page.state := Mux(inCycle, Mux(page.idle, DeviceState.Idle.U, DeviceState.Tracing.U), DeviceState.Ready.U)
      }
      // As at a pause: who sees the acknowledgement sees the state too.
      write(PageLine.mask(PageLine.index, PageLine.ack, PageLine.indexAgain), State.Look)
    }
  }

  // Abort: the submissions dropped are those made when the request is seen. Whatever went wrong before is over; when the
  // look itself does, it says nothing of the submissions: the abort is done after that fault. When it shows
  // another generation, none is done.
  private[control] def inAbortLook(): Unit = {
    pending := false.B
    state   := State.AbortLooking
  }
  private[control] def inAbortLooking(): Unit = when(look.io.done) { state := State.Aborted }
  private[control] def inAborted(): Unit = when(pending || otherHost) { state := State.Think }.otherwise {
    when(inCycle) { dropped := page.cycle }
    inCycle       := false.B
    faulted       := false.B
    page.idle     := false.B
    page.cycle    := 0.U
    page.ackAbort := abortAsked
    page.consumed := submitted
    setState(DeviceState.Ready)
    when(!ringsGood) {
      faulted       := true.B
      page.consumed := page.consumed
      setState(DeviceState.Faulted)
    }.elsewhen(submitted - page.consumed > subEntries) { page.consumed := page.consumed } // a fault after that
    // The record, too, if a write of it may have failed.
    val lines = Seq(PageLine.index, PageLine.idle, PageLine.ack, PageLine.indexAgain)
    untold := false.B
    write(Mux(untold, PageLine.mask(PageLine.fault +: lines: _*), PageLine.mask(lines: _*)), State.Look)
  }

  // A fault: the record keeps the first since the handshake; the entry goes out when the ring has room.
  private[control] def inFaultWrite(): Unit = when(revoked) {
    state := State.Think // seen by a look that was under way when what the memory owed was waited for
  }.otherwise {
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
    done.bits.cycle      := page.cycle
    done.bits.payload(0) := pendingFault.address
    done.bits.payload(1) := pendingFault.detail
    // All lines but the identity: what failed may be the write of one.
    write(
      PageLine.mask(
        PageLine.allCounters ++ Seq(
          PageLine.fault,
          PageLine.index,
          PageLine.idle,
          PageLine.ack,
          PageLine.indexAgain
        ): _*
      ),
      State.FaultEntry
    )
  }
  private[control] def inFaultEntry(): Unit = state := State.Look
}
