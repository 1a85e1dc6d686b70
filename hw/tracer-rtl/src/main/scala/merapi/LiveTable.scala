// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Adds up live words per region and adds the sums to the window's live table.
  *
  * The table on chip holds rows of eight regions (one line of the window's table); a row holds what was not yet added
  * to the window. A row leaves when another line of the table needs its place, and all rows leave at a flush: the
  * line is read, added to and written as a whole. Up to `inFlight` rows leave at once during a flush.
  *
  * One operation a cycle in two stages (read row, add and write), like the mark bank. Updates wait while a row
  * leaves its place; that needs the memory alone.
  */
class LiveTable(p: TracerParameters) extends Module {
  private val rowBits  = log2Ceil(p.liveLines)
  private val sumBits  = p.objectBits + 1
  private val lineBits = p.regionBits - 3
  private val inFlight = 8
  val io = IO(new Bundle {
    val config  = Input(new TraceConfig(p))
    val in      = Vec(p.lanes, Flipped(Decoupled(new LiveWords(p))))
    val flush   = Input(Bool()) // level, when no update comes
    val flushed = Output(Bool())
    val quiet   = Output(Bool())
    val words   = Valid(UInt(sumBits.W)) // for the counter
    val read    = new ReadPort(p)
    val write   = new WritePort(p)
  })
  class Row extends Bundle {
    val valid = Bool()
    val line  = UInt(lineBits.W)
    val sums  = Vec(8, UInt(sumBits.W))
  }
  val rows = SyncReadMem(p.liveLines, new Row)

  val sweeping  = RegInit(true.B)
  val sweepNext = RegInit(0.U(rowBits.W))
  when(sweeping) {
    sweepNext := sweepNext + 1.U
    when(sweepNext.andR) { sweeping := false.B }
  }

  val pick = Module(new RRArbiter(new LiveWords(p), p.lanes))
  pick.io.in.zip(io.in).foreach { case (a, b) => a <> b }

  // Rows on their way to the window: one line each, so that two never touch the same line.
  val legValid = RegInit(VecInit(Seq.fill(inFlight)(false.B)))
  val legLine  = Reg(Vec(inFlight, UInt(lineBits.W)))
  val legSums  = Mem(inFlight, Vec(8, UInt(sumBits.W)))
  val legFree  = PriorityEncoder(legValid.map(!_))
  val legRoom  = !legValid.reduce(_ && _)
  private def leaving(line: UInt): Bool = legValid.zip(legLine).map { case (v, l) => v && l === line }.reduce(_ || _)

  // s0 -> s1
  val s1Valid = RegInit(false.B)
  val s1Flush = Reg(Bool())
  val s1      = Reg(new LiveWords(p))
  val s1Row   = Reg(UInt(rowBits.W))
  val stall   = WireDefault(false.B)
  val flushAt = RegInit(0.U((rowBits + 1).W))
  val flushing = io.flush && !sweeping && flushAt =/= p.liveLines.U
  when(!io.flush) { flushAt := 0.U }
  pick.io.out.ready := !stall && !flushing && !sweeping
  val takeIn    = pick.io.out.fire
  val takeFlush = flushing && !stall
  val s0Row     = Mux(takeFlush, flushAt(rowBits - 1, 0), (pick.io.out.bits.region >> 3)(rowBits - 1, 0))
  val readRow   = rows.read(Mux(stall, s1Row, s0Row))
  when(!stall) {
    s1Valid := takeIn || takeFlush
    s1Flush := takeFlush
    s1      := pick.io.out.bits
    s1Row   := s0Row
  }
  when(takeFlush) { flushAt := flushAt + 1.U }

  val forward    = RegInit(false.B)
  val forwardRow = Reg(new Row)
  val row        = Mux(forward, forwardRow, readRow)
  val line       = s1.region >> 3
  val mine       = row.valid && row.line === line
  val newRow     = WireDefault(row)
  val writeRow   = WireDefault(false.B)
  val leave      = WireDefault(false.B)
  val canLeave   = legRoom && !leaving(row.line)
  when(s1Valid) {
    when(s1Flush) {
      when(row.valid) {
        leave        := canLeave
        stall        := !canLeave
        newRow.valid := false.B
        writeRow     := canLeave
      }
    }.elsewhen(mine || !row.valid || canLeave) {
      leave        := row.valid && !mine
      newRow.valid := true.B
      newRow.line  := line
      for (i <- 0 until 8) {
        val before = Mux(mine, row.sums(i), 0.U)
        newRow.sums(i) := before + Mux(s1.region(2, 0) === i.U, s1.words, 0.U)
      }
      writeRow := true.B
    }.otherwise { stall := true.B }
  }
  val writeAt = Mux(sweeping, sweepNext, s1Row)
  val nothing = 0.U.asTypeOf(new Row)
  when(sweeping || writeRow) { rows.write(writeAt, Mux(sweeping, nothing, newRow)) }
  forward    := writeRow && s0Row === s1Row && !stall
  forwardRow := newRow
  io.words.valid := s1Valid && !s1Flush && !stall
  io.words.bits  := s1.words

  // Read, add, write. An entry is freed by its write response.
  val toRead = Module(new Queue(UInt(log2Ceil(inFlight).W), inFlight))
  toRead.io.enq.valid := leave
  toRead.io.enq.bits  := legFree
  when(leave) {
    legValid(legFree) := true.B
    legLine(legFree)  := row.line
    legSums.write(legFree, row.sums)
  }
  io.read.request.valid     := toRead.io.deq.valid
  io.read.request.bits.tag  := toRead.io.deq.bits
  io.read.request.bits.line := io.config.live + legLine(toRead.io.deq.bits)
  toRead.io.deq.ready       := io.read.request.ready
  class Sum extends Bundle {
    val leg  = UInt(log2Ceil(inFlight).W)
    val data = UInt(p.lineBits.W)
  }
  val toWrite = Module(new Queue(new Sum, inFlight))
  val legAt   = io.read.response.bits.tag(log2Ceil(inFlight) - 1, 0)
  val sums    = legSums.read(legAt)
  toWrite.io.enq.valid     := io.read.response.valid
  toWrite.io.enq.bits.leg  := legAt
  toWrite.io.enq.bits.data := VecInit((0 until 8).map { i =>
    io.read.response.bits.data(64 * i + 63, 64 * i) + sums(i)
  }).asUInt
  io.write.request.valid       := toWrite.io.deq.valid
  io.write.request.bits.tag    := toWrite.io.deq.bits.leg
  io.write.request.bits.line   := io.config.live + legLine(toWrite.io.deq.bits.leg)
  io.write.request.bits.data   := toWrite.io.deq.bits.data
  io.write.request.bits.halves := 3.U
  toWrite.io.deq.ready         := io.write.request.ready
  when(io.write.done.valid) { legValid(io.write.done.bits(log2Ceil(inFlight) - 1, 0)) := false.B }

  io.quiet   := !s1Valid && !legValid.asUInt.orR && !pick.io.out.valid
  io.flushed := io.flush && flushAt === p.liveLines.U && io.quiet
}
