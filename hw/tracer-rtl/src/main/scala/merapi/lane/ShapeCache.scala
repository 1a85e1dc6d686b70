// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.TracerParameters
import merapi.primitives.{EpochSweep, Fold}

/** Shapes of one lane: two ways, filled from the walker with whatever it was asked for by any lane; that a klass has no
  * shape is an entry as well, which holds for a short time (the host may publish the shape).
  *
  * A set is read for `next`, and `klass` is compared with it a cycle later. A look never waits. When it finds nothing,
  * its slot waits elsewhere (ShapeMisses) and looks again after the answer; `torn` says that it only could not look.
  *
  * An entry holds while its epoch is the present one. That its klass was reported (`seen`) has epochs of its own, kept
  * beside it; epoch 0 is nobody's in either.
  *
  * One slot that missed (`guard`) is sure to find its entry: until it has, no other klass is written to its set, and its
  * look goes before others' (ShapeMisses). So some slot goes on whatever the others do to each other's entries.
  */
class ShapeCache(p: TracerParameters) extends Module {
  private val setBits  = log2Ceil(p.shapeSets)
  private val slotBits = log2Ceil(p.slots)
  private val seenBits = 4
  private val tickLog2 = 10 // log2 of the cycles for which an absent shape is believed, once or twice
  private val ageBits  = 16 // ticks until one could be believed again: 67 million cycles
  val io = IO(new Bundle {
    val powerUp    = Input(Bool())           // the first reset, after which on-chip memory holds anything
    val next       = Input(UInt(64.W))       // klass word whose set is read
    val klass      = Input(UInt(64.W))       // the same a cycle later: what follows is for it
    val hit        = Output(Bool())
    val found      = Output(Bool())
    val shape      = Output(new Shape(p))
    val seen       = Output(Bool())
    val torn       = Output(Bool())          // entries cannot be read now
    val accept     = Input(Bool())           // the answer was taken
    val setSeen    = Input(Bool())           // a cycle after accept: mark it reported
    val forgetSeen = Input(Bool())           // a report did not leave after all
    val invalidate = Input(Bool())
    val miss       = Flipped(Valid(new ShapeMiss(p)))
    val guard      = Valid(UInt(slotBits.W)) // the slot that guards its set
    val gone   = Vec(2, Flipped(Valid(UInt(slotBits.W)))) // slots that found their entry, or ended
    val answer = Flipped(Valid(new ShapeAnswer(p)))
  })
  class Entry extends Bundle {
    val epoch = UInt(EpochSweep.bits.W)
    val klass = UInt(64.W)
    val found = Bool()
    val age   = UInt(ageBits.W)
    val shape = new Shape(p)
  }
  val ways  = Seq.fill(2)(SyncReadMem(p.shapeSets, new Entry))
  val seens = Seq.fill(2)(Mem(p.shapeSets, UInt(seenBits.W)))
  val older = Mem(p.shapeSets, UInt(1.W)) // way to replace next; any value will do

  val seenEpoch = RegInit(1.U(seenBits.W))
  val seenOver  = io.forgetSeen && seenEpoch.andR
  when(io.forgetSeen) { seenEpoch := Mux(seenOver, 1.U, seenEpoch + 1.U) }
  // Entries that say they were reported in an epoch that is used again go with all others.
  val epochs = Module(new EpochSweep(p.shapeSets))
  epochs.io.powerUp := io.powerUp
  epochs.io.drop    := io.invalidate || seenOver
  private val (sweeping, sweepNext, epoch) = (epochs.io.sweeping, epochs.io.next, epochs.io.epoch)
  val time                                 = RegInit(0.U((tickLog2 + ageBits).W))
  time := time + 1.U
  val now    = time >> tickLog2
  val before = RegInit(0.U(ageBits.W)) // the tick before
  when(time(tickLog2 - 1, 0).andR) { before := now }

  // Klass words are aligned to eight bytes or are shifted; fold everything.
  private def setOf(klass: UInt): UInt = Fold(klass, 64, setBits)
  val nextSet                          = setOf(io.next)
  val set                              = RegNext(nextSet)
  val reads                            = ways.map(_.read(nextSet))
  val hits = reads.map { r =>
    r.epoch === epoch && r.klass === io.klass && (r.found || r.age === now || r.age === before)
  }
  val isSeen = seens.map(_.read(set) === seenEpoch)
  val torn   = RegInit(false.B) // an entry that was written while it was read may be anything
  io.torn := torn || sweeping
  io.hit  := (hits(0) || hits(1)) && !io.torn
  // A klass that was absent, and asked for again when that was not believed any more, may have an entry in each way.
  private val second = hits(1) && (reads(1).found || !hits(0))
  private val used   = RegNext(VecInit(!second, second))
  io.found := Mux(second, reads(1).found, reads(0).found)
  io.shape := Mux(second, reads(1).shape.asUInt, reads(0).shape.asUInt).asTypeOf(io.shape)
  io.seen  := Mux(second, isSeen(1), isSeen(0))

  val guards     = RegInit(false.B)
  val guard      = Reg(UInt(slotBits.W))
  val guardKlass = Reg(UInt(64.W))
  val guardSet   = RegNext(setOf(guardKlass))
  when(guards && io.gone.map(g => g.valid && g.bits === guard).reduce(_ || _)) {
    guards := false.B
  }.elsewhen(io.miss.valid && (!guards || io.miss.bits.slot === guard)) {
    guards     := true.B
    guard      := io.miss.bits.slot
    guardKlass := io.miss.bits.klass // of a heap that is overwritten, another than at its last look
  }
  io.guard.valid := guards
  io.guard.bits  := guard

  // While all entries are cleared, what comes is asked for once more.
  val answer  = io.answer.bits
  val fillAt  = setOf(answer.klass)
  val refused = guards && fillAt === guardSet && answer.klass =/= guardKlass
  val fill    = io.answer.valid && !refused && !sweeping
  val entry   = Wire(new Entry)
  entry.epoch := Mux(sweeping, 0.U, epoch)
  entry.klass := answer.klass
  entry.found := answer.found
  entry.age   := now
  entry.shape := answer.shape
  val victim  = older.read(fillAt)
  val writeAt = Mux(sweeping, sweepNext, fillAt)
  torn := (sweeping || fill) && writeAt === nextSet
  // Seen is written a cycle later, and not at all beside a new entry, of that cycle or the one before, which may have
  // taken the place of what was accepted: that a klass is reported twice does no harm, that one is taken for reported does.
  val lateSet      = RegNext(set)
  val accepted     = RegNext(io.accept, false.B)
  val filledBefore = RegNext(fill, false.B)
  for (w <- 0 until 2) {
    val mine   = fill && victim === w.U
    val isSeen = accepted && io.setSeen && used(w) && !fill && !filledBefore
    when(sweeping || mine) { ways(w).write(writeAt, entry) }
    when(mine || isSeen) { seens(w).write(Mux(fill, fillAt, lateSet), Mux(fill, 0.U, RegNext(seenEpoch))) }
  }
  when(fill || accepted) { older.write(Mux(fill, fillAt, lateSet), Mux(fill, ~victim, used(0))) }
}
