// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.TracerParameters
import merapi.primitives.Fifo

/** Adds up one lane's live words per region before they go to the table that all lanes share: objects come by the
  * region they lie in, so that most updates end here and the table's one update a cycle does not bind the lanes.
  *
  * What is held leaves when another region needs its place, or at a flush. Waits for the table alone.
  */
class LiveMerge(p: TracerParameters) extends Module {
  private val places = p.mergeRegions
  val io = IO(new Bundle {
    val in    = Flipped(Decoupled(new LiveWords(p)))
    val out   = Decoupled(new LiveWords(p))
    val flush = Input(Bool()) // level, when no update comes any more; those that have come are added first
    val empty = Output(Bool())
  })
  val in     = Fifo(io.in, 2)                   // ready by itself
  val valid  = RegInit(0.U(places.W))
  val region = Reg(Vec(places, UInt(p.regionBits.W)))
  val words  = Mem(places, UInt((p.objectBits + 1).W))
  val victim = RegInit(0.U(log2Ceil(places).W)) // the oldest place
  val out    = Module(new Fifo(new LiveWords(p), 2))
  io.out <> out.io.deq

  val hits  = VecInit(region.zipWithIndex.map { case (r, i) => valid(i) && r === in.bits.region })
  val hit   = hits.asUInt.orR
  val full  = valid.andR
  val place = Mux(hit, OHToUInt(hits), Mux(full, victim, PriorityEncoder(~valid)))
  val held  = Mux(hit, words.read(OHToUInt(hits)), 0.U) // what is added does not wait for the place
  val evict = in.valid && !hit && full
  val leave = Mux(io.flush && !in.valid, PriorityEncoder(valid), victim)
  out.io.enq.valid       := evict || (io.flush && valid.orR && !in.valid)
  out.io.enq.bits.region := region(leave)
  out.io.enq.bits.words  := words.read(leave)
  in.ready               := !evict || out.io.enq.ready
  when(in.fire) {
    region(place) := in.bits.region
    words.write(place, held + in.bits.words)
    valid := valid | UIntToOH(place, places)
    when(evict) { victim := victim + 1.U }
  }.elsewhen(out.io.enq.fire) { valid := valid & ~UIntToOH(leave, places) }
  io.empty := !in.valid && !valid.orR && !out.io.deq.valid
}
