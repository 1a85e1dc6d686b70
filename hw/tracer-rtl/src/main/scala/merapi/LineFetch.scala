// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Lines for the objects in flight of one lane: a small direct-mapped cache of heap lines in front of the memory.
  *
  * A slot has at most one request here, from `request` to `line`. The answer to a miss is stored under the slot's own
  * number (so it always has a place) as well as in the cache; the slot that asked is served from its own copy and
  * cannot be starved by others. A slot whose line was asked for by another waits for that line and looks again when it
  * has come, and not before: objects that lie together ask together, and their looks would crowd out new requests.
  * Prefetches have tags of their own and leave nothing but a line in the cache.
  */
class LineFetch(p: TracerParameters) extends Module {
  private val setBits  = log2Ceil(p.heapLines)
  private val slotBits = log2Ceil(p.slots)
  class Request extends Bundle {
    val slot = UInt(slotBits.W)
    val line = UInt(p.lineAddress.W)
  }
  class Line extends Bundle {
    val slot = UInt(slotBits.W)
    val data = UInt(p.lineBits.W)
  }
  val io = IO(new Bundle {
    val request    = Flipped(Decoupled(new Request))
    val prefetch   = Flipped(Valid(UInt(p.lineAddress.W))) // a hint: may be ignored
    val line       = Decoupled(new Line)
    val invalidate = Input(Bool()) // pulse; nothing is outstanding
    val quiet      = Output(Bool())
    val fetched    = Output(Bool())
    val read       = new ReadPort(p)
  })
  private def setOf(line: UInt): UInt = (line ^ (line >> setBits))(setBits - 1, 0)

  val valid   = RegInit(0.U(p.heapLines.W)) // the line is here
  val pending = RegInit(0.U(p.heapLines.W)) // the line was asked for
  val tags    = Mem(p.heapLines, UInt(p.lineAddress.W))
  val lines   = SyncReadMem(p.heapLines, UInt(p.lineBits.W))

  // Requests: first those whose line of another slot has come.
  val waits    = RegInit(0.U(p.slots.W)) // slots that wait for a line
  val come     = RegInit(0.U(p.slots.W)) // those whose line has come
  val waitLine = Reg(Vec(p.slots, UInt(p.lineAddress.W)))
  val waitSet  = Reg(Vec(p.slots, UInt(setBits.W)))
  val again    = come.orR
  val slotAgain = PriorityEncoder(come)
  val lookAgain = Wire(new Request)
  lookAgain.slot := slotAgain
  lookAgain.line := waitLine(slotAgain)
  val hint    = RegInit(0.U.asTypeOf(Valid(UInt(p.lineAddress.W))))
  val hintTags = RegInit(0.U(p.prefetches.W))
  val look    = Mux(again, lookAgain, io.request.bits)
  val isHint  = !again && !io.request.valid && hint.valid
  val any     = again || io.request.valid || isHint
  val line    = Mux(isHint, hint.bits, look.line)
  val set     = setOf(line)
  val same    = tags.read(set) === line
  val hit     = valid(set) && same
  val awaited = pending(set) && same
  val hintTag = PriorityEncoder(~hintTags)

  // Hits come out one cycle later; the answer queue below keeps room for them.
  val hits     = Module(new Queue(new Line, 2, flow = true))
  val hitNext  = RegInit(false.B)
  val hitSlot  = Reg(UInt(slotBits.W))
  val hitRoom  = hits.io.count +& hitNext < 2.U
  val ask      = Module(new Queue(new ReadRequest(p), 2))
  val done     = WireDefault(false.B)
  val useHit   = any && !isHint && hit && hitRoom
  val useWait  = any && !isHint && !hit && awaited
  val useAsk   = any && !hit && !awaited && ask.io.enq.ready && (!isHint || (!hintTags.andR && !pending(set)))
  done := useHit || useWait || useAsk || isHint

  io.request.ready     := !again && done && !isHint
  val lookBit = UIntToOH(look.slot, p.slots)
  when(useWait) {
    waitLine(look.slot) := look.line
    waitSet(look.slot)  := set
  }
  when(isHint) { hint.valid := false.B }
  when(io.prefetch.valid) { hint := io.prefetch }

  ask.io.enq.valid     := useAsk
  ask.io.enq.bits.line := line
  ask.io.enq.bits.tag  := Mux(isHint, p.slots.U +& hintTag, look.slot)
  io.read.request <> ask.io.deq
  io.fetched := io.read.request.fire
  // The line takes its set unless another line is on its way there.
  val allocate = useAsk && !pending(set)
  when(allocate) { tags.write(set, line) }

  val hitData = lines.read(set)
  hitNext := useHit
  hitSlot := look.slot
  hits.io.enq.valid     := hitNext
  hits.io.enq.bits.slot := hitSlot
  hits.io.enq.bits.data := hitData
  assert(!(hitNext && !hits.io.enq.ready), "a hit without a place")

  // Answers: into the slot's own copy and into the cache.
  val answer    = io.read.response
  val isSlot    = answer.bits.tag < p.slots.U
  val askedSet  = Reg(Vec(p.slots + p.prefetches, UInt(setBits.W)))
  val askedKeep = Reg(Vec(p.slots + p.prefetches, Bool()))
  when(useAsk) {
    askedSet(ask.io.enq.bits.tag)  := set
    askedKeep(ask.io.enq.bits.tag) := allocate
  }
  val own    = Mem(p.slots, UInt(p.lineBits.W))
  val served = Module(new Queue(UInt(slotBits.W), p.slots))
  when(answer.valid && isSlot) { own.write(answer.bits.tag(slotBits - 1, 0), answer.bits.data) }
  served.io.enq.valid := answer.valid && isSlot
  served.io.enq.bits  := answer.bits.tag
  assert(!(served.io.enq.valid && !served.io.enq.ready), "an answer without a place")
  val fillSet = askedSet(answer.bits.tag)
  val fill    = answer.valid && askedKeep(answer.bits.tag)
  when(fill) { lines.write(fillSet, answer.bits.data) }

  val hintBit = UIntToOH(answer.bits.tag - p.slots.U, p.prefetches)
  hintTags := (hintTags | Mux(useAsk && isHint, UIntToOH(hintTag, p.prefetches), 0.U)) &
    ~Mux(answer.valid && !isSlot, hintBit, 0.U(p.prefetches.W))
  val setBit  = UIntToOH(set, p.heapLines)
  val fillBit = UIntToOH(fillSet, p.heapLines)
  val taken   = Mux(allocate, setBit, 0.U)
  val filled  = Mux(fill, fillBit, 0.U)
  valid   := Mux(io.invalidate, 0.U, (valid & ~taken) | filled)
  pending := (pending & ~filled) | taken
  // A line read in the cycle in which it is written would be undefined: it is not valid before the next cycle.
  assert(!(useHit && fill && fillSet === set), "a heap line read while it is written")
  // A slot that begins to wait for a set in the cycle in which the set is filled finds the line in the next.
  val filledNow = VecInit((0 until p.slots).map(i => fill && waits(i) && waitSet(i) === fillSet)).asUInt
  val lookOver  = Mux(!isHint && any && done, lookBit, 0.U)
  val waitsNow  = Mux(useWait, lookBit, 0.U)
  waits := (waits & ~lookOver) | waitsNow
  come  := ((come | filledNow) & ~lookOver) | Mux(fill && fillSet === set, waitsNow, 0.U)

  // Served slots first: they hold a line of their own that hits do not need.
  io.line.valid     := served.io.deq.valid || hits.io.deq.valid
  io.line.bits.slot := Mux(served.io.deq.valid, served.io.deq.bits, hits.io.deq.bits.slot)
  io.line.bits.data := Mux(served.io.deq.valid, own.read(served.io.deq.bits), hits.io.deq.bits.data)
  served.io.deq.ready := io.line.ready
  hits.io.deq.ready   := io.line.ready && !served.io.deq.valid

  val outstanding = RegInit(0.U(log2Ceil(p.slots + p.prefetches + 1).W))
  outstanding := outstanding + useAsk - answer.valid
  io.quiet := outstanding === 0.U && !ask.io.deq.valid && !waits.orR && !io.request.valid && !hitNext &&
    !served.io.deq.valid && !hits.io.deq.valid
}
