// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** How references of the host ended in this cycle: in the filter, or in a bank, which may refuse them. */
class GreyEnds(p: TracerParameters) extends Bundle {
  val count   = UInt(log2Ceil(p.lanes + 4).W)
  val refused = Bool() // one of them at least
}

/** Offers the references of a GREY entry to the host's filter, one after the other, and waits for the end of all.
  *
  * A bank refuses a reference when no grey can be kept; then the whole entry is to be offered again (`refused`), after
  * the control unit has looked around: a mark that is there already is no reason to refuse, so the second time does no
  * harm. Ends by itself: neither filter nor bank waits for anything but the memory.
  */
class GreyOffer(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val start   = Input(Bool())  // level: offer `command` from its first reference; ends with `done`
    val command = Input(new Command(p))
    val stop    = Input(Bool())  // a fault: nothing more is offered
    val out     = Decoupled(new RawReference(p))
    val ends    = Input(new GreyEnds(p))
    val done    = Output(Bool()) // pulse
    val refused = Output(Bool()) // with done
  })
  val at      = RegInit(0.U(3.W)) // next to offer
  val ended   = RegInit(0.U(3.W))
  val refused = RegInit(false.B)
  io.out.valid       := io.start && at =/= io.command.count && !io.stop
  io.out.bits.value  := io.command.payload(at)
  io.out.bits.source := 0.U
  io.out.bits.host   := true.B
  when(io.out.fire) { at := at + 1.U }
  // A reference may end in the cycle in which it is offered.
  val endedNow   = ended +& io.ends.count
  val refusedNow = refused || io.ends.refused
  io.done    := io.start && endedNow === io.command.count
  io.refused := refusedNow
  ended      := endedNow
  refused    := refusedNow
  when(io.done || !io.start) {
    at      := 0.U
    ended   := 0.U
    refused := false.B
  }
  assert(!io.start || endedNow <= io.command.count, "more references of the host ended than were offered")
}
