// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._
import chisel3.util._

/** One of many requests in the cycle in which it stands there, each in its turn: after one, those behind it come first.
  * Like RRArbiter, but the places behind the last one are kept as bits, not compared with its number, and nobody is
  * ready who does not ask.
  */
class RoundArbiter[T <: Data](gen: T, count: Int) extends Module {
  val io = IO(new Bundle {
    val in  = Vec(count, Flipped(Decoupled(gen)))
    val out = Decoupled(gen)
  })
  val behind = RegInit(0.U(count.W))
  val asks   = VecInit(io.in.map(_.valid)).asUInt
  val later  = asks & behind
  val turn   = Mux(later.orR, Word.lowest(later), Word.lowest(asks))
  io.out.valid := asks.orR
  io.out.bits  := Mux1H(turn, io.in.map(_.bits))
  io.in.zip(turn.asBools).foreach { case (in, t) => in.ready := t && io.out.ready }
  when(io.out.fire) { behind := Mux(later.orR, Word.above(later), Word.above(asks)) }
}
