// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.{ReadPort, ReadRequest, TracerParameters}
import merapi.primitives.{EpochSweep, Fifo, SureFifo, Word}

/** Lines for the objects in flight of one lane: a small direct-mapped cache of heap lines in front of the memory.
  *
  * {{{
  *   slots whose line came, or that look again ─┐
  *   request ───────────────────────────────────┼─ look ─── judge ──┬─ hit ─────────────> line
  *   hint ──────────────────────────────────────┘  (tag     │       ├─ wait for another's line
  *                                                 and line) │       └─ ask ──> memory ──> own copy ──> line
  *                                                           └ none of these: looks again
  * }}}
  *
  * A slot has at most one request here, from `request` to `line`. The answer to a miss is stored under the slot's own
  * number (so it always has a place) as well as in the cache; the slot that asked is served from its own copy and
  * cannot be starved by others. A slot whose line was asked for by another waits for that line and looks again when it
  * has come, and not before: objects that lie together ask together, and their looks would crowd out new requests.
  * Prefetches have tags of their own and leave nothing but a line in the cache.
  *
  * A look never waits: what cannot be judged (a row written while it was read) or cannot go on (no room to ask) looks
  * again. A set's row says which line has it and is written when the line is asked for, with `asked`; the line has come
  * when the set's `filled`, which is written by answers alone, equals it. So either has one writer.
  */
class LineFetch(p: TracerParameters) extends Module {
  private val setBits  = log2Ceil(p.heapLines)
  private val slotBits = log2Ceil(p.slots)
  private val asks     = p.slots + p.prefetches
  class Request extends Bundle {
    val slot = UInt(slotBits.W)
    val line = UInt(p.lineAddress.W)
  }
  class Line extends Bundle {
    val slot = UInt(slotBits.W)
    val data = UInt(p.lineBits.W)
  }
  val io = IO(new Bundle {
    val powerUp  = Input(Bool())                         // the first reset, after which on-chip memory holds anything
    val request  = Flipped(Decoupled(new Request))
    val rest     = Input(Bool())                         // no request comes in this cycle: a hint's turn
    val prefetch = Flipped(Valid(UInt(p.lineAddress.W))) // a hint: may be ignored
    val room     = Input(Bool())                         // for a look's line, beside those of looks before it
    val line       = Decoupled(new Line) // ready: for one that the memory brought; found ones come anyway
    val invalidate = Input(Bool())       // pulse; nothing is outstanding
    val quiet      = Output(Bool())      // but for a request that is not taken yet
    val fetched    = Output(Bool())
    val read       = new ReadPort(p)
  })
  // A slot is woken by its set, of which these bits are compared: another's wakes it in vain.
  private val wakeBits                = 5.min(setBits)
  private def wakeOf(set: UInt): UInt = set(wakeBits - 1, 0)
  private def setOf(line: UInt): UInt = (line ^ (line >> setBits))(setBits - 1, 0)
  // That a row is written while it is read is told by so many bits, which a cycle has time for after it is known whose row is
  // read: with more sets another's row is at times taken for it, and is read again in vain.
  private val tornBits                = 10.min(setBits)
  private def tornOf(set: UInt): UInt = set(tornBits - 1, 0)

  /** With its set, the upper part of a line's number gives the lower. */
  class Row extends Bundle {
    val epoch = UInt(EpochSweep.bits.W)
    val asked = Bool()
    val upper = UInt((p.lineAddress - setBits).W)
  }
  val rows   = SyncReadMem(p.heapLines, new Row)
  val lines  = SyncReadMem(p.heapLines, UInt(p.lineBits.W))
  val filled = Mem(p.heapLines, Bool())
  val epochs = Module(new EpochSweep(p.heapLines))
  epochs.io.powerUp := io.powerUp
  epochs.io.drop    := io.invalidate
  private val (sweeping, sweepNext, epoch) = (epochs.io.sweeping, epochs.io.next, epochs.io.epoch)

  // Look: first those that look again.
  val awaited  = RegInit(0.U((1 << wakeBits).W))     // sets that slots wait for
  val waiters  = Mem(1 << wakeBits, UInt(p.slots.W)) // the slots, of a set that is awaited
  val come     = RegInit(0.U(p.slots.W))             // slots that are to look again
  val waitLine = Mem(p.slots, UInt(p.lineAddress.W))
  val waitSet  = Mem(p.slots, UInt(setBits.W))       // of that line: who looks again is known late
  val hint     = RegInit(0.U.asTypeOf(Valid(UInt(p.lineAddress.W))))
  // With many slots the one whose turn it is stands in a register, chosen in an earlier cycle.
  val chosen    = Option.when(p.manySlots)(RegInit(0.U.asTypeOf(Valid(UInt(slotBits.W)))))
  val again     = chosen.map(_.valid).getOrElse(come.orR)
  val slotAgain = chosen.map(_.bits).getOrElse(PriorityEncoder(come))
  val lookHint  = !again && io.rest && hint.valid
  val newLine   = Mux(lookHint, hint.bits, io.request.bits.line)
  val lookLine  = Mux(again, waitLine.read(slotAgain), newLine)
  val lookSet   = Mux(again, waitSet.read(slotAgain), setOf(newLine))
  io.request.ready := !again && io.room && !sweeping
  val lookAgain = again && io.room && !sweeping
  val row       = rows.read(lookSet)
  val lineHere  = lines.read(lookSet)
  when(lookHint) { hint.valid := false.B }
  when(io.prefetch.valid) { hint := io.prefetch }

  // Judge.
  val valid  = RegInit(false.B)
  val isHint = Reg(Bool())
  val slot   = Reg(UInt(slotBits.W))
  val line   = Reg(UInt(p.lineAddress.W))
  val set    = Reg(UInt(setBits.W))
  valid  := lookAgain || io.request.fire || (lookHint && !sweeping)
  isHint := lookHint
  slot   := Mux(again, slotAgain, io.request.bits.slot)
  line   := lookLine
  set    := lookSet
  // The row of this look was written while it was read: by a line that took its set, which is known last, or otherwise.
  val tookSet    = RegInit(false.B)
  val readsTaken = Reg(Bool())
  val rowWritten = RegInit(false.B)
  val torn       = rowWritten || (tookSet && readsTaken)
  val hintTags   = RegInit(0.U(p.prefetches.W))
  val hintTag    = PriorityEncoder(~hintTags)
  val ask        = Module(new Fifo(new ReadRequest(p), p.askQueue))
  // With a longer queue this is a cycle old, and for one more.
  private val askRoom =
    if (p.askQueue > 2) RegNext(ask.io.count <= (p.askQueue - 2).U, false.B) else ask.io.enq.ready
  val current  = row.epoch === epoch
  val same     = current && row.upper === (line >> setBits)
  val filledAt = filled.read(set)
  val pending  = row.asked =/= filledAt
  val busy     = current && pending // the set awaits its line
  val mine     = valid && !isHint
  val hit      = mine && same && !pending && !torn
  val useWait  = mine && same && pending && !torn
  // Whether the set is busy is known last.
  val mayAsk = valid && !same && !torn && askRoom && (!isHint || !hintTags.andR)
  val useAsk = mayAsk && (!isHint || !busy)
  val retry  = mine && (torn || (!same && !askRoom))
  when(mine) {
    waitLine.write(slot, line)
    waitSet.write(slot, set)
  }

  ask.io.enq.valid := useAsk
  if (p.askQueue > 2) assert(!(useAsk && !ask.io.enq.ready), "a line asked for without a place")
  ask.io.enq.bits.line := line
  ask.io.enq.bits.tag  := Mux(isHint, p.slots.U +& hintTag, slot).take(p.tagBits)
  io.read.request <> ask.io.deq
  io.fetched := io.read.request.fire
  // The line takes its set unless another line is on its way there.
  val allocate = mayAsk && !busy
  val freshRow = Wire(new Row)
  freshRow.epoch := Mux(sweeping, 0.U, epoch)
  freshRow.asked := !filledAt
  freshRow.upper := line >> setBits
  val rowAt = Mux(sweeping, sweepNext, set)
  when(sweeping || allocate) { rows.write(rowAt, freshRow) }

  // Answers: into the slot's own copy and into the cache.
  class Asked extends Bundle {
    val keep  = Bool()
    val asked = Bool()
    val set   = UInt(setBits.W)
  }
  val askedFor = Mem(asks, new Asked)
  when(useAsk) {
    val a = Wire(new Asked)
    a.keep  := allocate
    a.asked := !filledAt
    a.set   := set
    askedFor.write(ask.io.enq.bits.tag, a)
  }
  val answer = io.read.response
  val asked  = askedFor.read(answer.bits.tag)
  val isSlot = answer.bits.tag < p.slots.U
  val own    = Mem(p.slots, UInt(p.lineBits.W))
  val served = Module(new SureFifo(UInt(slotBits.W), p.slots))
  when(answer.valid && isSlot) { own.write(answer.bits.tag(slotBits - 1, 0), answer.bits.data) }
  served.io.put.valid := answer.valid && isSlot
  served.io.put.bits  := answer.bits.tag(slotBits - 1, 0)
  val fill = answer.valid && asked.keep
  when(fill) {
    lines.write(asked.set, answer.bits.data)
    filled.write(asked.set, asked.asked)
  }
  private def reads(set: UInt): Bool = tornOf(set) === tornOf(lookSet)
  tookSet    := allocate
  readsTaken := !sweeping && reads(set)
  rowWritten := (sweeping && reads(sweepNext)) || (fill && reads(asked.set))

  val hintBit = UIntToOH(answer.bits.tag - p.slots.U, p.prefetches)
  hintTags := (hintTags | Mux(useAsk && isHint, UIntToOH(hintTag, p.prefetches), 0.U)) &
    ~Mux(answer.valid && !isSlot, hintBit, 0.U(p.prefetches.W))
  // A slot that begins to wait for a set in the cycle in which the set is filled looks again in the next.
  val fillsMine = fill && asked.set === set
  val filledAs  = wakeOf(asked.set)
  val filledNow = Mux(fill && awaited(filledAs), waiters.read(filledAs), 0.U)
  val slotBit   = UIntToOH(slot, p.slots)
  val begins    = useWait && !fillsMine
  val waitAs    = wakeOf(set)
  val others    = Mux(awaited(waitAs) && !(fill && filledAs === waitAs), waiters.read(waitAs), 0.U)
  when(begins) { waiters.write(waitAs, others | slotBit) }
  private val leaves = chosen match {
    case None => Mux(lookAgain, UIntToOH(slotAgain, p.slots), 0.U)
    case Some(next) =>
      val choose = !next.valid || lookAgain
      when(choose) {
        next.valid := come.orR
        next.bits  := Word.lowestIndex(come)
      }
      Mux(choose, Word.lowest(come), 0.U)
  }
  awaited := (awaited & ~Mux(fill, UIntToOH(filledAs, 1 << wakeBits), 0.U)) |
    Mux(begins, UIntToOH(waitAs, 1 << wakeBits), 0.U)
  come := (come & ~leaves) | filledNow |
    Mux(retry || (useWait && fillsMine), slotBit, 0.U)

  val unseen = WireDefault(false.B) // found, and not gone on
  // Whether a look has found its line is known late, so either way is chosen by a register: lines that the memory brought
  // come when nobody is judged or, where one that was found stands in a register of its own, when none stands there.
  if (p.foundRegister) {
    val found = RegNext(hit, false.B)
    unseen              := found
    served.io.deq.ready := !found && io.line.ready
    io.line.valid       := found || served.io.deq.fire
    io.line.bits.slot   := Mux(found, RegNext(slot), served.io.deq.bits)
    io.line.bits.data   := Mux(found, RegNext(lineHere), own.read(served.io.deq.bits))
  } else {
    io.line.valid       := hit || (!mine && served.io.deq.valid)
    io.line.bits.slot   := Mux(mine, slot, served.io.deq.bits)
    io.line.bits.data   := Mux(mine, lineHere, own.read(served.io.deq.bits))
    served.io.deq.ready := !mine && io.line.ready
    assert(!(hit && !io.line.ready), "a hit without a place")
  }

  val outstanding = RegInit(0.U(log2Ceil(asks + 1).W))
  outstanding := outstanding + useAsk - answer.valid
  private val looks = if (p.manySlots) again || come.orR else again
  io.quiet := outstanding === 0.U && !valid && !unseen && !ask.io.deq.valid && !awaited.orR && !looks && !served.io.deq.valid && !hint.valid
}
