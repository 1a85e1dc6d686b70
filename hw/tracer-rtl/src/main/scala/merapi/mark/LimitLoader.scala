// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.{ReadPort, TraceConfig, TracerParameters}
import merapi.primitives.{EpochSweep, RoundArbiter, Word}

/** One limit on its way into the copies of all checkers, or a row of theirs that is cleared. */
class LimitFill(p: TracerParameters) extends Bundle {
  val write  = Bool()
  val sweep  = Bool()     // the row is cleared: nothing else below holds
  val row    = UInt(LimitFill.rowBits(p).W)
  val region = UInt(p.regionBits.W)
  val good   = Bool()
  val value  = UInt(64.W) // as it stands in the table
  // Levels.
  val epoch    = UInt(EpochSweep.bits.W) // of rows that hold
  val sweeping = Bool()                  // no row can be used

  def limit: UInt = (value >> 3)(p.objectBits, 0)
}

object LimitFill {
  def rowBits(p: TracerParameters): Int = log2Ceil(p.limitLines) + 3
}

/** Reads lines of the limit table for all checkers, checks their eight limits one a cycle, and hands each to every
  * checker: what one asks for, all have. So a checker is a memory and two comparisons, and one port reads the table.
  *
  * A limit must lie within its region (both ends included) and be aligned. An impossible one is kept as such: the fault
  * is raised by who needs it.
  *
  * Rows are dropped by ending their epoch, at a resume and at a reset.
  */
class LimitLoader(p: TracerParameters, askers: Int) extends Module {
  private val rowBits = LimitFill.rowBits(p)
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val powerUp    = Input(Bool()) // the first reset, after which on-chip memory holds anything
    val invalidate = Input(Bool()) // pulse; nothing is asked for
    val ask   = Vec(askers, Flipped(Decoupled(UInt((p.regionBits - 3).W)))) // lines of the table
    val fill  = Output(new LimitFill(p))
    val quiet = Output(Bool())
    val read  = new ReadPort(p)
  })
  val epochs = Module(new EpochSweep(1 << rowBits))
  epochs.io.powerUp := io.powerUp
  epochs.io.drop    := io.invalidate
  private val (sweeping, sweepNext, epoch) = (epochs.io.sweeping, epochs.io.next, epochs.io.epoch)

  object State extends ChiselEnum { val Idle, Ask, Wait, Hand = Value }
  val state  = RegInit(State.Idle)
  val line   = Reg(UInt((p.regionBits - 3).W))
  val limits = Reg(UInt(p.lineBits.W)) // the next one lowest
  val start  = Reg(UInt(64.W))         // of its region
  val at     = Reg(UInt(3.W))
  val pick   = Module(new RoundArbiter(UInt((p.regionBits - 3).W), askers))
  pick.io.in.zip(io.ask).foreach { case (a, b) => a <> b }
  // An asker sees all eight limits of the line that it asked for, and none of the line before.
  pick.io.out.ready         := io.quiet && !sweeping
  io.read.request.valid     := state === State.Ask
  io.read.request.bits.tag  := 0.U
  io.read.request.bits.line := io.config.limits + line
  private val bytes = UIntToOH(io.config.regionLog2, 64)

  val handed = state === State.Hand
  switch(state) {
    is(State.Idle) {
      when(pick.io.out.fire) {
        line  := pick.io.out.bits
        state := State.Ask
      }
    }
    is(State.Ask) {
      start := Word.shiftUp(Cat(line, 0.U(3.W)).pad(64), io.config.regionLog2)
      at    := 0.U
      when(io.read.request.fire) { state := State.Wait }
    }
    is(State.Wait) {
      when(io.read.response.valid) {
        limits := io.read.response.bits.data
        state  := State.Hand
      }
    }
    is(State.Hand) {
      limits := limits >> 64
      start  := start + bytes
      at     := at + 1.U
      when(at.andR) { state := State.Idle }
    }
  }
  // Distance from the region's start; then its judgement; then all checkers.
  val value    = limits(63, 0)
  val some     = RegNext(handed, false.B)
  val distance = RegNext(value -& start) // negative in its top bit
  val kept     = RegNext(value)
  val region   = RegNext(Cat(line, at))
  val aligned  = (kept(7, 0) & ((1.U(8.W) << io.config.alignmentLog2) - 1.U)(7, 0)) === 0.U

  // The core's reset ends what is read, and no sweep.
  val goesOn = (some && !reset.asBool) || sweeping
  val writes = withReset(io.powerUp)(RegNext(goesOn, false.B))
  val fill   = Reg(new LimitFill(p))
  fill.sweep       := sweeping
  fill.row         := Mux(sweeping, sweepNext, region(rowBits - 1, 0))
  fill.region      := region
  fill.good        := !distance(64) && distance(63, 0) <= bytes && aligned
  fill.value       := kept
  io.fill          := fill
  io.fill.write    := writes
  io.fill.epoch    := epoch
  io.fill.sweeping := sweeping || io.invalidate || (writes && fill.sweep)
  io.quiet         := state === State.Idle && !some && !(writes && !fill.sweep)
  when(io.invalidate) { assert(io.quiet, "limits dropped while some are on their way") }
}
