// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** References of one line: all slots of the line are looked at together, nulls cost nothing, the others leave one a
  * cycle. Then the object goes on with the next line that has a reference, with further blocks of its shape, or ends.
  */
class LineScanner(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val in         = Flipped(Decoupled(new ScanJob(p)))
    val references = Decoupled(new RawReference(p))
    val continue   = Decoupled(new Continuation(p))
    val obj        = Output(UInt(p.objectBits.W)) // of `continue`
    val end        = Valid(UInt(log2Ceil(p.slots).W))
    val prefetch   = Valid(UInt(p.lineAddress.W))
    val slotsRead  = Output(UInt(5.W))
    val slotsNull  = Output(UInt(5.W))
    val busy       = Output(Bool())
    val quiet      = Output(Bool())
  })
  val c    = io.config
  val wide = c.wideOops
  private val slotsPerLine = p.lineBits / 32

  val valid   = RegInit(false.B)
  val job     = Reg(new ScanJob(p))
  val left    = Reg(UInt(slotsPerLine.W)) // references of this line that have not left
  val further = Reg(Bool())
  val next    = Reg(UInt((p.heapAddressBits - 5).W))

  // On entry: which slots of the line are references, which line is next.
  val in = io.in.bits
  private def clip(at: UInt): UInt = {
    val line = at >> 4
    Mux(line < in.line, 0.U, Mux(line === in.line, at(3, 0).pad(5), slotsPerLine.U(5.W)))
  }
  private def below(n: UInt): UInt = ((1.U((slotsPerLine + 1).W) << n) - 1.U)(slotsPerLine - 1, 0)
  val spans = in.work.spans
  val covered = spans.map(s => below(clip(s.end)) & ~below(clip(s.start))).reduce(_ | _)
  val mask  = Mux(in.bare, 0.U, covered & Mux(wide, 0x5555.U, 0xffff.U))
  val words = VecInit((0 until slotsPerLine).map(i => in.data(32 * i + 31, 32 * i)))
  val notNull = VecInit((0 until slotsPerLine).map { i =>
    val upper = if (i % 2 == 0) wide && words(i + 1).orR else false.B
    words(i).orR || upper
  }).asUInt
  val candidates = spans.map { s =>
    val line = s.start >> 4
    val from = Mux(!in.bare && line <= in.line, in.line + 1.U, line)
    val some = s.end =/= s.start && ((s.end - 1.U) >> 4) >= from
    (some, from)
  }
  val (someNext, lineNext) = candidates.reduce { (a, b) =>
    val takeA = a._1 && (!b._1 || a._2 <= b._2)
    (a._1 || b._1, Mux(takeA, a._2, b._2))
  }

  val sources = VecInit((0 until slotsPerLine).map(i => job.data(32 * i + 31, 32 * i)))
  val at      = PriorityEncoder(left)
  val value   = Mux(wide, Cat(sources(at | 1.U), sources(at)), sources(at).pad(64))
  val rest    = left & (left - 1.U)
  io.references.valid       := valid && left.orR
  io.references.bits.value  := value
  io.references.bits.source := job.obj
  io.references.bits.host   := false.B
  when(io.references.fire) { left := rest }

  val finishing = valid && (left === 0.U || (io.references.fire && rest === 0.U))
  val extend    = job.work.extensionLeft =/= 0.U
  io.continue.valid     := finishing && (further || extend)
  io.continue.bits.slot := job.slot
  io.obj := job.obj
  io.continue.bits.work := job.work
  when(further) {
    io.continue.bits.work.phase := Phase.References
    io.continue.bits.work.line  := c.heap + next
  }.otherwise {
    io.continue.bits.work.phase := Phase.Extension
    io.continue.bits.work.line  := job.work.extension >> 1
  }
  val leave = finishing && Mux(further || extend, io.continue.ready, true.B)
  io.end.valid := finishing && !further && !extend
  io.end.bits  := job.slot

  io.in.ready := !valid || leave
  valid       := io.in.fire || (valid && !leave)
  when(io.in.fire) {
    job     := in
    left    := mask & notNull
    further := someNext
    next    := lineNext
  }
  io.slotsRead := Mux(io.in.fire, PopCount(mask), 0.U)
  io.slotsNull := Mux(io.in.fire, PopCount(mask & ~notNull), 0.U)

  // A long run: ask for a line some way ahead, as long as it belongs to the object.
  private val ahead = p.prefetches
  val target = in.line + ahead.U
  io.prefetch.valid := io.in.fire && !in.bare &&
    spans.map(s => (s.start >> 4) <= target && s.end =/= s.start && ((s.end - 1.U) >> 4) >= target).reduce(_ || _)
  io.prefetch.bits := c.heap + target
  io.busy  := valid
  io.quiet := !valid
}
