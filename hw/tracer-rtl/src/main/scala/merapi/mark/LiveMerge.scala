// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.TracerParameters
import merapi.primitives.Fifo

/** Adds up one lane's live words per region before they go to the table that all lanes share: objects come by the
  * region they lie in, so that most updates end here and the table's one update a cycle does not bind the lanes.
  *
  * An update a cycle in two stages: the place, by comparison with the regions that are held; then its sum, read, added to
  * and written in one cycle, so that two of one place need nothing of each other. What is held leaves by the same two
  * stages when another region needs its place, or at a flush. Waits for the table alone.
  */
class LiveMerge(p: TracerParameters) extends Module {
  private val places    = p.mergeRegions
  private val placeBits = log2Ceil(places)
  val io = IO(new Bundle {
    val in    = Flipped(Decoupled(new LiveWords(p)))
    val out   = Decoupled(new LiveWords(p))
    val flush = Input(Bool()) // level, when no update comes any more; those that have come are added first
    val empty = Output(Bool())
  })
  val in  = Fifo(io.in, 2) // ready by itself
  val out = Module(new Fifo(new LiveWords(p), 2))
  io.out <> out.io.deq

  // The place.
  val valid  = RegInit(0.U(places.W))
  val region = Reg(Vec(places, UInt(p.regionBits.W)))
  val victim = RegInit(0.U(placeBits.W))                  // the oldest place
  val hits   = VecInit(region.zipWithIndex.map { case (r, i) => valid(i) && r === in.bits.region }).asUInt
  val hit    = hits.orR
  val full   = valid.andR
  val other  = Mux(full, victim, PriorityEncoder(~valid)) // if none is the region's
  val place  = Mux(hit, OHToUInt(hits), other)
  val flush  = io.flush && !in.valid && valid.orR
  val first  = PriorityEncoder(valid)

  // The sum.
  class Step extends Bundle {
    val place  = UInt(placeBits.W)
    val adds   = Bool()
    val begins = Bool() // with what is added alone
    val leaves = Bool() // what was there, of this region
    val region = UInt(p.regionBits.W)
    val words  = UInt((p.objectBits + 1).W)
  }
  val sums  = Mem(places, UInt((p.objectBits + 1).W))
  val busy  = RegInit(false.B)
  val step  = Reg(new Step)
  val goes  = !busy || !step.leaves || out.io.enq.ready
  val held  = sums.read(step.place)
  val after = Mux(step.begins, 0.U, held) + step.words
  in.ready := goes
  when(goes) {
    busy        := in.valid || flush
    step.place  := Mux(in.valid, place, first)
    step.adds   := in.valid
    step.begins := !hit
    step.leaves := !in.valid || (!hit && full)
    step.region := region(Mux(in.valid, victim, first))
    step.words  := in.bits.words
  }
  when(in.fire && !hit) {
    region(other) := in.bits.region
    valid         := valid | UIntToOH(other, places)
    when(full) { victim := victim + 1.U }
  }.elsewhen(goes && flush) { valid := valid & ~UIntToOH(first, places) }
  when(busy && step.adds && goes) { sums.write(step.place, after) }
  out.io.enq.valid       := busy && step.leaves
  out.io.enq.bits.region := step.region
  out.io.enq.bits.words  := held
  io.empty               := !in.valid && !valid.orR && !busy && !out.io.deq.valid
}
