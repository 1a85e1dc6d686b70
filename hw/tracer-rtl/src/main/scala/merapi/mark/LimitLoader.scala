// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.experimental.noPrefix
import chisel3.util._

import merapi.common.{ReadPort, Region, TraceConfig, TracerParameters}
import merapi.primitives.{EpochSweep, RoundArbiter, SureFifo, Word}

/** A row of limits (`limitsTogether` regions behind each other) on its way into the copies of all checkers, or a row of
  * theirs that is cleared.
  */
class LimitFill(p: TracerParameters) extends Bundle {
  val write  = Bool()
  val sweep  = Bool()                          // the row is cleared: nothing else below holds
  val row    = UInt(LimitFill.rowBits(p).W)
  val region = UInt(p.regionBits.W)            // the first
  val good   = UInt(p.limitsTogether.W)        // a bit for each, the first lowest
  val value  = UInt((64 * p.limitsTogether).W) // as they stand in the table
  // Levels.
  val epoch    = UInt(EpochSweep.bits.W) // of rows that hold
  val sweeping = Bool()                  // no row can be used

  /** In units of eight bytes, the first lowest. */
  def limits: UInt =
    if (p.limitsTogether == 1) (value >> 3)(p.objectBits, 0)
    else VecInit((0 until p.limitsTogether).map(i => value(64 * i + 3 + p.objectBits, 64 * i + 3))).asUInt

  /** Whether `other` is one of these. */
  def isOf(other: UInt): Bool = LimitFill.rowOf(p, region) === LimitFill.rowOf(p, other)
}

object LimitFill {

  /** Of the number of a row. */
  def rowBits(p: TracerParameters): Int = log2Ceil(p.limitRows)

  /** Of what is asked for: a line of the table; with `loneLimits` a row. */
  def askBits(p: TracerParameters): Int = p.regionBits - (if (p.loneLimits) log2Ceil(p.limitsTogether) else 3)
  def ask(p: TracerParameters, region: UInt): UInt =
    if (p.loneLimits) rowOf(p, region) else region(p.regionBits - 1, 3)

  /** A region's row, of all that there are. */
  def rowOf(p: TracerParameters, region: UInt): UInt =
    if (p.limitsTogether == 1) region else region(p.regionBits - 1, log2Ceil(p.limitsTogether))

  /** Of what a row has for each of its regions, this region's. */
  def of(p: TracerParameters, row: UInt, region: UInt): UInt =
    if (p.limitsTogether == 1) row
    else {
      val bits = row.getWidth / p.limitsTogether
      VecInit((0 until p.limitsTogether).map(i => row(bits * (i + 1) - 1, bits * i)))(
        region(log2Ceil(p.limitsTogether) - 1, 0)
      )
    }
}

/** Reads lines of the limit table for all checkers, several at a time, checks `limitsTogether` of their eight limits a
  * cycle, and hands them to every checker: what one asks for, all have. So a checker is a memory and two comparisons, and one port reads
  * the table.
  *
  * Who asks goes on to ask until it has what it needs: a line that is under way is not read once more, and it is under way
  * until those that asked for it have seen it.
  *
  * With `loneLimits` of a line that is asked for while the core drains the row that was asked for is handed alone: hundreds
  * of references may each need another line, a pause waits for all of them, and its resume drops what was loaded beside.
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
    val draining   = Input(Bool()) // loneLimits
    val ask        = Vec(askers, Flipped(Decoupled(UInt(LimitFill.askBits(p).W))))
    val fill       = Output(new LimitFill(p))
    val quiet      = Output(Bool())
    val read       = new ReadPort(p)
  })
  val epochs = Module(new EpochSweep(1 << rowBits))
  epochs.io.powerUp := io.powerUp
  epochs.io.drop    := io.invalidate
  private val (sweeping, sweepNext, epoch) = (epochs.io.sweeping, epochs.io.next, epochs.io.epoch)

  private val lineBits = p.regionBits - 3
  private val reads    = p.limitReads
  private val readBits = log2Ceil(reads)
  // Lines under way.
  val busy  = RegInit(0.U(reads.W))
  val lines = Reg(Vec(reads, UInt(lineBits.W)))
  val data  = Mem(reads, UInt(p.lineBits.W))
  val pick  = Module(new RoundArbiter(UInt(LimitFill.askBits(p).W), askers))
  pick.io.in.zip(io.ask).foreach { case (a, b) => a <> b }

  // What was asked for, unless it is under way; then its request.
  class Request extends Bundle {
    val entry = UInt(readBits.W)
    val line  = UInt(p.lineAddress.W)
  }
  val asked             = RegInit(false.B)
  private val askBits   = LimitFill.askBits(p)
  val askedLine         = RegEnable(pick.io.out.bits(askBits - 1, askBits - lineBits), pick.io.out.fire)
  val requested         = RegInit(false.B)
  val request           = Reg(new Request)
  private val places    = 8 / p.limitsTogether
  private val placeBits = log2Ceil(places)

  /** Of a line its row that was asked for, and whether only that one is handed. */
  private class Lone {
    val asked  = RegEnable(pick.io.out.bits(placeBits - 1, 0), pick.io.out.fire)
    val rows   = Reg(Vec(reads, Valid(UInt(placeBits.W)))) // of lines under way; not valid: all are handed
    val handed = Reg(Bool())                               // of the line that is handed
    def brings(i: Int): Bool = !rows(i).valid || rows(i).bits === asked
  }
  private val lone = Option.when(p.loneLimits)(new Lone)
  val known = (busy & VecInit(lines.zipWithIndex.map { case (line, i) =>
    lone.fold(line === askedLine)(line === askedLine && _.brings(i))
  }).asUInt).orR
  // With eight lanes, whose checkers are far from the ports, a line every other cycle.
  private val room = if (p.wide) !requested else !requested || io.read.request.ready
  val enters       = asked && !known && !busy.andR && room
  val settles      = !asked || known || enters
  pick.io.out.ready := settles && !sweeping
  asked             := pick.io.out.fire || !settles
  requested         := enters || (requested && !io.read.request.ready)
  private val entry = Word.lowest(~busy)
  when(enters) {
    request.entry := OHToUInt(entry)
    request.line  := io.config.limits + askedLine
    for (i <- 0 until reads) {
      when(entry(i)) {
        lines(i) := askedLine
        for (l <- lone) {
          l.rows(i).valid := io.draining
          l.rows(i).bits  := l.asked
        }
      }
    }
  }
  io.read.request.valid     := requested
  io.read.request.bits.tag  := request.entry
  io.read.request.bits.line := request.line

  // Lines that have come, handed one after the other.
  val arrived = Module(new SureFifo(UInt(readBits.W), reads))
  val arrival = io.read.response.bits.tag(readBits - 1, 0)
  arrived.io.put.valid := io.read.response.valid
  arrived.io.put.bits  := arrival
  when(io.read.response.valid) { data.write(arrival, io.read.response.bits.data) }
  val handed        = RegInit(false.B)
  val from          = Reg(UInt(readBits.W))
  val line          = Reg(UInt(lineBits.W))
  val at            = Reg(UInt(placeBits.W))
  private def last  = lone.fold(at.andR)(_.handed || at.andR)
  private val bytes = UIntToOH(io.config.regionLog2, p.heapAddressBits.max(Region.mostLog2 + 1))
  arrived.io.deq.ready := !handed || last
  when(handed) {
    at := at + 1.U
    when(last) { handed := false.B }
  }
  when(arrived.io.deq.fire) {
    handed := true.B
    from   := arrived.io.deq.bits
    line   := lines(arrived.io.deq.bits)
    at     := 0.U
    for (l <- lone) {
      val row = l.rows(arrived.io.deq.bits)
      l.handed := row.valid
      when(row.valid) { at := row.bits }
    }
  }
  // The last is at the checkers two cycles later, and one that asked for it is heard no more two cycles after that.
  private val ends = ShiftRegister(Mux(handed && last, UIntToOH(from, reads), 0.U), 3, 0.U(reads.W), true.B)
  busy := (busy | Mux(enters, entry, 0.U)) & ~ends

  // Distance from the region's start; then its judgement; then all checkers. Bits beyond any heap's end make a limit
  // impossible, wherever they are.
  private val offsetBits = p.heapAddressBits + 1
  private val limits     = data.read(from)
  val some               = RegNext(handed, false.B)
  private class Judged(i: Int) {
    private val values = (0 until places).map(_ * p.limitsTogether + i).map(k => limits(64 * k + 63, 64 * k))
    private val place  = Cat(at, i.U(log2Ceil(p.limitsTogether).W))
    val value          = VecInit(values)(at)
    val start          = Region.start(Cat(0.U(1.W), line, place), io.config.regionLog2)
    val far            = RegNext((value >> offsetBits).orR)
    val distance       = RegNext(value(offsetBits - 1, 0) -& start) // negative in its top bit
    val kept           = RegNext(value)
    val aligned        = (kept(7, 0) & ((1.U(8.W) << io.config.alignmentLog2) - 1.U)(7, 0)) === 0.U
    def good           = !far && !distance(offsetBits) && distance(offsetBits - 1, 0) <= bytes && aligned
  }
  private val judged = noPrefix { Seq.tabulate(p.limitsTogether)(new Judged(_)) }
  val region         = RegNext(Cat(line, at, 0.U(log2Ceil(p.limitsTogether).W)))

  // The core's reset ends what is read, and no sweep.
  val goesOn = (some && !reset.asBool) || sweeping
  val writes = withReset(io.powerUp)(RegNext(goesOn, false.B))
  val fill   = Reg(new LimitFill(p))
  fill.sweep       := sweeping
  fill.row         := Mux(sweeping, sweepNext, LimitFill.rowOf(p, region)(rowBits - 1, 0))
  fill.region      := region
  fill.good        := Cat(judged.map(_.good).reverse)
  fill.value       := Cat(judged.map(_.kept).reverse)
  io.fill          := fill
  io.fill.write    := writes
  io.fill.epoch    := epoch
  io.fill.sweeping := sweeping || io.invalidate || (writes && fill.sweep)
  io.quiet         := !asked && !busy.orR
  when(io.invalidate) { assert(io.quiet, "limits dropped while some are on their way") }
}
