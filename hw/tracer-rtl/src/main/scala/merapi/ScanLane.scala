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
  val line  = UInt(p.lineAddress.W)       // to be fetched next; counted from the heap's first, and around
  val word  = UInt(4.W)                   // Size: which 4-byte word of the line
  val klass = UInt(64.W)                  // Size
  val slots = UInt(ScanJob.slots(p).W)    // References: which of the line's slots are the object's
  val spans = Vec(4, new Span(p))         // References
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
  *   greys ────┐  limit    fetch     klass   shape   size, live words,   references
  *   continued ┴─ check ── line(s) ─ word ── cache ─ seen, deferred ──┬─ of the line ──> filter
  *       ^                                                            │
  *       └──────────────────────── slot's work ─────────── next line ─┘
  * }}}
  *
  * What goes on after a line comes before new greys, except long arrays: those come last, so that what an array
  * reaches is scanned before more of it is read. A lane without anything to do takes the second half of an array that
  * the lane before it is at (`shareIn`); so one large array, from which everything hangs, keeps all lanes busy. While
  * any grey store is half full (`arraysWait`) no array goes on that leaves its lane a free slot: what arrays reach would
  * end in the spill area and be scanned long after the lines around it.
  *
  * An object holds one slot from the limit check to its end, which is known before its last references have left; per
  * slot there is at most one line request, one queue entry, one continuation: every queue is as deep as there are slots
  * and is never full.
  *
  * Every stage is ready by its own registers (queues of two entries and more, or a spare place), so that nothing decides
  * through two of them in a cycle. Only the shape cache holds what is before it, the line in hand.
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
    val powerUp    = Input(Bool())
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
  // Parts of it that other stages read.
  class Fetched extends Bundle {
    val phase = Phase()
    val word  = UInt(4.W)
    val klass = UInt(64.W)
  }
  val nextLine = Mem(p.slots, UInt(p.lineAddress.W))
  val fetched  = Mem(p.slots, new Fetched)
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
  val lastObj  = RegNext((c.heapBytes - 16.U) >> 3) // an object has two words at least
  val tooLate  = issueObj > lastObj
  val go       = issue.bits.below && !tooLate
  val fetch    = Module(new LineFetch(p))
  fetch.io.powerUp           := io.powerUp
  fetch.io.invalidate        := io.invalidate
  fetch.io.rest              := !check.io.busy
  io.lines <> fetch.io.read
  fetch.io.request.valid     := issue.valid && go
  fetch.io.request.bits.slot := issue.bits.data.slot
  val headerLine = (issueObj +& 1.U) >> 3
  fetch.io.request.bits.line := c.heap +
    Mux(issue.bits.data.fresh, headerLine, nextLine.read(issue.bits.data.slot))
  issue.ready := fetch.io.request.ready // whatever comes out: what it is is known late
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
  late.valid := RegNext(issue.fire && issue.bits.below && tooLate, false.B)
  late.bits  := FaultReport(Contract.Fault.BadObject, c.heapBase + Cat(RegNext(issueObj), 0.U(3.W)), 0.U)

  // Lines with their klass words. A place is kept for a line that is found here while it is looked at.
  private val places = 4
  class Arrived extends Bundle {
    val slot  = UInt(slotBits.W)
    val data  = UInt(p.lineBits.W)
    val phase = Phase()
    val word  = UInt(4.W)
    val klass = UInt(64.W)
  }
  private def klassWordAt(obj: UInt): UInt = (obj + 1.U)(2, 0)
  val arrived   = Module(new Queue(new Arrived, places))
  val come      = fetch.io.line.bits
  val comeKept  = fetched.read(come.slot)
  val comeWords = VecInit((0 until 8).map(i => come.data(64 * i + 63, 64 * i)))
  val comeWord  = comeWords(klassWordAt(held.read(come.slot).obj))
  val comeFresh = fresh(come.slot)
  fetch.io.room      := arrived.io.count <= (places - 2).U
  fetch.io.line.ready      := arrived.io.enq.ready
  arrived.io.enq.valid     := fetch.io.line.valid
  arrived.io.enq.bits.slot := come.slot
  arrived.io.enq.bits.data := come.data
  arrived.io.enq.bits.word := comeKept.word
  arrived.io.enq.bits.phase := Mux(comeFresh, Phase.Header, comeKept.phase)
  arrived.io.enq.bits.klass := Mux(
    comeFresh,
    Mux(c.wideKlass, comeWord, comeWord(31, 0).pad(64)),
    comeKept.klass
  )

  // The line in hand, beside its shape.
  val evaluate = Module(new ObjectEvaluator(p))
  val scan     = Module(new LineScanner(p))
  val walk     = Module(new SpanWalk(p))
  val cache    = Module(new ShapeCache(p))
  val a        = Reg(new Arrived)
  val aHeld    = Reg(new Held)
  val aValid   = RegInit(false.B)
  val inHeader = a.phase === Phase.Header
  val needs    = inHeader || a.phase === Phase.Size
  val e        = evaluate.io.in
  val aLeaves  = e.fire
  arrived.io.deq.ready := !aValid || aLeaves
  aValid := arrived.io.deq.valid || (aValid && !aLeaves)
  when(arrived.io.deq.fire) {
    a     := arrived.io.deq.bits
    aHeld := held.read(arrived.io.deq.bits.slot)
  }
  cache.io.powerUp     := io.powerUp
  cache.io.next        := Mux(aValid && !aLeaves, a.klass, arrived.io.deq.bits.klass)
  cache.io.klass.valid := aValid && needs
  cache.io.klass.bits  := a.klass
  cache.io.invalidate  := io.invalidate || io.dropShapes
  io.shapes <> cache.io.walker

  e.valid := aValid && (!needs || cache.io.done)
  cache.io.accept := e.fire && needs
  val wordAt = klassWordAt(aHeld.obj)
  val words  = VecInit((0 until 8).map(i => a.data(64 * i + 63, 64 * i)))
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
  e.bits.klass  := a.klass
  e.bits.found  := cache.io.found
  e.bits.shape  := cache.io.shape
  e.bits.report := cache.io.found && !cache.io.seen && !cache.io.shape.quiet
  e.bits.extra := Mux(
    inHeader,
    Mux(c.wideKlass, words((wordAt + 1.U)(2, 0))(31, 0), words(wordAt)(63, 32)),
    VecInit((0 until 16).map(i => a.data(32 * i + 31, 32 * i)))(a.word)
  )
  e.bits.extraSome  := e.bits.extra =/= 0.U
  e.bits.notNull    := ScanJob.notNull(p, a.data, c.wideOops)
  e.bits.extraKnown := !inHeader || !c.wideKlass || wordAt =/= 7.U
  evaluate.io.work := work.read(evaluate.io.slot)

  evaluate.io.config := c
  evaluate.io.hold   := io.hold
  io.live <> evaluate.io.live
  io.seen <> evaluate.io.seen
  io.deferred <> evaluate.io.deferred
  io.giveBack <> evaluate.io.giveBack
  scan.io.config := c
  scan.io.in <> evaluate.io.scan
  io.references <> scan.io.references

  walk.io.config := c
  walk.io.in     := evaluate.io.walk

  // Few objects in flight that lie one after the other (a list): the memory's latency would be all there is, so lines
  // ahead are asked for on suspicion.
  val few      = RegNext(PopCount(free) >= (p.slots - ScanLane.few).U, false.B)
  val isNew    = RegNext(takeFresh, false.B)
  val newLine  = RegEnable(headerLine.pad(p.lineAddress)(p.lineAddress - 1, 0), takeFresh)
  val lastLine = RegEnable(newLine, isNew)
  val ahead    = newLine - lastLine
  val behind   = lastLine - newLine
  val up       = ahead =/= 0.U && ahead <= ScanLane.near.U
  val down     = behind =/= 0.U && behind <= ScanLane.near.U
  val guess    = RegNext(Mux(up, newLine + ScanLane.distance.U, newLine - ScanLane.distance.U))
  val guesses  = RegNext(isNew && few && (up || down), false.B)
  val inHeap   = guess < (c.heapBytes >> p.lineLog2)
  fetch.io.prefetch.valid := walk.io.prefetch.valid || (guesses && inHeap)
  fetch.io.prefetch.bits  := c.heap + Mux(walk.io.prefetch.valid, walk.io.prefetch.bits, guess)

  val share = Module(new ArrayShare(p))
  share.io.in  := walk.io.continue
  share.io.obj := walk.io.obj
  io.shareOut <> share.io.piece
  val idle = RegNext(!io.grey.valid && !continued.io.deq.valid && !longs.io.deq.valid && !io.arraysWait, false.B)
  pieceIn.io.enq.valid := io.shareIn.valid && idle && !io.hold
  pieceIn.io.enq.bits  := io.shareIn.bits
  io.shareIn.ready     := pieceIn.io.enq.ready && idle && !io.hold

  // One continuation a cycle: the walk's, which never waits, the evaluator's, another lane's piece.
  val keep = Module(new Arbiter(new Continuation(p), 3))
  keep.io.in(0).valid := share.io.out.valid
  keep.io.in(0).bits  := share.io.out.bits
  keep.io.in(1) <> evaluate.io.continue
  val pieceRoom = free.orR && !takeFresh && !allocate
  keep.io.in(2).valid     := pieceIn.io.deq.valid && pieceRoom
  keep.io.in(2).bits.slot := slotNew
  keep.io.in(2).bits.work := pieceIn.io.deq.bits.work
  pieceIn.io.deq.ready    := keep.io.in(2).ready && pieceRoom
  takePiece               := pieceIn.io.deq.fire
  keep.io.out.ready := true.B
  val kept = keep.io.out.bits
  when(keep.io.out.fire) {
    work.write(kept.slot, kept.work)
    nextLine.write(kept.slot, kept.work.line)
    val f = Wire(new Fetched)
    f.phase := kept.work.phase
    f.word  := kept.work.word
    f.klass := kept.work.klass
    fetched.write(kept.slot, f)
  }
  val keepLong = (keep.io.in(0).valid && share.io.long) || takePiece
  for ((queue, mine) <- Seq(continued -> !keepLong, longs -> keepLong)) {
    queue.io.enq.valid := keep.io.out.valid && mine
    queue.io.enq.bits  := keep.io.out.bits.slot
    assert(!(queue.io.enq.valid && !queue.io.enq.ready), "more continuations than slots")
  }

  val ended = Mux(evaluate.io.end.valid, bitOf(evaluate.io.end.bits), 0.U) |
    Mux(walk.io.end.valid, bitOf(walk.io.end.bits), 0.U) |
    Mux(stale, bitOf(issue.bits.data.slot), 0.U)
  free := (free | ended) & ~Mux(allocate || takePiece, bitOf(slotNew), 0.U)
  fresh := (fresh & ~Mux(keep.io.out.fire, bitOf(keep.io.out.bits.slot), 0.U)) |
    Mux(allocate, bitOf(slotNew), 0.U)
  assert((free & ended) === 0.U, "a slot ended twice")

  io.fault    := FaultReport.first(Seq(late, check.io.fault, evaluate.io.fault))
  io.empty    := free.andR && !pieceIn.io.deq.valid && !scan.io.busy
  io.quiet := !check.io.busy && fetch.io.quiet && !isNew && !guesses && !arrived.io.deq.valid && !aValid &&
    evaluate.io.quiet && walk.io.quiet && !walk.io.prefetch.valid && !scan.io.busy
  io.events.scanned     := evaluate.io.scanned
  io.events.hit         := cache.io.accept && cache.io.found
  io.events.missed      := cache.io.missed
  io.events.stale       := stale
  io.events.fetched     := fetch.io.fetched
  io.events.slotsRead   := PopCount(evaluate.io.slotsRead)
  io.events.slotsNull   := PopCount(evaluate.io.slotsNull)
  io.events.stallGrey   := free.andR && !io.grey.valid
  io.events.stallMark   := io.references.valid && !io.references.ready
  io.events.stallShape  := aValid && needs && !cache.io.done
  io.events.stallMemory := !free.andR && !arrived.io.deq.valid && !aValid && !scan.io.busy
}

object ScanLane {

  /** So many objects in flight are few. */
  val few = 4

  /** Objects no more lines apart lie one after the other; what is asked for then is so many lines further. */
  val near     = 4
  val distance = 4
}
