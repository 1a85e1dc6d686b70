// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, TracerParameters}
import merapi.mark.RawReference

/** How references of the host ended in this cycle: in the filter, or in a bank, which may refuse them. */
class GreyEnds(p: TracerParameters) extends Bundle {
  val count   = UInt(log2Ceil(p.lanes + 4).W)
  val refused = Bool() // one of them at least
}

/** The references of a GREY entry. */
class GreyEntry(p: TracerParameters) extends Bundle {
  val count      = UInt(3.W) // at least one
  val references = Vec(Contract.EntryWords.toInt, UInt(64.W))
}

/** Keeps the GREY entries that are under way and offers their references to the host's filter, one a cycle.
  *
  * References end in any order and do not say which they were, so entries leave together: when all that were offered
  * have ended. Entries that come meanwhile join them as long as there is a place.
  *
  * A bank refuses a reference when no grey can be kept. Then nothing more is offered, and when the others have ended,
  * `refused` asks for `again`, which offers all from the first on: a mark that is there already is no reason to refuse,
  * so a second time does no harm. Between the two the control unit looks around; so the lanes make room, and no request
  * of the host waits for that. What is under way ends by itself: neither filter nor bank waits for anything but the
  * memory, also while held.
  */
class GreyOffer(p: TracerParameters) extends Module {
  private val words = Contract.EntryWords.toInt
  private val depth = p.greyEntries
  val io = IO(new Bundle {
    val put     = Flipped(Valid(new GreyEntry(p))) // when there is room
    val room    = Output(Bool())
    val hold    = Input(Bool())                    // nothing new is offered: a pause, a fault
    val again   = Input(Bool())                    // pulse, when refused
    val clear   = Input(Bool())                    // pulse, with the core's reset: forget everything
    val out     = Decoupled(new RawReference(p))
    val ends    = Input(new GreyEnds(p))
    val refused = Output(Bool())                   // all that was offered has ended, some to be offered again
    val empty   = Output(Bool())
  })
  private val countBits = log2Ceil(depth + 1)
  private val placeBits = log2Ceil(depth)
  val entries           = Seq.fill(words)(Mem(depth, UInt(64.W)))
  val counts            = Mem(depth, UInt(3.W))
  val filled            = RegInit(0.U(countBits.W))
  val at                = RegInit(0.U(countBits.W))                   // entry of the next to offer
  val word              = RegInit(0.U(3.W))                           // which of its references
  val open              = RegInit(0.U(log2Ceil(depth * words + 1).W)) // offered and not ended
  val refused           = RegInit(false.B)
  val valid             = RegInit(false.B)
  val value             = Reg(UInt(64.W))

  io.room := !filled(placeBits) // depth is a power of two
  assert(!(io.put.valid && !io.room), "an entry without a place")
  when(io.put.valid) {
    val place = filled(placeBits - 1, 0)
    entries.zip(io.put.bits.references).foreach { case (m, reference) => m.write(place, reference) }
    counts.write(place, io.put.bits.count)
    filled := filled + 1.U
    assert(io.put.bits.count =/= 0.U && io.put.bits.count <= words.U, "an entry with no references or too many")
  }

  val place = at(placeBits - 1, 0)
  val loads = (!valid || io.out.ready) && at =/= filled && !io.hold && !refused
  when(io.out.ready) { valid := false.B }
  when(loads) {
    val last = word + 1.U === counts.read(place)
    valid := true.B
    value := VecInit(entries.map(_.read(place)))(word)
    word  := Mux(last, 0.U, word + 1.U)
    at    := at + last
  }
  io.out.valid          := valid
  io.out.bits.value     := value
  io.out.bits.source    := 0.U
  io.out.bits.host      := true.B
  io.out.bits.uncounted := false.B

  open    := open + loads - io.ends.count
  refused := refused || io.ends.refused
  assert(io.ends.count <= open, "more references of the host ended than were offered")

  val ended = open === 0.U
  io.empty   := filled === 0.U
  io.refused := ended && refused
  when(ended && !refused && at === filled && !io.put.valid) {
    filled := 0.U
    at     := 0.U
  }
  when(io.again) {
    assert(io.refused, "entries offered again while some are under way")
    at      := 0.U
    word    := 0.U
    refused := false.B
  }
  when(io.clear) {
    filled  := 0.U
    at      := 0.U
    word    := 0.U
    open    := 0.U
    refused := false.B
    valid   := false.B
  }
}
