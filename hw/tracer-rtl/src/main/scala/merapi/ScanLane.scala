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

/** Part of a long array, on its way to the next lane. `obj` is the array: its limit decides at every line. */
class Piece(p: TracerParameters) extends Bundle {
  val obj  = UInt(p.objectBits.W)
  val work = new SlotWork(p)
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
  * What goes on after a line comes before new greys, except long arrays: those come last, so that what an array
  * reaches is scanned before more of it is read. A lane without anything to do takes the second half of an array that
  * the lane before it is at (`shareIn`); so one large array, from which everything hangs, keeps all lanes busy. While
  * any grey store is half full (`arraysWait`) no array goes on that leaves its lane a free slot: what arrays reach would
  * end in the spill area and be scanned long after the lines around it.
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
    val arraysWait = Input(Bool()) // some lane has enough to do
    val invalidate = Input(Bool()) // pulse, when quiet
    val dropShapes = Input(Bool()) // pulse
    val fill       = Input(new LimitFill(p))
    val ask        = Decoupled(UInt((p.regionBits - 3).W)) // for limits
    val grey       = Flipped(Decoupled(new Grey(p)))
    val giveBack   = Decoupled(new Grey(p))
    val references = Decoupled(new RawReference(p))
    val live       = Decoupled(new LiveWords(p))
    val seen       = Decoupled(UInt(64.W))
    val deferred   = Decoupled(new Deferred(p))
    val shareIn    = Flipped(Decoupled(new Piece(p)))
    val shareOut   = Decoupled(new Piece(p))
    val shapes     = new ShapePort(p)
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
  val longs     = Module(new Queue(UInt(slotBits.W), p.slots)) // of arrays with lines left
  private def bitOf(slot: UInt): UInt = UIntToOH(slot, p.slots)

  // Issue: continuations first, they hold a slot already; long arrays last.
  val check   = Module(new LimitCheck(p, new Issue))
  val slotNew = PriorityEncoder(free)
  val takeGrey = !continued.io.deq.valid && io.grey.valid && free.orR
  // An array that holds the last free slot must not wait for a store that only this lane empties.
  val takeLong = !continued.io.deq.valid && !takeGrey && longs.io.deq.valid && (!io.arraysWait || !free.orR)
  val goOn     = continued.io.deq.valid || takeLong
  val slotOn   = Mux(takeLong, longs.io.deq.bits, continued.io.deq.bits)
  check.io.config     := c
  check.io.fill       := io.fill
  io.ask <> check.io.ask
  check.io.in.valid           := !io.hold && (goOn || takeGrey)
  check.io.in.bits.obj        := Mux(goOn, held.read(slotOn).obj, io.grey.bits.obj)
  check.io.in.bits.data.slot  := Mux(goOn, slotOn, slotNew)
  check.io.in.bits.data.fresh := !goOn
  check.io.in.bits.data.count := io.grey.bits.count
  continued.io.deq.ready      := !io.hold && check.io.in.ready
  longs.io.deq.ready          := !io.hold && check.io.in.ready && takeLong
  io.grey.ready               := !io.hold && check.io.in.ready && !continued.io.deq.valid && free.orR
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
  // A piece of another lane's array takes a slot when nothing else does.
  val pieceIn   = Module(new Queue(new Piece(p), 1))
  val takeFresh = issue.fire && issue.bits.data.fresh
  val takePiece = WireDefault(false.B)
  when(takeFresh || takePiece) {
    val h = Wire(new Held)
    h.obj   := Mux(takeFresh, issueObj, pieceIn.io.deq.bits.obj)
    h.count := takeFresh && issue.bits.data.count
    held.write(Mux(takeFresh, issue.bits.data.slot, slotNew), h)
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

  // Few objects in flight that lie one after the other (a list): the memory's latency would be all there is, so lines
  // ahead are asked for on suspicion.
  val few      = RegNext(PopCount(free) >= (p.slots - ScanLane.few).U, false.B)
  val lastLine = RegEnable(headerLine, takeFresh)
  val ahead    = headerLine - lastLine
  val behind   = lastLine - headerLine
  val up       = ahead =/= 0.U && ahead <= ScanLane.near.U
  val down     = behind =/= 0.U && behind <= ScanLane.near.U
  val guess    = Mux(up, headerLine + ScanLane.distance.U, headerLine - ScanLane.distance.U)
  val inHeap   = guess >= c.heap && guess < c.heap + (c.heapBytes >> p.lineLog2)
  fetch.io.prefetch.valid := scan.io.prefetch.valid || (takeFresh && few && (up || down) && inHeap)
  fetch.io.prefetch.bits  := Mux(scan.io.prefetch.valid, scan.io.prefetch.bits, guess)

  val share = Module(new ArrayShare(p))
  share.io.config := c
  share.io.in <> scan.io.continue
  share.io.obj := scan.io.obj
  io.shareOut <> share.io.piece
  val idle = RegNext(!io.grey.valid && !continued.io.deq.valid && !longs.io.deq.valid && !io.arraysWait, false.B)
  pieceIn.io.enq.valid := io.shareIn.valid && idle && !io.hold
  pieceIn.io.enq.bits  := io.shareIn.bits
  io.shareIn.ready     := pieceIn.io.enq.ready && idle && !io.hold

  // One continuation a cycle: the scanner's, the evaluator's, another lane's piece.
  val keep = Module(new Arbiter(new Continuation(p), 3))
  keep.io.in(0) <> share.io.out
  keep.io.in(1) <> evaluate.io.continue
  val pieceRoom = free.orR && !takeFresh && !allocate
  keep.io.in(2).valid     := pieceIn.io.deq.valid && pieceRoom
  keep.io.in(2).bits.slot := slotNew
  keep.io.in(2).bits.work := pieceIn.io.deq.bits.work
  pieceIn.io.deq.ready    := keep.io.in(2).ready && pieceRoom
  takePiece               := pieceIn.io.deq.fire
  keep.io.out.ready := true.B
  when(keep.io.out.fire) { work.write(keep.io.out.bits.slot, keep.io.out.bits.work) }
  val keepLong = (keep.io.in(0).valid && share.io.long) || takePiece
  for ((queue, mine) <- Seq(continued -> !keepLong, longs -> keepLong)) {
    queue.io.enq.valid := keep.io.out.valid && mine
    queue.io.enq.bits  := keep.io.out.bits.slot
    assert(!(queue.io.enq.valid && !queue.io.enq.ready), "more continuations than slots")
  }

  val ended = Mux(evaluate.io.end.valid, bitOf(evaluate.io.end.bits), 0.U) |
    Mux(scan.io.end.valid, bitOf(scan.io.end.bits), 0.U) |
    Mux(stale, bitOf(issue.bits.data.slot), 0.U)
  free := (free | ended) & ~Mux(allocate || takePiece, bitOf(slotNew), 0.U)
  fresh := (fresh & ~Mux(keep.io.out.fire, bitOf(keep.io.out.bits.slot), 0.U)) |
    Mux(allocate, bitOf(slotNew), 0.U)
  assert((free & ended) === 0.U, "a slot ended twice")

  io.fault    := FaultReport.first(Seq(late, check.io.fault, evaluate.io.fault))
  io.empty    := free.andR && !pieceIn.io.deq.valid
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

object ScanLane {

  /** So many objects in flight are few. */
  val few = 4

  /** Objects no more lines apart lie one after the other; what is asked for then is so many lines further. */
  val near     = 4
  val distance = 4
}
