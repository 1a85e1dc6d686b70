// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Takes one of many requests a cycle, in turn, in two steps: whose turn it is next is decided from who asks now, and
  * only a register decides what is selected. A client that withdraws its request loses its turn and nothing else.
  *
  * A client whose turn it is comes again at once only when no other asks.
  */
class TurnArbiter[T <: Data](gen: T, count: Int) extends Module {
  val io = IO(new Bundle {
    val in     = Vec(count, Flipped(Decoupled(gen)))
    val out    = Decoupled(gen)
    val client = Output(UInt(log2Ceil(count).W)) // of `out`
    val taken  = Output(Bool())                  // a request was taken in this cycle
  })
  class Taken extends Bundle {
    val client  = UInt(log2Ceil(count).W)
    val request = gen.cloneType
  }
  val turn  = RegInit(0.U(count.W)) // at most one bit
  val later = RegInit(0.U(count.W)) // those after the last whose turn it was
  val out   = Module(new Queue(new Taken, 2))
  val asks  = VecInit(io.in.map(_.valid)).asUInt
  out.io.enq.valid        := (turn & asks).orR
  out.io.enq.bits.client  := OHToUInt(turn)
  out.io.enq.bits.request := Mux1H(turn, io.in.map(_.bits))
  io.in.zipWithIndex.foreach { case (in, i) => in.ready := turn(i) && out.io.enq.ready }
  io.taken := out.io.enq.fire

  val others = asks & ~turn
  val again  = !others.orR
  val ahead  = others & later
  val next   = Mux(again, asks & turn, PriorityEncoderOH(Mux(ahead.orR, ahead, others)))
  when(out.io.enq.ready) {
    turn := next
    when(next.orR) { later := ~(next | (next - 1.U)) }
  }
  io.out.valid      := out.io.deq.valid
  io.out.bits       := out.io.deq.bits.request
  io.client         := out.io.deq.bits.client
  out.io.deq.ready  := io.out.ready
}
