// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._
import chisel3.util._

/** Takes one of many requests a cycle, in turn, in two steps: whose turn it is next is decided from who asks now, and
  * only a register decides what is selected. A client that withdraws its request loses its turn and nothing else.
  *
  * A client whose turn it is comes again at once only when no other asks.
  *
  * Wide requests (`gather`) take a cycle more: each client's goes to registers of its own, which are zero when it was
  * not its turn, so that what selects among them is an or. What is said of a request then (`note`) goes with it.
  */
class TurnArbiter[T <: Data](gen: T, count: Int, gather: Boolean = false, noteBits: Int = 0) extends Module {
  val io = IO(new Bundle {
    val in     = Vec(count, Flipped(Decoupled(gen)))
    val out    = Decoupled(gen)
    val client = Output(UInt(log2Ceil(count).W)) // of `out`
    val taken  = Output(Bool())                  // a request was taken in this cycle
    val next   = Output(gen)                     // what `note` is about
    val note   = Input(UInt(noteBits.W))
    val noted  = Output(UInt(noteBits.W))        // of `out`
  })
  class Taken extends Bundle {
    val client  = UInt(log2Ceil(count).W)
    val request = gen.cloneType
    val note    = UInt(noteBits.W)
  }
  val turn  = RegInit(0.U(count.W)) // at most one bit
  val later = RegInit(0.U(count.W)) // those after the last whose turn it was
  val out   = Module(new Fifo(new Taken, 2))
  val asks  = VecInit(io.in.map(_.valid)).asUInt
  val go    = turn & asks
  val moves = Wire(Bool())          // a request can be taken
  if (gather) {
    val taken    = RegInit(0.U(count.W)) // whose request is in `gathered`
    val gathered = Reg(Vec(count, UInt(gen.getWidth.W)))
    moves := !taken.orR || out.io.enq.ready
    when(moves) {
      taken := go
    }
    // Only those change whose turn it is, or was.
    val before = RegEnable(turn, Fill(count, 1.U(1.W)), moves)
    gathered.zip(io.in).zipWithIndex.foreach { case ((g, in), i) =>
      when(moves && (turn(i) || before(i))) { g := Mux(turn(i), in.bits.asUInt, 0.U) }
    }
    out.io.enq.valid       := taken.orR
    out.io.enq.bits.client := OHToUInt(taken)
    // As wide as a table at each level.
    out.io.enq.bits.request := gathered.grouped(6).map(_.reduce(_ | _)).reduce(_ | _).asTypeOf(gen)
  } else {
    moves                   := out.io.enq.ready
    out.io.enq.valid        := go.orR
    out.io.enq.bits.client  := OHToUInt(turn)
    out.io.enq.bits.request := Mux1H(turn, io.in.map(_.bits))
  }
  io.in.zipWithIndex.foreach { case (in, i) => in.ready := turn(i) && moves }
  io.taken := go.orR && moves

  val others = asks & ~turn
  val ahead  = others & later
  // Places above the lowest that asks; both ways round are looked at beside each other.
  val next   = Mux(ahead.orR, Word.lowest(ahead), Mux(others.orR, Word.lowest(others), go))
  val beyond = Mux(ahead.orR, Word.above(ahead), Mux(others.orR, Word.above(others), Word.above(go)))
  when(moves) {
    turn := next
    when(asks.orR) { later := beyond }
  }
  io.next              := out.io.enq.bits.request
  out.io.enq.bits.note := io.note
  io.noted             := out.io.deq.bits.note
  io.out.valid         := out.io.deq.valid
  io.out.bits          := out.io.deq.bits.request
  io.client            := out.io.deq.bits.client
  out.io.deq.ready     := io.out.ready
}
