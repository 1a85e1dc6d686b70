// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Shapes of one lane: two ways, filled from the walker with whatever it was asked for by any lane.
  *
  * Sets are read a cycle ahead: `next` is the klass word that `klass` will be in the next cycle, or still is. An entry
  * holds while its epoch is the present one. That its klass was reported (`seen`) has epochs of its own, kept beside it;
  * epoch 0 is nobody's in either.
  */
class ShapeCache(p: TracerParameters) extends Module {
  private val setBits   = log2Ceil(p.shapeSets)
  private val epochBits = 8
  private val seenBits  = 4
  val io = IO(new Bundle {
    val powerUp    = Input(Bool()) // the first reset, after which on-chip memory holds anything
    val next       = Input(UInt(64.W))
    val klass      = Flipped(Valid(UInt(64.W)))
    val done       = Output(Bool()) // the answer below is for `klass`
    val found      = Output(Bool())
    val shape      = Output(new Shape(p))
    val seen       = Output(Bool())
    val setSeen    = Input(Bool()) // with done: mark it reported
    val accept     = Input(Bool()) // with done: the answer was taken
    val forgetSeen = Input(Bool()) // a report did not leave after all
    val invalidate = Input(Bool())
    val missed     = Output(Bool())
    val walker     = new ShapePort(p)
  })
  class Entry extends Bundle {
    val epoch = UInt(epochBits.W)
    val klass = UInt(64.W)
    val shape = new Shape(p)
  }
  val ways  = Seq.fill(2)(SyncReadMem(p.shapeSets, new Entry))
  val seens = Seq.fill(2)(Mem(p.shapeSets, UInt(seenBits.W)))
  val older = Mem(p.shapeSets, UInt(1.W)) // way to replace next; any value will do

  val (sweeping, sweepNext, epoch) = withReset(io.powerUp) {
    (RegInit(true.B), RegInit(0.U(setBits.W)), RegInit(1.U(epochBits.W)))
  }
  val seenEpoch = RegInit(1.U(seenBits.W))
  val seenOver  = io.forgetSeen && seenEpoch.andR
  when(io.forgetSeen) { seenEpoch := Mux(seenOver, 1.U, seenEpoch + 1.U) }
  when(sweeping) {
    sweepNext := sweepNext + 1.U
    when(sweepNext.andR) { sweeping := false.B }
  }
  // Entries that say they were reported in an epoch that is used again go with all others.
  when(io.invalidate || seenOver || reset.asBool) {
    epoch := epoch + 1.U
    when(epoch.andR) {
      epoch     := 1.U
      sweeping  := true.B
      sweepNext := 0.U
    }
  }

  // Klass words are aligned to eight bytes or are shifted; fold everything.
  private def setOf(klass: UInt): UInt = Fold(klass, 64, setBits)
  val nextSet = setOf(io.next)
  val set     = RegNext(nextSet)
  val klass   = io.klass.bits
  val reads   = ways.map(_.read(nextSet))
  val hits    = reads.map(r => r.epoch === epoch && r.klass === klass)
  val isSeen  = seens.map(_.read(set) === seenEpoch)

  // Again: the entry was written a cycle ago and is being read.
  object State extends ChiselEnum { val Look, Ask, Wait, Again, Absent = Value }
  val state = RegInit(State.Look)
  io.walker.klass.valid := state === State.Ask
  io.walker.klass.bits  := klass
  io.missed             := io.walker.klass.fire
  val torn  = RegInit(false.B) // an entry that was written while it was read may be anything
  val looks = state === State.Look && !sweeping && !torn
  val hit   = looks && (hits(0) || hits(1))
  io.done  := io.klass.valid && (hit || state === State.Absent)
  io.found := state === State.Look
  io.shape := Mux(hits(1), reads(1).shape, reads(0).shape)
  io.seen  := Mux(hits(1), isSeen(1), isSeen(0))

  switch(state) {
    is(State.Look) { when(io.klass.valid && looks && !hit) { state := State.Ask } }
    is(State.Ask) { when(io.walker.klass.fire) { state := State.Wait } }
    is(State.Wait) {} // for the answer, below
    is(State.Again) { state := State.Look }
    is(State.Absent) { when(io.accept) { state := State.Look } }
  }
  val answer = io.walker.answer
  when(answer.valid && answer.bits.klass === klass && state.isOneOf(State.Ask, State.Wait)) {
    state := Mux(answer.bits.found, State.Again, State.Absent)
  }
  // While all entries are cleared, what comes is asked for once more.
  val fill   = answer.valid && answer.bits.found && !sweeping
  val fillAt = setOf(answer.bits.klass)
  val entry  = Wire(new Entry)
  entry.epoch := Mux(sweeping, 0.U, epoch)
  entry.klass := answer.bits.klass
  entry.shape := answer.bits.shape
  val victim  = older.read(fillAt)
  val writeAt = Mux(sweeping, sweepNext, fillAt)
  torn := (sweeping || fill) && writeAt === nextSet
  // Written a cycle later, and not at all beside a new entry: that a klass is reported twice does no harm.
  val accepted = io.accept && state === State.Look
  val lateSet  = RegNext(set)
  for (w <- 0 until 2) {
    val mine   = fill && victim === w.U
    val isSeen = RegNext(accepted && io.setSeen && hits(w) && !fill, false.B)
    when(sweeping || mine) { ways(w).write(writeAt, entry) }
    when(mine || isSeen) { seens(w).write(Mux(mine, fillAt, lateSet), Mux(mine, 0.U, RegNext(seenEpoch))) }
  }
  when(RegNext(accepted, false.B)) { older.write(lateSet, RegNext(hits(0))) }
}
