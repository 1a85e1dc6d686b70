// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Part of an object's references: [start, end) in units of four bytes from the heap's start. */
class Span(p: TracerParameters) extends Bundle {
  val start = UInt((p.heapAddressBits - 1).W)
  val end   = UInt((p.heapAddressBits - 1).W)
}

object Phase extends ChiselEnum {

  /** What the fetched line is: the object's klass word, a further word that sizes it, references, a line of the
    * shape extension.
    */
  val Header, Size, References, Extension = Value
}

/** What a slot remembers between two lines. */
class SlotWork(p: TracerParameters) extends Bundle {
  val phase = Phase()
  val line  = UInt(p.lineAddress.W) // of the window: to be fetched next
  val word  = UInt(4.W)             // Size: which 4-byte word of the line
  val klass = UInt(64.W)            // Size
  val spans = Vec(4, new Span(p))   // References
  // Further blocks in the shape extension: position in half lines (four blocks), and how many blocks are left.
  val extension     = UInt((p.lineAddress + 1).W)
  val extensionLeft = UInt(ShapeLimits.bits.W)
  val size          = UInt(ShapeLimits.bits.W)
}

class LaneEvents extends Bundle {
  val scanned   = Bool()
  val hit       = Bool()
  val missed    = Bool()
  val stale     = Bool()
  val fetched   = Bool()
  val slotsRead = UInt(5.W)
  val slotsNull = UInt(5.W)
  val stallGrey   = Bool()
  val stallMemory = Bool()
  val stallMark   = Bool()
  val stallShape  = Bool()
}

class LiveWords(p: TracerParameters) extends Bundle {
  val region = UInt(p.regionBits.W)
  val words  = UInt((p.objectBits + 1).W)
}

/** Objects of one lane, from grey to their references, many at once.
  *
  * {{{
  *   greys ────┐  limit    fetch       klass word   size, live words,   references
  *   continued ┴─ check ── line(s) ──> and shape ──> seen, deferred ──> of the line ──> filter
  *       ^                                  │              │                │
  *       └──────── slot's work ─────────────┴──────────────┴────────────────┘
  * }}}
  *
  * An object holds one slot from the limit check to its end; per slot there is at most one line request, one queue
  * entry, one continuation: every queue is as deep as there are slots and is never full.
  *
  * Why it cannot deadlock: lines come back without waiting for anything; the stages behind them wait only for the
  * reference filter (whose banks never wait for a lane), the live table (memory only) and the reporter. The reporter
  * may wait for the host; at a pause the objects that need it are given back to the grey store, where they have
  * reserved room, so that the stages drain.
  *
  * At a pause greys and continuations stay where they are: both pass the limit check when they go on.
  */
class ScanLane(p: TracerParameters) extends Module {
  private val slotBits = log2Ceil(p.slots)
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val hold       = Input(Bool())
    val invalidate = Input(Bool()) // pulse, when quiet
    val dropShapes = Input(Bool()) // pulse
    val sweeping   = Output(Bool())
    val grey       = Flipped(Decoupled(new Grey(p)))
    val giveBack   = Decoupled(new Grey(p))
    val references = Decoupled(new RawReference(p))
    val live       = Decoupled(new LiveWords(p))
    val seen       = Decoupled(UInt(64.W))
    val deferred   = Decoupled(new Deferred(p))
    val shapes     = new ShapePort(p)
    val limits     = new ReadPort(p)
    val lines      = new ReadPort(p)
    val empty      = Output(Bool()) // no object in any slot
    val quiet      = Output(Bool()) // nothing moves, nothing is outstanding
    val events     = Output(new LaneEvents)
    val fault      = Valid(new FaultReport)
  })
  val c = io.config

  class Held extends Bundle {
    val obj   = UInt(p.objectBits.W)
    val count = Bool()
  }
  class Issue extends Bundle {
    val slot  = UInt(slotBits.W)
    val fresh = Bool()
    val count = Bool()
  }

  val free      = RegInit(((BigInt(1) << p.slots) - 1).U(p.slots.W))
  val fresh     = RegInit(0.U(p.slots.W))
  val held      = Mem(p.slots, new Held)
  val work      = Mem(p.slots, new SlotWork(p))
  val continued = Module(new Queue(UInt(slotBits.W), p.slots))
  private def bitOf(slot: UInt): UInt = UIntToOH(slot, p.slots)

  // Issue: continuations first, they hold a slot already.
  val check   = Module(new LimitCheck(p, new Issue))
  val slotNew = PriorityEncoder(free)
  val goOn    = continued.io.deq.valid
  check.io.config     := c
  check.io.invalidate := io.invalidate
  io.limits <> check.io.read
  check.io.in.valid           := !io.hold && (goOn || (io.grey.valid && free.orR))
  check.io.in.bits.obj        := Mux(goOn, held.read(continued.io.deq.bits).obj, io.grey.bits.obj)
  check.io.in.bits.data.slot  := Mux(goOn, continued.io.deq.bits, slotNew)
  check.io.in.bits.data.fresh := !goOn
  check.io.in.bits.data.count := io.grey.bits.count
  continued.io.deq.ready      := !io.hold && check.io.in.ready
  io.grey.ready               := !io.hold && check.io.in.ready && !goOn && free.orR
  val allocate = io.grey.fire

  val issue    = check.io.out
  val issueObj = issue.bits.obj
  val tooLate  = Cat(issueObj, 0.U(3.W)) +& 16.U > c.heapBytes // an object has two words at least
  val go       = issue.bits.below && !tooLate
  val fetch    = Module(new LineFetch(p))
  fetch.io.invalidate        := io.invalidate
  io.lines <> fetch.io.read
  fetch.io.request.valid     := issue.valid && go
  fetch.io.request.bits.slot := issue.bits.data.slot
  val headerLine = c.heap + ((issueObj +& 1.U) >> 3)
  fetch.io.request.bits.line := Mux(issue.bits.data.fresh, headerLine, work.read(issue.bits.data.slot).line)
  issue.ready := !go || fetch.io.request.ready
  val stale = issue.fire && !go
  when(issue.fire && issue.bits.data.fresh) {
    val h = Wire(new Held)
    h.obj   := issueObj
    h.count := issue.bits.data.count
    held.write(issue.bits.data.slot, h)
  }
  val late = Wire(Valid(new FaultReport))
  late.valid := issue.fire && issue.bits.below && tooLate
  late.bits  := FaultReport(Contract.Fault.BadObject, c.heapBase + Cat(issueObj, 0.U(3.W)), 0.U)

  // Klass word and shape.
  class Arrived extends Bundle {
    val slot  = UInt(slotBits.W)
    val data  = UInt(p.lineBits.W)
    val phase = Phase()
  }
  val arrived = Module(new Queue(new Arrived, 1, pipe = true))
  arrived.io.enq.valid      := fetch.io.line.valid
  fetch.io.line.ready       := arrived.io.enq.ready
  arrived.io.enq.bits.slot  := fetch.io.line.bits.slot
  arrived.io.enq.bits.data  := fetch.io.line.bits.data
  arrived.io.enq.bits.phase := Mux(
    fresh(fetch.io.line.bits.slot),
    Phase.Header,
    work.read(fetch.io.line.bits.slot).phase
  )
  val a        = arrived.io.deq.bits
  val aHeld    = held.read(a.slot)
  val aWork    = work.read(a.slot)
  val wordAt   = (aHeld.obj + 1.U)(2, 0)
  val words    = VecInit((0 until 8).map(i => a.data(64 * i + 63, 64 * i)))
  val word     = words(wordAt)
  val inHeader = a.phase === Phase.Header
  val klass    = Mux(inHeader, Mux(c.wideKlass, word, word(31, 0).pad(64)), aWork.klass)
  val needs    = inHeader || a.phase === Phase.Size
  val cache    = Module(new ShapeCache(p))
  cache.io.klass.valid := arrived.io.deq.valid && needs
  cache.io.klass.bits  := klass
  cache.io.invalidate  := io.invalidate || io.dropShapes
  io.shapes <> cache.io.walker

  val evaluate = Module(new ObjectEvaluator(p))
  val scan     = Module(new LineScanner(p))
  val e        = evaluate.io.in
  e.valid := arrived.io.deq.valid && (!needs || cache.io.done)
  arrived.io.deq.ready := e.ready && (!needs || cache.io.done)
  cache.io.accept  := e.fire && needs
  // Reported when the object is evaluated for good, not when it goes for its size first.
  val sizesLater = inHeader && (cache.io.shape.kind === Contract.ShapeKind.Mirror.U ||
    (cache.io.shape.kind === Contract.ShapeKind.ObjArray.U || cache.io.shape.kind === Contract.ShapeKind.PrimArray.U) &&
    !e.bits.extraKnown)
  cache.io.setSeen    := e.fire && needs && cache.io.found && !sizesLater
  cache.io.forgetSeen := io.giveBack.fire
  e.bits.slot   := a.slot
  e.bits.data   := a.data
  e.bits.phase  := a.phase
  e.bits.obj    := aHeld.obj
  e.bits.count  := aHeld.count
  e.bits.work   := aWork
  e.bits.klass  := klass
  e.bits.found  := cache.io.found
  e.bits.shape  := cache.io.shape
  e.bits.report := cache.io.found && !cache.io.seen && !cache.io.shape.quiet
  e.bits.extra := Mux(
    inHeader,
    Mux(c.wideKlass, words((wordAt + 1.U)(2, 0))(31, 0), word(63, 32)),
    VecInit((0 until 16).map(i => a.data(32 * i + 31, 32 * i)))(aWork.word)
  )
  e.bits.extraKnown := !inHeader || !c.wideKlass || wordAt =/= 7.U

  evaluate.io.config := c
  evaluate.io.hold   := io.hold
  io.live <> evaluate.io.live
  io.seen <> evaluate.io.seen
  io.deferred <> evaluate.io.deferred
  io.giveBack <> evaluate.io.giveBack
  scan.io.config := c
  scan.io.in <> evaluate.io.scan
  io.references <> scan.io.references
  fetch.io.prefetch := scan.io.prefetch

  // One continuation a cycle: the scanner's before the evaluator's.
  val keep = Module(new Arbiter(new Continuation(p), 2))
  keep.io.in(0) <> scan.io.continue
  keep.io.in(1) <> evaluate.io.continue
  keep.io.out.ready := true.B
  when(keep.io.out.fire) { work.write(keep.io.out.bits.slot, keep.io.out.bits.work) }
  continued.io.enq.valid := keep.io.out.valid
  continued.io.enq.bits  := keep.io.out.bits.slot
  assert(!(continued.io.enq.valid && !continued.io.enq.ready), "more continuations than slots")

  val ended = Mux(evaluate.io.end.valid, bitOf(evaluate.io.end.bits), 0.U) |
    Mux(scan.io.end.valid, bitOf(scan.io.end.bits), 0.U) |
    Mux(stale, bitOf(issue.bits.data.slot), 0.U)
  free := (free | ended) & ~Mux(allocate, bitOf(slotNew), 0.U)
  fresh := (fresh & ~Mux(keep.io.out.fire, bitOf(keep.io.out.bits.slot), 0.U)) |
    Mux(allocate, bitOf(slotNew), 0.U)
  assert((free & ended) === 0.U, "a slot ended twice")

  io.fault    := FaultReport.first(Seq(late, check.io.fault, evaluate.io.fault))
  io.sweeping := check.io.sweeping
  io.empty    := free.andR
  io.quiet := !check.io.busy && fetch.io.quiet && !arrived.io.deq.valid && evaluate.io.quiet && scan.io.quiet
  io.events.scanned     := evaluate.io.scanned
  io.events.hit         := cache.io.accept && cache.io.found
  io.events.missed      := cache.io.missed
  io.events.stale       := stale
  io.events.fetched     := fetch.io.fetched
  io.events.slotsRead   := scan.io.slotsRead
  io.events.slotsNull   := scan.io.slotsNull
  io.events.stallGrey   := free.andR && !io.grey.valid
  io.events.stallMark   := io.references.valid && !io.references.ready
  io.events.stallShape  := arrived.io.deq.valid && needs && !cache.io.done
  io.events.stallMemory := !free.andR && !arrived.io.deq.valid && !scan.io.busy
}
