// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, TracerParameters}

/** An entry of the submission ring, field by field. */
class Command(p: TracerParameters) extends Bundle {
  val opcode   = UInt(8.W)
  val flags    = UInt(8.W)
  val count    = UInt(16.W)
  val argument = UInt(32.W)
  val payload  = Vec(Contract.EntryWords.toInt, UInt(64.W))
  val sequence = UInt(32.W)
  val cycle    = UInt(32.W)
}

object Command {
  import Contract.{SubmissionLayout => L}
  def of(p: TracerParameters, line: UInt): Command = {
    def field(at: Int, bytes: Int): UInt = line(8 * (at + bytes) - 1, 8 * at)
    val c                                = Wire(new Command(p))
    c.opcode   := field(L.Opcode, 1)
    c.flags    := field(L.Flags, 1)
    c.count    := field(L.Count, 2)
    c.argument := field(L.Arg, 4)
    for (i <- 0 until Contract.EntryWords.toInt) c.payload(i) := field(L.Payload + 8 * i, 8)
    c.sequence := field(L.Sequence, 4)
    c.cycle    := field(L.Cycle, 4)
    c
  }
}

object Verdict extends ChiselEnum {

  /** What is to be done with an entry: two kinds of errors, nothing (NOP, or late for a cycle that is over), or the
    * command. CLEAR_BITMAP is judged a second time (`clearGood`) once the configuration that it needs is there.
    */
  val BadSequence, BadCommand, Nothing, Begin, Trace, Grey, Clear, Fence, DropShapes = Value
}

/** Judges a command against the contract; combinational. */
class CommandCheck(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val command   = Input(new Command(p))
    val index     = Input(UInt(64.W)) // of the entry
    val inCycle   = Input(Bool())
    val cycle     = Input(UInt(32.W)) // the present one
    val dropped   = Input(UInt(32.W)) // the one whose late commands are ignored, or 0
    val bitmap    = Input(UInt(1.W))  // of the cycle
    val regions   = Input(UInt((p.regionBits + 1).W))
    val verdict   = Output(Verdict())
    val clearGood = Output(Bool())
  })
  import Contract._
  val c        = io.command
  val ours     = io.inCycle && c.cycle === io.cycle
  val tooEarly = !io.inCycle && (c.cycle =/= io.dropped || io.dropped === 0.U)
  private def range(first: UInt, count: UInt): Bool =
    count =/= 0.U && first < io.regions && count <= io.regions - first

  io.clearGood := range(c.payload(0), c.payload(1)) && !(io.inCycle && c.argument(0) === io.bitmap)
  io.verdict   := Verdict.BadCommand
  switch(c.opcode) {
    is(Op.Nop.U) { io.verdict := Verdict.Nothing }
    is(Op.BeginCycle.U) { when(c.argument <= 1.U && c.cycle =/= 0.U) { io.verdict := Verdict.Begin } }
    is(Op.TraceRegion.U) {
      val good = range(c.argument, c.payload(0)) && c.payload(1) === (Scope.Heap | Order.Any << 8).U
      when(!tooEarly && !ours) { io.verdict := Verdict.Nothing }
      when(ours && good) { io.verdict := Verdict.Trace }
    }
    is(Op.Grey.U) {
      when(!tooEarly && (!ours || c.count === 0.U)) { io.verdict := Verdict.Nothing }
      when(ours && c.count =/= 0.U && c.count <= EntryWords.U) { io.verdict := Verdict.Grey }
    }
    is(Op.ClearBitmap.U) { when(c.argument <= 1.U) { io.verdict := Verdict.Clear } }
    is(Op.Fence.U) { io.verdict := Verdict.Fence }
    is(Op.InvalidateShapes.U) { io.verdict := Verdict.DropShapes }
  }
  when(c.flags =/= 0.U) { io.verdict := Verdict.BadCommand }
  when(c.sequence =/= (io.index(31, 0) + 1.U)(31, 0)) { io.verdict := Verdict.BadSequence }
}
