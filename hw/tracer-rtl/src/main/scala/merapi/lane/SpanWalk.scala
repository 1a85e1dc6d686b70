// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.{TraceConfig, TracerParameters}
import merapi.primitives.Word

/** References of an object, [start, end) in units of four bytes. */
class Span(p: TracerParameters) extends Bundle {
  val start = UInt((p.heapAddressBits - 1).W)
  val end   = UInt((p.heapAddressBits - 1).W)
}

/** A block of a shape (start and end, in units of four bytes) or of its extension (offset in bytes, and count). */
class RawBlock extends Bundle {
  val start = UInt(32.W)
  val end   = UInt(32.W)
}

/** An object whose line has been read (or, `bare`, was not one of references), and what it has: where does it go on? */
class WalkJob(p: TracerParameters) extends Bundle {
  val slot   = UInt(log2Ceil(p.slots).W)
  val obj    = UInt(p.objectBits.W)
  val line   = UInt(p.lineAddress.W)    // counted from the heap's first
  val bare   = Bool()
  val stored = Bool()                   // the spans are those of the job before
  val placed = Bool()                   // they are counted from the heap's start, not from the object's
  val raw    = Bool()                   // blocks of an extension
  val again  = Bool()                   // an instance
  val count  = UInt(3.W)                // spans, one at least
  val first  = new Span(p)              // if not raw
  val blocks = Vec(4, new RawBlock)     // of them the first if raw
  val more   = Bool()                   // there are further blocks
  val size   = UInt(ShapeLimits.bits.W) // raw: the object's words
}

/** Where an object goes on: a line of references, or (`extend`) further blocks of its shape. */
class NextLine(p: TracerParameters) extends Bundle {
  val slot   = UInt(log2Ceil(p.slots).W)
  val line   = UInt(p.lineAddress.W) // counted from the heap's first
  val slots  = UInt(ScanJob.slots(p).W)
  val extend = Bool()
  val again = Bool() // an instance: what it has follows from its shape, which may be replaced in a pause
  val long  = Bool() // one run of references, as an array has, with lines left after this one
}

/** Part of a long array, on its way to the next lane. `obj` is the array: its limit decides at every line. An instance is
  * not cut: what is left of it follows from the shape that it has after a pause.
  */
class Piece(p: TracerParameters) extends Bundle {
  val obj  = UInt(p.objectBits.W)
  val span = new Span(p)
}

/** Finds the next line of an object that has a reference, and which slots of it; or that there are further blocks of its
  * shape; or its end.
  *
  * {{{
  *   job ── a span a cycle ── placed in the heap ── first line after the one read, slots ── nearest ──> next line, end
  *              ^ └─────────────── kept by slot ────────────┘                                  └─> piece
  * }}}
  *
  * It waits for nothing: its next lines come before all others. What is found needs nothing of the references in the
  * line that has just been read, so an object goes on to its next line, or frees its slot, while those are being sent.
  *
  * A long array is cut in two when the next lane has nothing to do: if it is one run of references with enough lines
  * left and the next lane takes a piece in this cycle, its run ends at the middle, at the border of a line, and the
  * piece is the rest.
  */
class SpanWalk(p: TracerParameters) extends Module {
  private val slotBits = log2Ceil(p.slots)
  private val unitBits = p.heapAddressBits - 1
  private val lineBits = unitBits - 4
  private val slots    = ScanJob.slots(p)
  private val least    = 9 // lines left that make cutting worth while, the next one included
  val io = IO(new Bundle {
    val config   = Input(new TraceConfig(p))
    val in       = Flipped(Decoupled(new WalkJob(p)))
    val next     = Valid(new NextLine(p))
    val end      = Valid(UInt(slotBits.W))
    val prefetch = Valid(UInt(p.lineAddress.W)) // counted from the heap's first
    val piece    = Decoupled(new Piece(p))
    val quiet    = Output(Bool())
    val bad      = Output(Bool())               // a block of an extension cannot be right
    val badObj   = Output(UInt(p.objectBits.W)) // its object
    val badSize  = Output(UInt(ShapeLimits.bits.W))
  })
  private def lineOf(at: UInt): UInt = at(unitBits - 1, 4)

  class Kept extends Bundle {
    val count = UInt(3.W)
    val more  = Bool()
    val again = Bool()
  }
  val kept   = Mem(p.slots, new Kept)
  val starts = Mem(p.slots * 4, UInt(unitBits.W))
  val ends   = Mem(p.slots * 4, UInt(unitBits.W))

  /** What goes with a span through the stages. */
  class Way extends Bundle {
    val slot   = UInt(slotBits.W)
    val obj    = UInt(p.objectBits.W)
    val after  = UInt(lineBits.W) // the line after the one that was read
    val ahead  = UInt(lineBits.W) // to be asked for if the object has it
    val bare   = Bool()
    val index  = UInt(2.W)
    val first  = Bool()
    val last   = Bool()
    val single = Bool()           // the only one, and no further blocks
    val more   = Bool()
    val again  = Bool()
  }

  // A span a cycle, the first in front.
  val busy   = RegInit(false.B)
  val job    = Reg(new WalkJob(p))
  val way0   = Reg(new Way)
  val left   = Reg(UInt(3.W))
  val final0 = left === 1.U
  val before = kept.read(io.in.bits.slot)
  val count  = Mux(io.in.bits.stored, before.count, io.in.bits.count)
  val more   = Mux(io.in.bits.stored, before.more, io.in.bits.more)
  val again  = Mux(io.in.bits.stored, before.again, io.in.bits.again)
  io.in.ready := !busy || final0
  busy        := io.in.valid || (busy && !final0)
  when(io.in.ready) {
    job         := io.in.bits
    left        := count
    way0.slot   := io.in.bits.slot
    way0.obj    := io.in.bits.obj
    way0.after  := io.in.bits.line(lineBits - 1, 0) + 1.U
    way0.ahead  := io.in.bits.line(lineBits - 1, 0) + p.prefetches.U
    way0.bare   := io.in.bits.bare
    way0.index  := 0.U
    way0.first  := true.B
    way0.single := count === 1.U && !more
    way0.more   := more
    way0.again  := again
  }.otherwise {
    left       := left - 1.U
    way0.index := way0.index + 1.U
    way0.first := false.B
    for (i <- 0 until 3) { job.blocks(i) := job.blocks(i + 1) }
    job.first.start := job.blocks(1).start
    job.first.end   := job.blocks(1).end
  }
  when(busy && way0.first) {
    val k = Wire(new Kept)
    k.count := left
    k.more  := way0.more
    k.again := way0.again
    kept.write(way0.slot, k)
    assert(left =/= 0.U && left <= 4.U, "an object without references walked")
  }

  // Its place.
  val raw      = job.blocks(0)
  val rawStart = raw.start >> 2
  val rawEnd   = rawStart +& Mux(io.config.wideOops, Cat(raw.end, 0.U(1.W)), raw.end)
  val row      = Cat(way0.slot, way0.index)
  val from     = Mux(job.raw, rawStart, job.first.start)
  val to       = Mux(job.raw, rawEnd, job.first.end)
  val base     = Mux(job.placed, 0.U, Cat(way0.obj, 0.U(1.W)))
  val valid1   = RegNext(busy, false.B)
  val way1     = RegNext(way0)
  val write1   = RegNext(busy && !job.stored, false.B)
  val start1   = RegNext(Mux(job.stored, starts.read(row), (base + from)(unitBits - 1, 0)))
  val end1     = RegNext(Mux(job.stored, ends.read(row), (base + to)(unitBits - 1, 0)))
  way1.last := final0
  // What cannot be right in an extension: judged beside the way.
  val rawLate = RegNext(busy && job.raw, false.B)
  val offset  = RegEnable(raw.start, job.raw)
  val rawEnd1 = RegEnable(rawEnd, job.raw)
  val size1   = RegEnable(job.size, job.raw)
  val aligned = (offset & Mux(io.config.wideOops, 7.U, 3.U)) === 0.U
  val behind  = offset >= Mux(io.config.wideKlass, 16.U, 12.U)
  io.bad     := RegNext(rawLate && !(aligned && behind && rawEnd1 <= Cat(size1, 0.U(1.W))), false.B)
  io.badObj  := RegNext(way1.obj)
  io.badSize := RegNext(size1)

  // The first line that has a reference of it, after the one that was read.
  val some   = end1 =/= start1
  val read   = !way1.bare && lineOf(start1) < way1.after
  val beyond = end1 > Cat(way1.after, 0.U(4.W))
  val valid2 = RegNext(valid1, false.B)
  val way2   = RegNext(way1)
  val some2  = RegNext(some && (!read || beyond))
  val line2  = RegNext(Mux(read, way1.after, lineOf(start1)))
  val inner2 = RegNext(read) // the line begins within it
  val start2 = RegNext(start1)
  val end2   = RegNext(end1)
  // A long run: ask for a line some way ahead, as long as it belongs to the object.
  io.prefetch.valid := RegNext(
    valid1 && !way1.bare && some && lineOf(start1) <= way1.ahead && end1 > Cat(way1.ahead, 0.U(4.W)),
    false.B
  )
  io.prefetch.bits := RegNext(way1.ahead)

  // The nearest so far, and its slots.
  private def below(at: UInt): UInt = Word.first(at(3, 0), slots)
  class Near extends Bundle {
    val some  = Bool()
    val line  = UInt(lineBits.W)
    val slots = UInt(ScanJob.slots(p).W)
  }
  val mask = Mux(lineOf(end2) =/= line2, Fill(slots, 1.U(1.W)), below(end2)) & ~Mux(inner2, 0.U, below(start2))
  val near = Reg(new Near)
  val none = way2.first || !near.some
  when(valid2) {
    near.some := some2 || !none
    when(some2 && (none || line2 <= near.line)) { near.line := line2 }
    near.slots := Mux(some2 && (none || line2 <= near.line), mask, 0.U) |
      Mux(!none && !(some2 && line2 < near.line), near.slots, 0.U)
  }

  // Out.
  val valid3 = RegNext(valid2 && way2.last, false.B)
  val way3   = RegNext(way2)
  val end3   = RegNext(end2)
  val rest3  = RegNext(lineOf(end2) - line2) // lines after the next one; one too many if it ends at a border
  val oneRun = near.some && way3.single
  val middle = near.line + (rest3 >> 1) + 1.U
  val border = Cat(middle, 0.U(4.W))
  io.next.valid            := valid3 && (near.some || way3.more)
  io.next.bits.slot        := way3.slot
  io.next.bits.line        := near.line
  io.next.bits.slots       := near.slots
  io.next.bits.extend      := !near.some
  io.next.bits.again       := way3.again
  io.next.bits.long        := oneRun && (rest3 >> 2).orR // shorter ones are soon over, and hold a slot until then
  io.end.valid             := valid3 && !near.some && !way3.more
  io.end.bits              := way3.slot
  io.piece.valid           := valid3 && oneRun && !way3.again && rest3 >= least.U && !write1
  io.piece.bits.obj        := way3.obj
  io.piece.bits.span.start := border
  io.piece.bits.span.end   := end3
  when(write1) { starts.write(Cat(way1.slot, way1.index), start1) }
  when(write1 || io.piece.fire) {
    ends.write(Mux(write1, Cat(way1.slot, way1.index), Cat(way3.slot, 0.U(2.W))), Mux(write1, end1, border))
  }
  io.quiet := !busy && !valid1 && !valid2 && !valid3
}
