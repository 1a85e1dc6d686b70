// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** An object whose line has been read (or, `bare`, was not one of references), and what it has: where does it go on? */
class WalkJob(p: TracerParameters) extends Bundle {
  val slot = UInt(log2Ceil(p.slots).W)
  val obj  = UInt(p.objectBits.W)
  val line = UInt(p.lineAddress.W) // counted from the heap's first
  val bare = Bool()
  val base = UInt((p.objectBits + 1).W) // what spans are counted from
  val work = new SlotWork(p)
}

/** Finds the next line of an object that has a reference, and which slots of it; or further blocks of its shape; or its
  * end. Four cycles, of which each takes a new object, and never waits: its continuations come before all others.
  *
  * What is found needs nothing of the references in the line that has just been read, so an object goes on to its next
  * line, or frees its slot, while those are being sent.
  */
class SpanWalk(p: TracerParameters) extends Module {
  private val slotBits = log2Ceil(p.slots)
  private val lineBits = p.heapAddressBits - 6 + 1
  val io = IO(new Bundle {
    val config   = Input(new TraceConfig(p))
    val in       = Flipped(Valid(new WalkJob(p)))
    val continue = Valid(new Continuation(p))
    val obj      = Output(UInt(p.objectBits.W)) // of `continue`
    val end      = Valid(UInt(slotBits.W))
    val prefetch = Valid(UInt(p.lineAddress.W)) // counted from the heap's first
    val quiet    = Output(Bool())
  })
  private def lineOf(at: UInt): UInt = (at >> 4)(lineBits - 1, 0)

  class Candidate extends Bundle {
    val some = Bool()
    val line = UInt(lineBits.W) // the first that has a reference of the span, after the one that was read
  }
  // Where the spans are in the heap; then each alone.
  val valid0 = RegNext(io.in.valid, false.B)
  val job0   = RegNext(io.in.bits)
  val placed = WireDefault(job0)
  placed.work.spans.zip(job0.work.spans).foreach { case (s, from) =>
    s.start := job0.base + from.start
    s.end   := job0.base + from.end
  }
  val valid1 = RegNext(valid0, false.B)
  val job1   = RegNext(placed)
  val line   = job1.line(lineBits - 1, 0)
  val after  = line + 1.U
  val candidates = VecInit(job1.work.spans.map { s =>
    val c    = Wire(new Candidate)
    val read = !job1.bare && lineOf(s.start) <= line
    val last = lineOf(s.end - 1.U)
    c.some := s.end =/= s.start && (!read || last > line)
    c.line := Mux(read, after, lineOf(s.start))
    c
  })
  // A long run: ask for a line some way ahead, as long as it belongs to the object.
  val target = line + p.prefetches.U
  io.prefetch.valid := RegNext(
    valid1 && !job1.bare &&
      job1.work.spans.map(s => lineOf(s.start) <= target && s.end =/= s.start && lineOf(s.end - 1.U) >= target).reduce(_ || _),
    false.B
  )
  io.prefetch.bits := RegNext(target)

  // The nearest.
  val valid2 = RegNext(valid1, false.B)
  val job2   = RegNext(job1)
  val near   = RegNext(candidates).reduceTree { (a, b) =>
    val takeA = a.some && (!b.some || a.line <= b.line)
    val c     = Wire(new Candidate)
    c.some := a.some || b.some
    c.line := Mux(takeA, a.line, b.line)
    c
  }

  // Its slots.
  val valid3  = RegNext(valid2, false.B)
  val job     = RegNext(job2)
  val further = RegNext(near.some)
  val next    = RegNext(near.line)
  private def below(at: UInt): UInt = {
    val slots = ScanJob.slots(p)
    val part  = ((1.U(slots.W) << at(3, 0)) - 1.U)(slots - 1, 0)
    Mux(lineOf(at) < next, 0.U, Mux(lineOf(at) === next, part, Fill(slots, 1.U(1.W))))
  }
  val extend = job.work.extensionLeft =/= 0.U
  io.continue.valid     := valid3 && (further || extend)
  io.continue.bits.slot := job.slot
  io.continue.bits.work := job.work
  io.continue.bits.work.slots := job.work.spans.map(s => below(s.end) & ~below(s.start)).reduce(_ | _)
  io.continue.bits.work.phase := Mux(further, Phase.References, Phase.Extension)
  io.continue.bits.work.line  := Mux(further, next, job.work.extension >> 1)
  io.obj       := job.obj
  io.end.valid := valid3 && !further && !extend
  io.end.bits  := job.slot
  io.quiet     := !valid0 && !valid1 && !valid2 && !valid3
}
