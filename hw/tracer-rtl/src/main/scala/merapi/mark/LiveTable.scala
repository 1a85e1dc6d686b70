// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.{ReadPort, ReadRequest, TraceConfig, TracerParameters, WritePort}
import merapi.primitives.{Fifo, SureFifo}

class LiveWords(p: TracerParameters) extends Bundle {
  val region = UInt(p.regionBits.W)
  val words  = UInt((p.objectBits + 1).W)
}

object LiveTable {

  /** Rows that are looked at together, at most. */
  val group = 16
}

/** Adds up live words per region and adds the sums to the window's live table.
  *
  * The table on chip holds rows of eight regions (one line of the window's table); a row holds what was not yet added
  * to the window. A row leaves when another line of the table needs its place, and all rows leave at a flush: the
  * line is read, added to and written as a whole. Up to `liveLegs` rows leave at once: a pause waits for all of them.
  *
  * One operation a cycle in three stages: read, register, add and write. One of a row that is under way waits for it; with
  * `liveForwarding` (many lanes are in the same few regions) not an update of the same line, which has the row as those
  * ahead leave it. Updates wait while a row leaves its place, which needs the memory alone. A row says which of
  * its sums are begun, so that an update writes one sum and nothing is cleared.
  *
  * A flush looks at one row a cycle, of those groups of rows alone in which something was counted since they were last
  * looked at: a pause waits for it, and most heaps have few regions.
  */
class LiveTable(p: TracerParameters) extends Module {
  private val rowBits  = log2Ceil(p.liveLines)
  private val sumBits  = p.objectBits + 1
  private val lineBits = p.regionBits - 3
  private val inFlight = p.liveLegs
  val io = IO(new Bundle {
    val config  = Input(new TraceConfig(p))
    val in      = Vec(p.lanes, Flipped(Decoupled(new LiveWords(p))))
    val flush   = Input(Bool())          // level, when no update comes
    val flushed = Output(Bool())
    val quiet   = Output(Bool())
    val words   = Valid(UInt(sumBits.W)) // for the counter
    val read    = new ReadPort(p)
    val write   = new WritePort(p)
  })
  class Row extends Bundle {
    val begun = UInt(8.W) // none: the row is free
    val line  = UInt(lineBits.W)
  }
  val rows = SyncReadMem(p.liveLines, new Row)
  val sums = Seq.fill(8)(SyncReadMem(p.liveLines, UInt(sumBits.W)))

  val sweeping  = RegInit(true.B)
  val sweepNext = RegInit(0.U(rowBits.W))
  when(sweeping) {
    sweepNext := sweepNext + 1.U
    when(sweepNext.andR) { sweeping := false.B }
  }

  val pick = Module(new RRArbiter(new LiveWords(p), p.lanes))
  pick.io.in.zip(io.in).foreach { case (a, b) => a <> b }
  val next = Fifo(pick.io.out, 2)

  // Rows on their way to the window: one line each, so that two never touch the same line.
  class Leg extends Bundle {
    val begun = UInt(8.W)
    val sums  = Vec(8, UInt(sumBits.W))
  }
  val legValid = RegInit(0.U(inFlight.W))
  val legs     = Mem(inFlight, new Leg)
  val places   = Mem(inFlight, UInt(p.lineAddress.W)) // in the window
  val legRows  = Mem(inFlight, UInt(rowBits.W))
  val legFree  = PriorityEncoder(~legValid)
  val legRoom  = !legValid.andR
  // A bit of each row, turned when what it held leaves, and one turned when that has been written: where they differ, a
  // line of this row is on its way, and no other leaves it, which may be the same.
  val left = Mem(p.liveLines, Bool())
  val came = Mem(p.liveLines, Bool())

  class Operation extends Bundle {
    val flush = Bool()
    val words = new LiveWords(p)
    val row   = UInt(rowBits.W)
  }
  val s1Valid = RegInit(false.B)
  val s1      = Reg(new Operation)
  val s2Valid = RegInit(false.B)
  val s2      = Reg(new Operation)
  val stall   = WireDefault(false.B) // of s2

  // A flush: the lowest group in which something was counted, its rows one after the other.
  private val inGroup = p.liveLines min LiveTable.group
  private val groups  = p.liveLines / inGroup
  private val walked  = log2Ceil(inGroup)
  val counts          = RegInit(0.U(groups.W))       // groups in which something was counted
  val group           = Reg(UInt(log2Ceil(groups).W))
  val within          = RegInit(false.B)
  val flushAt         = RegInit(0.U((walked + 1).W)) // in the group
  val past            = within && flushAt === inGroup.U
  val flushing        = io.flush && !sweeping && !next.valid && within && !past
  assert(!(io.flush && pick.io.out.valid), "an update comes in a flush")

  // s0: not a row that is under way.
  val flushRow = Cat(group, flushAt(walked - 1, 0))
  val s0       = Wire(new Operation)
  s0.flush := flushing
  s0.words := next.bits
  s0.row   := Mux(flushing, flushRow, (next.bits.region >> 3)(rowBits - 1, 0))
  private val forwards = p.liveForwarding
  private def isAhead(valid: Bool, ahead: Operation): Bool = {
    val same = valid && ahead.row === s0.row
    if (forwards) same && (ahead.flush || s0.flush || (ahead.words.region >> 3) =/= (s0.words.region >> 3)) else same
  }
  val underWay  = isAhead(s1Valid, s1) || isAhead(s2Valid, s2)
  val takeFlush = flushing && !stall && !underWay
  next.ready := !stall && !flushing && !sweeping && !underWay
  when(takeFlush) { flushAt := flushAt + 1.U }
  private val counted = Mux(next.fire, UIntToOH(s0.row >> walked, groups), 0.U)
  counts := (counts & ~Mux(past, UIntToOH(group, groups), 0.U(groups.W))) | counted
  when(!io.flush || past) {
    within  := false.B
    flushAt := 0.U
  }.elsewhen(!within && counts.orR) {
    within := true.B
    group  := PriorityEncoder(counts).take(log2Ceil(groups))
  }
  val readAt   = Mux(stall, s1.row, s0.row)
  val readRow  = rows.read(readAt)
  val readSums = VecInit(sums.map(_.read(readAt)))
  when(!stall) {
    s1Valid := next.fire || takeFlush
    s1      := s0
    s2Valid := s1Valid
    s2      := s1
  }
  val row    = RegEnable(readRow, !stall)
  val before = RegEnable(readSums, !stall)

  // s2
  val line  = s2.words.region >> 3
  val place = s2.words.region(2, 0)
  private val (rowNow, sumNow) =
    if (forwards) (Wire(new Row).suggestName("rowNow"), Wire(UInt(sumBits.W)).suggestName("sumNow"))
    else (row, before(place))
  val held     = rowNow.begun.orR
  val mine     = rowNow.line === line
  val begun    = Mux(mine, rowNow.begun, 0.U)
  val leave    = WireDefault(false.B)
  val update   = WireDefault(false.B)
  val leftNow  = left.read(s2.row)
  val canLeave = legRoom && leftNow === came.read(s2.row)
  when(s2Valid) {
    when(s2.flush) {
      leave := held && canLeave
      stall := held && !canLeave
    }.otherwise {
      leave  := held && !mine && canLeave
      stall  := held && !mine && !canLeave
      update := !stall
    }
  }
  val newRow = Wire(new Row)
  newRow.begun := Mux(sweeping || s2.flush, 0.U, begun | UIntToOH(place, 8))
  newRow.line  := line
  when(sweeping || update || leave) { rows.write(Mux(sweeping, sweepNext, s2.row), newRow) }
  val sum = Mux(begun(place), sumNow, 0.U) + s2.words.words
  for ((m, i) <- sums.zipWithIndex) { when(update && place === i.U) { m.write(s2.row, sum) } }
  if (forwards) {
    // What the update in s2 before this one has written: of the same row it is right ahead of the one that is there now, or
    // two ahead of the one in s1, which was read while it was written and may be anything. All three are of one line then,
    // so that none of the later ones makes a row leave.
    class Written extends Bundle {
      val row   = UInt(rowBits.W)
      val state = new Row
      val place = UInt(3.W)
      val sum   = UInt(sumBits.W)
    }
    val some = RegInit(false.B)
    val last = Reg(new Written)
    when(!stall) {
      some       := update
      last.row   := s2.row
      last.state := newRow
      last.place := place
      last.sum   := sum
    }
    val place1 = s1.words.region(2, 0)
    val two    = some && last.row === s1.row
    val one    = some && RegEnable(s2.row === s1.row, !stall)
    val mine1  = RegEnable(place === place1, !stall)
    rowNow := Mux(one, last.state, RegEnable(Mux(two, last.state, readRow), !stall))
    sumNow := Mux(
      one && mine1,
      last.sum,
      RegEnable(Mux(two && last.place === place1, last.sum, readSums(place1)), !stall)
    )
  }
  io.words.valid := update
  io.words.bits  := s2.words.words

  // Read, add, write. An entry is freed by its write response.
  val toRead = Module(new SureFifo(new ReadRequest(p), inFlight))
  toRead.io.put.valid     := leave
  toRead.io.put.bits.tag  := legFree
  toRead.io.put.bits.line := io.config.live + row.line
  when(leave) {
    val leg = Wire(new Leg)
    leg.begun := row.begun
    leg.sums  := before
    legs.write(legFree, leg)
    places.write(legFree, toRead.io.put.bits.line)
    legRows.write(legFree, s2.row)
  }
  val cameRow = legRows.read(io.write.done.bits(log2Ceil(inFlight) - 1, 0))
  when(sweeping || leave) { left.write(Mux(sweeping, sweepNext, s2.row), !sweeping && !leftNow) }
  when(sweeping || io.write.done.valid) {
    came.write(Mux(sweeping, sweepNext, cameRow), !sweeping && !came.read(cameRow))
  }
  private val begins = Mux(leave, UIntToOH(legFree, inFlight), 0.U)
  private val ends   = Mux(io.write.done.valid, UIntToOH(io.write.done.bits, inFlight), 0.U(inFlight.W))
  legValid := (legValid | begins) & ~ends
  io.read.request <> toRead.io.deq
  class Sum extends Bundle {
    val leg  = UInt(log2Ceil(inFlight).W)
    val data = UInt(p.lineBits.W)
  }
  val toWrite = Module(new Fifo(new Sum, inFlight))
  val legAt   = io.read.response.bits.tag(log2Ceil(inFlight) - 1, 0)
  val leg     = legs.read(legAt)
  toWrite.io.enq.valid    := io.read.response.valid
  toWrite.io.enq.bits.leg := legAt
  toWrite.io.enq.bits.data := VecInit((0 until 8).map { i =>
    io.read.response.bits.data(64 * i + 63, 64 * i) + Mux(leg.begun(i), leg.sums(i), 0.U)
  }).asUInt
  io.write.request.valid     := toWrite.io.deq.valid
  io.write.request.bits.tag  := toWrite.io.deq.bits.leg
  io.write.request.bits.line := places.read(toWrite.io.deq.bits.leg)
  io.write.request.bits.data := toWrite.io.deq.bits.data
  toWrite.io.deq.ready       := io.write.request.ready

  io.quiet   := !s1Valid && !s2Valid && !legValid.orR && !pick.io.out.valid && !next.valid
  io.flushed := io.flush && !within && !counts.orR && io.quiet
}
