// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, TraceConfig, TracerParameters}
import merapi.mark.ClearRange
import merapi.memory.WriteGrant
import merapi.primitives.Word

/** What the tracer may write now, for the guard at the memory boundary, and what a clearing command covers.
  *
  * Grants are a cycle old: nobody writes in the cycle in which it is allowed to, and before anything is taken back
  * requests are blocked and have ended.
  */
class WriteGrants(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config    = Input(new TraceConfig(p))
    val areas     = Input(Vec(Contract.AreaCount.toInt, new Area(p)))
    val ring      = Input(new Area(p))        // of completions
    val bitmap    = Input(UInt(1.W))          // of the cycle
    val ringsGood = Input(Bool())
    val inCycle   = Input(Bool())
    val clearing  = Input(Bool())             // CLEAR_BITMAP runs
    val command   = Input(new Command(p))
    val grants    = Output(Vec(WriteGrant.count, new WriteGrant(p)))
    val range     = Output(new ClearRange(p)) // of BEGIN_CYCLE (the live table) and CLEAR_BITMAP
  })
  import Contract.{Area => A, _}
  private def grant(i: Int, valid: Bool, first: UInt, count: UInt): Unit = {
    io.grants(i).valid := RegNext(valid, false.B)
    io.grants(i).first := RegNext(first)
    io.grants(i).end   := RegNext(first +& count)
  }
  private def bitmapOf(which: UInt): Area = Mux(which(0), io.areas(A.Bitmap1), io.areas(A.Bitmap0))
  val c                                   = io.config
  val target                              = bitmapOf(io.command.argument)
  val pageFirst                           = DeviceIdentityLayout.At / 64
  grant(0, true.B, pageFirst.U, ((CountersLayout.At + CountersLayout.Bytes) / 64 - pageFirst).U)
  grant(1, io.ringsGood, io.ring.first, io.ring.count)
  grant(2, io.inCycle, c.live, io.areas(A.Live).count)
  grant(3, io.inCycle, c.spill, io.areas(A.Spill).count)
  grant(4, io.inCycle, c.bitmap, bitmapOf(io.bitmap).count)
  grant(5, io.clearing, target.first, target.count)

  // A region's bits fill whole lines.
  val linesLog2 = (c.regionLog2 - c.alignmentLog2 - 9.U)(4, 0)
  // Right when the command is (CommandCheck).
  private def regions(i: Int): UInt = io.command.payload(i).take(p.regionBits + 1).pad(p.lineAddress)
  io.range.first := target.first + Word.shiftUp(regions(0), linesLog2)
  io.range.count := Word.shiftUp(regions(1), linesLog2)
  when(io.command.opcode === Op.BeginCycle.U) {
    io.range.first := c.live
    io.range.count := (c.regionCount +& 7.U) >> 3
  }
}
