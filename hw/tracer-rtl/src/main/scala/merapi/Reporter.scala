// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** One line of the completion ring without its sequence number. */
class Completion extends Bundle {
  val kind    = UInt(8.W)
  val flags   = UInt(8.W)
  val count   = UInt(16.W)
  val arg     = UInt(32.W)
  val payload = Vec(Contract.EntryWords.toInt, UInt(64.W))
}

/** The completion ring: batches DEFER and SHAPE_SEEN, writes one entry at a time, knows the ring's room.
  *
  * An entry is counted in `written` when its write was answered; only then may the control unit publish it. With a
  * full ring it takes nothing; only lanes with something to report and commands that end with DONE wait for that.
  *
  * Klass words reported lately are remembered (all lanes together) and not reported again: a repeated report is
  * harmless but costs the host time.
  */
class Reporter(p: TracerParameters) extends Module {
  private val words = Contract.EntryWords.toInt
  val io = IO(new Bundle {
    val config   = Input(new TraceConfig(p))
    val cycle    = Input(UInt(32.W))
    val ring     = Input(UInt(p.lineAddress.W))
    val ringLog2 = Input(UInt(5.W))
    val consumed = Input(UInt(64.W)) // by the host
    val seen     = Vec(p.lanes, Flipped(Decoupled(UInt(64.W))))
    val deferred = Vec(p.lanes, Flipped(Decoupled(new Deferred(p))))
    val control  = Flipped(Decoupled(new Completion)) // goes behind everything batched so far
    val flush    = Input(Bool())
    val restart  = Input(Bool()) // pulse: a handshake, the ring is empty
    val drop     = Input(Bool()) // forget batches and take nothing (abort, fault)
    val forget   = Input(Bool()) // pulse: report klasses anew
    val written  = Output(UInt(64.W))
    val produced = Output(UInt(64.W))
    val empty    = Output(Bool()) // no batch, no entry waits
    val quiet    = Output(Bool())
    val full     = Output(Bool()) // an entry waits for the host
    val reportedSeen  = Output(Bool())
    val reportedDefer = Output(Bool())
    val write    = new WritePort(p)
  })
  class Batch {
    val items = Reg(Vec(words, UInt(64.W)))
    val count = RegInit(0.U(log2Ceil(words + 1).W))
  }
  val batches = Seq.fill(3)(new Batch) // seen, deferred, unsized
  val Seq(seenBatch, deferBatch, unsizedBatch) = batches

  val produced = RegInit(0.U(64.W)) // entries given to memory
  val written  = RegInit(0.U(64.W))
  val entry    = Reg(new Completion)
  object State extends ChiselEnum { val Idle, Ready, Wait = Value }
  val state = RegInit(State.Idle)
  // Of the cycle before: an entry is not ready before its turn, and the host only takes.
  val room = RegNext((produced - io.consumed) < (1.U(64.W) << io.ringLog2), false.B)

  // Seal: control entries push everything batched ahead of them; klasses go before the objects that showed them.
  val push  = io.flush || io.control.valid
  val wants = batches.map(b => b.count === words.U || (push && b.count =/= 0.U))
  val seal  = state === State.Idle && !io.drop && wants.reduce(_ || _)
  val kinds = Seq(Contract.Comp.ShapeSeen, Contract.Comp.Defer, Contract.Comp.Defer)
  val flags = Seq(0, 0, 1 << Contract.DeferFlag.Unsized)
  val waiting = WireDefault(false.B) // a report that is not in a batch yet
  io.control.ready := state === State.Idle && !io.drop && !wants.reduce(_ || _) && !waiting
  val sealAt = PriorityEncoder(wants)
  when(seal) {
    for ((b, i) <- batches.zipWithIndex) {
      when(sealAt === i.U) {
        entry.kind    := kinds(i).U
        entry.flags   := flags(i).U
        entry.count   := b.count
        entry.arg     := 0.U
        for (k <- 0 until words) entry.payload(k) := Mux(b.count > k.U, b.items(k), 0.U)
        b.count := 0.U
      }
    }
    state := State.Ready
  }.elsewhen(io.control.fire) {
    entry := io.control.bits
    state := State.Ready
  }
  io.write.request.valid := state === State.Ready && room && !io.drop
  io.write.request.bits.tag := 0.U
  val slotMask = ((1.U(32.W) << io.ringLog2) - 1.U)(31, 0)
  io.write.request.bits.line := io.ring + (produced(31, 0) & slotMask)
  io.write.request.bits.data := Cat(
    io.cycle,
    (produced(31, 0) + 1.U)(31, 0),
    entry.payload.asUInt,
    entry.arg,
    entry.count,
    entry.flags,
    entry.kind
  )
  io.write.request.bits.halves := 3.U
  when(io.write.request.fire) {
    produced := produced + 1.U
    state    := State.Wait
  }
  when(state === State.Wait && io.write.done.valid) {
    written := produced
    state   := State.Idle
  }
  io.written  := written
  io.produced := produced
  io.full    := state === State.Ready && !room
  io.quiet   := state =/= State.Wait

  // Klasses: one is looked up, judged in the next cycle, and leaves then or when there is room.
  val seenPick = Module(new RRArbiter(UInt(64.W), p.lanes))
  // Lanes have places of their own here, ready by themselves; what is in them counts as batched.
  val seenIn = io.seen.map(s => Queue(s, 2, flush = Some(io.drop)))
  seenPick.io.in.zip(seenIn).foreach { case (a, b) => a <> b }
  val seenNext = Queue(seenPick.io.out, 2, flush = Some(io.drop))
  private val indexBits = log2Ceil(p.seenKlasses)
  val known   = Mem(p.seenKlasses, UInt(64.W))
  val isKnown = RegInit(0.U(p.seenKlasses.W))
  val judging = RegInit(false.B)
  val klass   = Reg(UInt(64.W))
  val at      = Reg(UInt(indexBits.W))
  val same    = known.read(at) === klass
  val found   = Reg(Bool())
  val judged  = RegInit(false.B)
  val sealSeen = seal && sealAt === 0.U
  val leaves   = judged && !io.drop && (found || (seenBatch.count =/= words.U && !sealSeen))
  seenNext.ready := !judging && !judged
  when(seenNext.fire) {
    klass := seenNext.bits
    at    := Fold(seenNext.bits, 64, indexBits)
  }
  found   := Mux(judging, isKnown(at) && same, found)
  judging := seenNext.fire && !io.drop
  judged  := (judging || (judged && !leaves)) && !io.drop
  io.reportedSeen := leaves && !found
  when(io.reportedSeen) {
    seenBatch.items(seenBatch.count) := klass
    seenBatch.count                  := seenBatch.count + 1.U
    known.write(at, klass)
    isKnown := isKnown | UIntToOH(at, p.seenKlasses)
  }
  when(io.forget) { isKnown := 0.U }

  // Objects.
  val deferPick = Module(new RRArbiter(new Deferred(p), p.lanes))
  val deferIn = io.deferred.map(d => Queue(d, 2, flush = Some(io.drop)))
  deferPick.io.in.zip(deferIn).foreach { case (a, b) => a <> b }
  val deferNext = Queue(deferPick.io.out, 2, flush = Some(io.drop))
  val unsized = deferNext.bits.unsized
  val address = io.config.heapBase + Cat(deferNext.bits.obj, 0.U(3.W))
  deferNext.ready := !io.drop && Mux(
    unsized,
    unsizedBatch.count =/= words.U && !(seal && sealAt === 2.U),
    deferBatch.count =/= words.U && !(seal && sealAt === 1.U)
  )
  io.reportedDefer := deferNext.fire
  for ((b, mine) <- Seq(deferBatch -> !unsized, unsizedBatch -> unsized)) {
    when(deferNext.fire && mine) {
      b.items(b.count) := address
      b.count          := b.count + 1.U
    }
  }
  waiting  := seenPick.io.out.valid || seenNext.valid || judging || judged || deferNext.valid || deferPick.io.out.valid
  io.empty := state === State.Idle && batches.map(_.count === 0.U).reduce(_ && _) && !waiting
  when(io.drop) {
    batches.foreach(_.count := 0.U)
    when(state === State.Ready) { state := State.Idle }
  }
  when(io.restart) {
    produced := 0.U
    written  := 0.U
    state    := State.Idle
  }
}
