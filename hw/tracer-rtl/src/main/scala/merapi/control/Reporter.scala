// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, Deferred, TraceConfig, TracerParameters, WritePort}
import merapi.primitives.{Fifo, Fold}

/** One line of the completion ring without its sequence number. `cycle`: of the work that caused it. */
class Completion extends Bundle {
  val kind    = UInt(8.W)
  val flags   = UInt(8.W)
  val count   = UInt(16.W)
  val arg     = UInt(32.W)
  val payload = Vec(Contract.EntryWords.toInt, UInt(64.W))
  val cycle   = UInt(32.W)
}

/** The completion ring: batches DEFER and SHAPE_SEEN, writes one entry at a time, knows the ring's room.
  *
  * An entry is counted in `written` when its write was answered and made; only then may the control unit publish it. The
  * place of one whose write failed is taken by the next one, which is the fault's own. With a
  * full ring it takes nothing; only lanes with something to report and commands that end with DONE wait for that. While
  * the device is paused (`hold`) an entry waits as for room: the host may be taking others.
  *
  * Klass words reported lately are remembered (all lanes together) and not reported again: a repeated report is
  * harmless but costs the host time.
  */
class Reporter(p: TracerParameters) extends Module {
  private val words = Contract.EntryWords.toInt
  val io = IO(new Bundle {
    val config        = Input(new TraceConfig(p))
    val cycle         = Input(UInt(32.W))                  // of what is batched
    val ring          = Input(UInt(p.lineAddress.W))
    val ringLog2      = Input(UInt(5.W))
    val consumed      = Input(UInt(64.W))                  // by the host
    val seen          = Vec(p.lanes, Flipped(Decoupled(UInt(64.W))))
    val deferred      = Vec(p.lanes, Flipped(Decoupled(new Deferred(p))))
    val control       = Flipped(Decoupled(new Completion)) // goes behind everything batched so far
    val flush         = Input(Bool())
    val hold          = Input(Bool())                      // nothing is written
    val restart       = Input(Bool())                      // pulse: a handshake, the ring is empty
    val drop          = Input(Bool())                      // forget batches and take nothing (abort, fault)
    val forget        = Input(Bool())                      // pulse: report klasses anew
    val failed        = Input(Bool())                      // beside the answer: the write was not made
    val written       = Output(UInt(64.W))
    val produced      = Output(UInt(64.W))
    val empty         = Output(Bool())                     // no batch, no entry waits
    val quiet         = Output(Bool())
    val full          = Output(Bool())                     // an entry waits for the host
    val doneWaits     = Output(Bool())                     // an answer to a command is not written yet
    val reportedSeen  = Output(Bool())
    val reportedDefer = Output(Bool())
    val write         = new WritePort(p)
  })
  // What is to be reported, six words a batch: seen, deferred, unsized. A memory for each place, so that a batch is read
  // as a whole; at most one word comes a cycle.
  private val batches                          = 3
  val Seq(seenBatch, deferBatch, unsizedBatch) = Seq.tabulate(batches)(i => i)
  val items                                    = Seq.fill(words)(Mem(batches, UInt(64.W)))
  val counts                                   = RegInit(VecInit(Seq.fill(batches)(0.U(log2Ceil(words + 1).W))))

  val produced = RegInit(0.U(64.W)) // entries given to memory
  val written  = RegInit(0.U(64.W))
  val entry    = Reg(new Completion)
  object State extends ChiselEnum { val Idle, Ready, Wait, Count = Value }
  val state = RegInit(State.Idle)
  // Of the cycle before: an entry is not ready before its turn, and the host only takes.
  val used = produced(31, 0) - io.consumed(31, 0) // at most the ring's entries: HostLook believes nothing else
  val room = RegNext(!(used >> io.ringLog2)(0) && !io.hold, false.B)

  // Seal: control entries push everything batched ahead of them; a batch of klasses is sealed before the
  // objects that showed them.
  val push    = RegNext(io.flush, false.B) || io.control.valid
  val wants   = counts.map(n => n === words.U || (push && n =/= 0.U))
  val seal    = state === State.Idle && !io.drop && wants.reduce(_ || _)
  val kinds   = Seq(Contract.Comp.ShapeSeen, Contract.Comp.Defer, Contract.Comp.Defer)
  val flags   = Seq(0, 0, 1 << Contract.DeferFlag.Unsized)
  val waiting = WireDefault(false.B) // a report that is not in a batch yet
  io.control.ready := state === State.Idle && !io.drop && !wants.reduce(_ || _) && !waiting
  val sealAt = PriorityEncoder(wants)
  when(seal) {
    entry.kind  := VecInit(kinds.map(_.U(8.W)))(sealAt)
    entry.flags := VecInit(flags.map(_.U(8.W)))(sealAt)
    entry.count := counts(sealAt)
    entry.arg   := 0.U
    entry.cycle := io.cycle
    for (k <- 0 until words) entry.payload(k) := Mux(counts(sealAt) > k.U, items(k).read(sealAt), 0.U)
    counts(sealAt) := 0.U
    state          := State.Ready
  }.elsewhen(io.control.fire) {
    entry := io.control.bits
    state := State.Ready
  }
  io.write.request.valid    := state === State.Ready && room && !io.drop
  io.write.request.bits.tag := 0.U
  val slotMask = RegNext(((1.U(32.W) << io.ringLog2) - 1.U)(31, 0)) // as long as the ring stands
  io.write.request.bits.line := RegNext(io.ring + (produced(31, 0) & slotMask)) // no entry follows at once
  io.write.request.bits.data := Cat(
    entry.cycle,
    (produced(31, 0) + 1.U)(31, 0),
    entry.payload.asUInt,
    entry.arg,
    entry.count,
    entry.flags,
    entry.kind
  )
  when(io.write.request.fire) {
    produced := produced + 1.U
    state    := State.Wait
  }
  val failed = RegNext(io.failed)
  when(state === State.Wait && io.write.done.valid) { state := State.Count }
  when(state === State.Count) {
    when(failed) { produced := written }.otherwise { written := produced }
    state := State.Idle
  }
  io.written   := written
  io.produced  := produced
  io.full      := state === State.Ready && !room
  io.doneWaits := state =/= State.Idle && entry.kind === Contract.Comp.Done.U
  io.quiet     := state =/= State.Wait && state =/= State.Count

  // Klasses: one is looked up, judged in the next cycle, and leaves then or when there is room.
  val seenPick = Module(new RRArbiter(UInt(64.W), p.lanes))
  // Lanes have places of their own here, ready by themselves; what is in them counts as batched.
  // While the control unit's entry waits nothing more comes to them: several lanes bring more than leaves, for ever if they
  // have it, and an answer goes behind what was reported before it, not behind the rest.
  private def before[T <: Data](reports: DecoupledIO[T]): DecoupledIO[T] =
    if (p.lanes == 1) reports
    else {
      val taken = Wire(chiselTypeOf(reports))
      taken.valid   := reports.valid && !io.control.valid
      taken.bits    := reports.bits
      reports.ready := taken.ready && !io.control.valid
      taken
    }
  val seenIn = io.seen.map(s => Fifo(before(s), 2, clear = Some(io.drop)))
  seenPick.io.in.zip(seenIn).foreach { case (a, b) => a <> b }
  val seenNext          = Fifo(seenPick.io.out, 2, clear = Some(io.drop))
  private val indexBits = log2Ceil(p.seenKlasses)
  // Forgotten one a cycle; meanwhile nothing is known, and a klass may be reported once more.
  class Known extends Bundle {
    val valid = Bool()
    val klass = UInt(64.W)
  }
  val known = SyncReadMem(p.seenKlasses, new Known)
  // Every cycle begins with it, so that what the memory held at first is never looked at.
  val forgetting = RegInit(false.B)
  val forgetNext = RegInit(0.U(indexBits.W))
  val judging    = RegInit(false.B)
  val klass      = Reg(UInt(64.W))
  val at         = Reg(UInt(indexBits.W))
  val nextAt     = Fold(seenNext.bits, 64, indexBits)
  val entryAt    = known.read(nextAt) // in the cycle after
  val found      = Reg(Bool())
  val judged     = RegInit(false.B)
  val deferNext  = Wire(Decoupled(new Deferred(p)))
  val sealSeen   = seal && sealAt === 0.U
  val leaves     = judged && !io.drop && (found || (counts(seenBatch) =/= words.U && !sealSeen && !deferNext.fire))
  seenNext.ready := !judging && !judged
  when(seenNext.fire) {
    klass := seenNext.bits
    at    := nextAt
  }
  // What is read while it is forgotten is not known, whatever the memory answers then.
  val torn = RegNext(forgetting, false.B)
  found           := Mux(judging, entryAt.valid && entryAt.klass === klass && !forgetting && !torn, found)
  judging         := seenNext.fire && !io.drop
  judged          := (judging || (judged && !leaves)) && !io.drop
  io.reportedSeen := leaves && !found
  when(forgetting) {
    forgetNext := forgetNext + 1.U
    when(forgetNext.andR) { forgetting := false.B }
  }
  when(io.forget) {
    forgetting := true.B
    forgetNext := 0.U
  }
  when(forgetting || io.reportedSeen) {
    val now = Wire(new Known)
    now.valid := !forgetting
    now.klass := klass
    known.write(Mux(forgetting, forgetNext, at), now)
  }

  // Objects.
  val deferPick = Module(new RRArbiter(new Deferred(p), p.lanes))
  val deferIn   = io.deferred.map(d => Fifo(before(d), 2, clear = Some(io.drop)))
  deferPick.io.in.zip(deferIn).foreach { case (a, b) => a <> b }
  deferNext <> Fifo(deferPick.io.out, 2, clear = Some(io.drop))
  val unsized = deferNext.bits.unsized
  val address = io.config.heapBase + Cat(deferNext.bits.obj, 0.U(3.W))
  deferNext.ready := !io.drop && Mux(
    unsized,
    counts(unsizedBatch) =/= words.U && !(seal && sealAt === unsizedBatch.U),
    counts(deferBatch) =/= words.U && !(seal && sealAt === deferBatch.U)
  )
  io.reportedDefer := deferNext.fire
  // Objects before klasses, which wait for them.
  val adds = io.reportedDefer || io.reportedSeen
  val to   = Mux(!io.reportedDefer, seenBatch.U, Mux(unsized, unsizedBatch.U, deferBatch.U))
  when(adds) { counts(to) := counts(to) + 1.U }
  for ((place, k) <- items.zipWithIndex) {
    when(adds && counts(to) === k.U) { place.write(to, Mux(io.reportedDefer, address, klass)) }
  }
  waiting := seenIn.map(_.valid).reduce(_ || _) || seenNext.valid || judging || judged || deferNext.valid ||
    deferIn.map(_.valid).reduce(_ || _)
  io.empty := state === State.Idle && counts.map(_ === 0.U).reduce(_ && _) && !waiting
  when(io.drop) {
    counts.foreach(_ := 0.U)
    when(state === State.Ready) { state := State.Idle }
  }
  when(io.restart) {
    produced := 0.U
    written  := 0.U
    state    := State.Idle
  }
}
