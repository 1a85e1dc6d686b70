// SPDX-License-Identifier: Apache-2.0
package merapi.common

import chisel3._
import chisel3.util._

/** What the units did in one cycle, by enum counter. Counters that nobody drives stay zero. */
class CounterEvents extends Bundle {
  val add = Vec(Counters.count, UInt(Counters.stepBits.W))
}

object Counters {

  /** Counters of the contract that exist; the rest of the page's room stays zero. */
  val count    = Contract.Counter.Rounds + 1
  val stepBits = 41 // live words of one object are the largest step
  val lines    = (count + 7) / 8
  val wide     = Set(Contract.Counter.LiveWords)

  def none: CounterEvents = 0.U.asTypeOf(new CounterEvents)
}

/** Sums of the events, two cycles after them: nobody reads them sooner (the page's lines are written after a drain). */
class Counters(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val events   = Input(new CounterEvents)
    val clear    = Input(Bool())     // all but ROUNDS
    val restart  = Input(Bool())     // all
    val pauseMax = Flipped(Valid(UInt(64.W)))
    val rounds   = Input(UInt(64.W)) // submissions consumed since the handshake
    val lines    = Output(Vec(Counters.lines, UInt(p.lineBits.W)))
  })
  val events = RegNext(io.events, Counters.none)
  val pause  = RegNext(io.pauseMax, 0.U.asTypeOf(io.pauseMax))
  val values = RegInit(VecInit(Seq.fill(Counters.lines * 8)(0.U(64.W))))
  for (i <- 0 until Counters.count) {
    val step = if (Counters.wide(i)) events.add(i) else events.add(i)(9, 0)
    val zero = io.restart || io.clear
    if (i == Contract.Counter.Rounds) {
      values(i) := io.rounds
    } else if (i == Contract.Counter.PauseMax) {
      when(zero) { values(i) := 0.U }.elsewhen(pause.valid && pause.bits > values(i)) {
        values(i) := pause.bits
      }
    } else {
      values(i) := Mux(zero, 0.U, values(i) + step)
    }
  }
  for (l <- 0 until Counters.lines) io.lines(l) := VecInit((0 until 8).map(i => values(8 * l + i))).asUInt
}
