// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common._
import merapi.mark.{LimitCheck, LimitFault, LimitFill, LiveWords, PlacedGrey, RawReference}
import merapi.primitives.{Fifo, SureFifo, Word}

object Phase extends ChiselEnum {

  /** What the fetched line is: the object's klass word, a further word that sizes it, references, a line of the
    * shape extension.
    */
  val Header, Size, References, Extension = Value
}

class LaneEvents extends Bundle {
  val scanned     = Bool()
  val hit         = Bool()
  val missed      = Bool()
  val stale       = Bool()
  val fetched     = Bool()
  val slotsRead   = UInt(5.W)
  val slotsNull   = UInt(5.W)
  val stallGrey   = Bool()
  val stallMemory = Bool()
  val stallMark   = Bool()
  val stallShape  = Bool()
}

/** A piece with its object's region. */
class LanePiece(p: TracerParameters) extends Piece(p) {
  val region = UInt(p.regionBits.W)
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
  * any grey store is half full (`arraysWait`) no long array goes on, unless such arrays hold a quarter of its lane's slots:
  * what they reach would end in the spill area and be scanned long after the lines around it.
  *
  * An object holds one slot from the limit check to its end, which is known before its last references have left, or
  * until it stands before its evaluation with all that it needs (`settled`); per slot there is at most one line request,
  * one queue entry, one continuation: every queue is as deep as there are slots and is never full.
  *
  * Every stage is ready by its own registers (queues of two entries and more, or a spare place), so that nothing decides
  * through two of them in a cycle.
  *
  * Why it cannot deadlock: lines come back without waiting for anything; the stages behind them wait only for the
  * reference filter (whose banks never wait for a lane), the live table (memory only) and the reporter. The reporter
  * may wait for the host; at a pause the objects that need it are given back to the grey store, where they have
  * reserved room, so that the stages drain.
  *
  * At a pause greys and continuations stay where they are: both pass the limit check when they go on. When the host may
  * have replaced shapes, an instance that has still something to read begins again with its klass word (it is not counted
  * once more), and so does an object whose size is still to be read. An array goes on: it has its length.
  */
class ScanLane(p: TracerParameters) extends Module {
  private val slotBits = log2Ceil(p.slots)
  val io = IO(new Bundle {
    val powerUp    = Input(Bool())
    val config     = Input(new TraceConfig(p))
    val hold       = Input(Bool()) // take nothing up
    val stop       = Input(Bool()) // the control unit says so: give back what waits for the host
    val pausing    = Input(Bool()) // and what has not begun
    val arraysWait = Input(Bool()) // some lane has enough to do
    val invalidate = Input(Bool()) // pulse, when quiet
    val redefined  = Input(Bool()) // pulse, when quiet: klass words may mean other klasses
    val dropShapes = Input(Bool()) // pulse
    val fill       = Input(new LimitFill(p))
    val ask        = Decoupled(UInt(LimitFill.askBits(p).W)) // for limits
    val grey       = Flipped(Decoupled(new PlacedGrey(p)))
    val giveBack   = Valid(new Grey(p))
    val references = Vec(p.scanPorts, Decoupled(new RawReference(p)))
    val live       = Decoupled(new LiveWords(p))
    val seen       = Decoupled(UInt(64.W))
    val deferred   = Decoupled(new Deferred(p))
    val shareIn    = Flipped(Decoupled(new LanePiece(p)))
    val shareOut   = Decoupled(new LanePiece(p))
    val shapes     = new ShapePort(p)
    val lines      = new ReadPort(p)
    val looked     = Valid(new Looked(p))
    val few        = Output(Bool())                          // objects in flight, a cycle late
    val empty      = Output(Bool())                          // no object in any slot
    val allCounted = Output(Bool())         // earlyFlush: no live words come before something is taken up
    val quiet      = Output(Bool())         // nothing moves, nothing is outstanding
    val events     = Output(new LaneEvents)
    val fault      = Valid(new FaultReport) // its address counted from the heap's start
    val limitFault = Valid(new LimitFault(p))
  })
  val c = io.config

  class Held extends Bundle {
    val obj    = UInt(p.objectBits.W)
    val region = UInt(p.regionBits.W)
    val count  = Bool()
  }
  class Issue extends Bundle {
    val slot  = UInt(slotBits.W)
    val fresh = Bool() // its klass word's line is wanted
  }

  val free     = RegInit(((BigInt(1) << p.slots) - 1).U(p.slots.W))
  val begun    = RegInit(0.U(p.slots.W))
  val toForget = Wire(UInt(p.slots.W))
  val fresh    = begun & ~toForget
  val inFlight = RegInit(0.U(log2Ceil(p.slots + 1).W)) // slots that are not free
  val counted  = RegInit(0.U(p.slots.W))               // instances with more to read
  val sizing   = RegInit(0.U(p.slots.W))               // are to read their size, whose place follows from their shape
  val held     = Mem(p.slots, new Held)
  // What a slot remembers between two lines: the line to be fetched next (counted from the heap's first, and around),
  // what it is, which of its slots are the object's; where the object's size is; its shape's further blocks.
  class SizeAt extends Bundle {
    val word  = UInt(4.W)
    val klass = UInt(64.W)
  }
  val nextLine                        = Mem(p.slots, UInt(p.lineAddress.W))
  val phases                          = Mem(p.slots, Phase())
  val slotsAt                         = Mem(p.slots, UInt(ScanJob.slots(p).W))
  val sizeAt                          = Mem(p.slots, new SizeAt)
  val extensions                      = Mem(p.slots, new Extension(p))
  val continued                       = Module(new SureFifo(UInt(slotBits.W), p.slots))
  val longs                           = Module(new SureFifo(UInt(slotBits.W), p.slots)) // of arrays with lines left
  private def bitOf(slot: UInt): UInt = UIntToOH(slot, p.slots)

  // Issue: continuations first, they hold a slot already, then objects whose shape has come; long arrays last.
  val check    = Module(new LimitCheck(p, new Issue, ahead = false))
  val misses   = Module(new ShapeMisses(p))
  val again    = misses.io.again
  val newBit   = Word.lowest(free)
  val slotNew  = OHToUInt(newBit)
  val onFirst  = continued.io.deq.valid || again.valid
  val takeGrey = !onFirst && io.grey.valid && free.orR
  // Arrays that hold a quarter of the slots wait no longer: greys need them more than the store needs room. (That all
  // slots are in use says nothing: that is so whenever the memory is what binds.)
  val manyLong = RegNext(longs.io.count >= ((p.slots / 4) max 2).U, false.B)
  val takeLong = !onFirst && !takeGrey && longs.io.deq.valid && (!io.arraysWait || manyLong)
  val goOn     = onFirst || takeLong
  val slotOn   = Mux(continued.io.deq.valid, continued.io.deq.bits, Mux(again.valid, again.bits, longs.io.deq.bits))
  check.io.fill := io.fill
  io.ask <> check.io.ask
  check.io.in.valid := !io.hold && (goOn || takeGrey)
  val newHeld = Wire(new Held) // a grey, else a piece of another lane's array
  val oldHeld = held.read(slotOn)
  check.io.in.bits.obj        := Mux(goOn, oldHeld.obj, io.grey.bits.obj)
  check.io.region             := Mux(goOn, oldHeld.region, io.grey.bits.region)
  check.io.in.bits.data.slot  := Mux(goOn, slotOn, slotNew)
  check.io.in.bits.data.fresh := !goOn || fresh(slotOn)
  continued.io.deq.ready      := !io.hold && check.io.in.ready
  again.ready                 := !io.hold && check.io.in.ready && !continued.io.deq.valid
  longs.io.deq.ready          := !io.hold && check.io.in.ready && takeLong
  io.grey.ready               := !io.hold && check.io.in.ready && !onFirst && free.orR
  val allocate = io.grey.fire

  val issue    = check.io.out
  val issueObj = issue.bits.obj
  val lastObj  = RegNext((c.heapBytes - 16.U) >> 3) // an object has two words at least
  val tooLate  = issueObj > lastObj
  val go       = issue.bits.below && !tooLate
  val fetch    = Module(new LineFetch(p))
  fetch.io.powerUp    := io.powerUp
  fetch.io.invalidate := io.invalidate
  fetch.io.rest       := !check.io.busy
  io.lines <> fetch.io.read
  fetch.io.request.valid     := issue.valid && go
  fetch.io.request.bits.slot := issue.bits.data.slot
  val headerLine = (issueObj +& 1.U) >> 3
  fetch.io.request.bits.line := c.heap +
    Mux(issue.bits.data.fresh, headerLine, nextLine.read(issue.bits.data.slot))
  issue.ready := fetch.io.request.ready // whatever comes out: what it is is known late
  val stale     = RegNext(issue.fire && !go, false.B)
  val staleSlot = RegNext(issue.bits.data.slot)
  // A piece of another lane's array takes a slot when nothing else does.
  val pieceIn   = Module(new Queue(new LanePiece(p), 1))
  val takeFresh = issue.fire && issue.bits.data.fresh
  val takePiece = WireDefault(false.B)
  newHeld.obj    := Mux(io.grey.valid, io.grey.bits.obj, pieceIn.io.deq.bits.obj)
  newHeld.region := Mux(io.grey.valid, io.grey.bits.region, pieceIn.io.deq.bits.region)
  newHeld.count  := io.grey.valid && io.grey.bits.count
  when(allocate || takePiece) { held.write(slotNew, newHeld) }
  val late              = Wire(Valid(new FaultReport))
  private val isTooLate = issue.fire && issue.bits.below && tooLate
  late.valid := RegNext(isTooLate, false.B)
  late.bits  := FaultReport(Contract.Fault.BadObject, Cat(RegEnable(issueObj, isTooLate), 0.U(3.W)), 0.U)

  // Lines with their klass words. A place is kept for a line that is found here while it is looked at.
  private val places = p.lineQueue
  class Arrived extends Bundle {
    val slot  = UInt(slotBits.W)
    val phase = Phase()
    val word  = UInt(4.W)
    val klass = UInt(64.W)
    val data  = UInt(p.lineBits.W)
  }
  val arrived = Module(new Fifo(new Arrived, places))
  // With eight lanes a line stands in a register before its klass word is chosen, and a place is kept for that as well.
  private val comes    = if (p.foundRegister) fetch.io.line.valid else fetch.io.line.fire
  private val onItsWay = if (p.wide) RegNext(comes, false.B) else false.B
  private val come     = if (p.wide) RegNext(fetch.io.line.bits) else fetch.io.line.bits
  // Places of looks that may find their lines: one that begins, one that is judged, one whose line stands in a register.
  private val kept = 2 + (if (p.wide) 1 else 0) + (if (p.foundRegister) 1 else 0)
  val comeSize     = sizeAt.read(come.slot)
  // The object's second word, by its first. What chooses is decoded first: it is known late.
  val comeFresh = fresh(come.slot)
  val comePlace = UIntToOH(held.read(come.slot).obj(2, 0)) & Fill(8, comeFresh)
  private def comeWord(from: Int, to: Int): UInt =
    Mux1H((0 until 8).map(i => comePlace(i) -> come.data(64 * ((i + 1) % 8) + to, 64 * ((i + 1) % 8) + from)))
  fetch.io.room := arrived.io.count <= (places - kept).U
  fetch.io.line.ready := (if (p.foundRegister) fetch.io.room
                          else if (p.wide) arrived.io.count <= (places - 2).U
                          else arrived.io.enq.ready)
  arrived.io.enq.valid := (if (p.wide) onItsWay else fetch.io.line.valid)
  if (p.foundRegister) assert(arrived.io.enq.ready || !arrived.io.enq.valid, "a line without a place")
  arrived.io.enq.bits.slot  := come.slot
  arrived.io.enq.bits.data  := come.data
  arrived.io.enq.bits.word  := comeSize.word
  arrived.io.enq.bits.phase := Mux(comeFresh, Phase.Header, phases.read(come.slot))
  arrived.io.enq.bits.klass := Cat(comeWord(32, 63) & Fill(32, c.wideKlass), comeWord(0, 31)) |
    (comeSize.klass & Fill(64, !comeFresh))

  // The line in hand, beside its shape. It never stays: it leaves for the evaluator, or its object waits for the shape
  // and comes again, line and all.
  val evaluate = Module(new ObjectEvaluator(p))
  val scan     = Module(new LineScanner(p))
  val walk     = Module(new SpanWalk(p))
  val cache    = Module(new ShapeCache(p))
  val a        = Reg(new Arrived)
  val aHeld    = Reg(new Held)
  val aValid   = RegInit(false.B)
  val inHeader = a.phase === Phase.Header
  val aLooks   = RegInit(false.B) // for its shape
  val aKnows   = RegInit(false.B) // without
  val e        = evaluate.io.in
  arrived.io.deq.ready := evaluate.io.room
  aValid               := arrived.io.deq.fire
  private val looks = arrived.io.deq.bits.phase.isOneOf(Phase.Header, Phase.Size)
  aLooks := arrived.io.deq.fire && looks
  aKnows := arrived.io.deq.fire && !looks
  a      := arrived.io.deq.bits
  val arrivedHeld = held.read(arrived.io.deq.bits.slot)
  aHeld := arrivedHeld
  // An array's length follows the klass word; another size is where it was said to be.
  val lengthAt = Cat(arrivedHeld.obj(2, 0), 0.U(1.W)) + Mux(c.wideKlass, 4.U(4.W), 3.U(4.W))
  val extraAt  = RegNext(Mux(arrived.io.deq.bits.phase === Phase.Header, lengthAt, arrived.io.deq.bits.word))
  evaluate.io.offered := aValid
  e.valid             := aKnows || (aLooks && cache.io.hit)
  cache.io.powerUp    := io.powerUp
  cache.io.next       := arrived.io.deq.bits.klass
  cache.io.klass      := a.klass
  cache.io.accept     := aLooks && cache.io.hit
  cache.io.invalidate := io.invalidate || io.dropShapes
  cache.io.answer     := io.shapes.answer
  val missed          = Wire(Valid(new ShapeMiss(p)))
  private val misses1 = aLooks && !cache.io.hit
  missed.valid           := RegNext(misses1, false.B)
  missed.bits.slot       := RegEnable(a.slot, misses1)
  missed.bits.klass      := RegEnable(a.klass, misses1)
  missed.bits.again      := RegEnable(cache.io.torn, misses1)
  cache.io.miss          := missed
  misses.io.miss         := missed
  misses.io.pausing      := io.pausing
  misses.io.guard        := cache.io.guard
  misses.io.answer.valid := io.shapes.answer.valid
  misses.io.answer.bits  := io.shapes.answer.bits.hash
  io.shapes.klass <> misses.io.ask
  cache.io.gone(0).valid := RegNext(cache.io.accept, false.B)
  cache.io.gone(0).bits  := RegNext(a.slot)
  cache.io.gone(1).valid := stale
  cache.io.gone(1).bits  := staleSlot

  // Reported when the object is evaluated for good, not when it goes for its size first.
  val kindLate  = RegNext(cache.io.shape.kind)
  val arrayLate = kindLate === Contract.ShapeKind.ObjArray.U || kindLate === Contract.ShapeKind.PrimArray.U
  val sizesLater = RegNext(inHeader) &&
    (kindLate === Contract.ShapeKind.Mirror.U || arrayLate && !RegNext(e.bits.extraKnown))
  cache.io.setSeen      := RegNext(cache.io.found) && !sizesLater
  cache.io.forgetSeen   := RegNext(evaluate.io.unsaid, false.B)
  e.bits.slot           := a.slot
  e.bits.data           := a.data
  e.bits.phase          := a.phase
  e.bits.obj            := aHeld.obj
  e.bits.count          := aHeld.count && !RegNext(counted(arrived.io.deq.bits.slot))
  e.bits.region         := aHeld.region
  e.bits.klass          := a.klass
  e.bits.found          := cache.io.found
  e.bits.shape          := cache.io.shape
  e.bits.report         := cache.io.found && !cache.io.seen && !cache.io.shape.quiet
  e.bits.extra          := VecInit((0 until 16).map(i => a.data(32 * i + 31, 32 * i)))(extraAt)
  e.bits.extraSome      := e.bits.extra =/= 0.U
  e.bits.filled         := ScanJob.elements(p, e.bits.extra, c.wideOops)
  e.bits.notNull        := ScanJob.notNull(p, a.data, c.wideOops)
  e.bits.extraKnown     := !inHeader || !c.wideKlass || aHeld.obj(2, 0) =/= 6.U // else in the next line
  evaluate.io.slots     := slotsAt.read(evaluate.io.slot)
  evaluate.io.line      := nextLine.read(evaluate.io.slot)
  evaluate.io.extension := extensions.read(evaluate.io.slot)
  when(evaluate.io.extend.valid) { extensions.write(evaluate.io.slot, evaluate.io.extend.bits) }

  evaluate.io.config  := c
  evaluate.io.hold    := io.stop
  evaluate.io.pausing := io.pausing
  evaluate.io.resumed := io.invalidate
  io.live <> evaluate.io.live
  io.seen <> evaluate.io.seen
  io.deferred <> evaluate.io.deferred
  io.giveBack    := evaluate.io.giveBack
  scan.io.config := c
  scan.io.in <> evaluate.io.scan
  io.references <> scan.io.references

  walk.io.config := c

  // Few objects in flight that lie one after the other (a list): the memory's latency would be all there is, so lines
  // ahead are asked for on suspicion.
  val few = RegNext(inFlight <= TracerParameters.few.U, false.B)
  io.few    := few
  io.looked := evaluate.io.looked
  val isNew    = RegNext(takeFresh, false.B)
  val newLine  = RegEnable(headerLine.pad(p.lineAddress)(p.lineAddress - 1, 0), takeFresh)
  val lastLine = RegEnable(newLine, isNew)
  val move     = LineMove(newLine, lastLine, ScanLane.near)
  val distance = Mux(move.back, (-ScanLane.distance).S, ScanLane.distance.S)
  val guess    = RegEnable((newLine.asSInt + distance).asUInt, isNew)
  val guesses  = RegNext(isNew && few && (move.up || move.down), false.B)
  val inHeap   = guess < (c.heapBytes >> p.lineLog2)
  fetch.io.prefetch.valid := walk.io.prefetch.valid || (guesses && inHeap)
  fetch.io.prefetch.bits  := c.heap + Mux(walk.io.prefetch.valid, walk.io.prefetch.bits, guess)

  io.shareOut.valid       := walk.io.piece.valid
  io.shareOut.bits.region := held.read(walk.io.next.bits.slot).region
  io.shareOut.bits.obj    := walk.io.piece.bits.obj
  io.shareOut.bits.span   := walk.io.piece.bits.span
  walk.io.piece.ready     := io.shareOut.ready
  // Pieces take one of a few slots (`slotNew` is the first that is free). A lane that waits for its first lines would else
  // take one piece after the other, and arrays would hold most of its slots for as long as they last.
  val pieceRoom = free((ScanLane.pieces min p.slots) - 1, 0).orR
  val idle =
    RegNext(!io.grey.valid && !continued.io.deq.valid && !longs.io.deq.valid && !io.arraysWait && pieceRoom, false.B)
  pieceIn.io.enq.valid := io.shareIn.valid && idle && !io.hold
  pieceIn.io.enq.bits  := io.shareIn.bits
  io.shareIn.ready     := pieceIn.io.enq.ready && idle && !io.hold

  // Taken when the evaluator has nothing for the walk, and no grey wants the slot.
  val piece = pieceIn.io.deq.bits
  takePiece            := pieceIn.io.deq.valid && pieceRoom && !io.grey.valid && evaluate.io.quiet && walk.io.in.ready
  pieceIn.io.deq.ready := takePiece
  walk.io.in <> evaluate.io.walk
  when(evaluate.io.quiet) {
    walk.io.in.valid       := takePiece
    walk.io.in.bits.slot   := slotNew
    walk.io.in.bits.obj    := piece.obj
    walk.io.in.bits.bare   := true.B
    walk.io.in.bits.stored := false.B
    walk.io.in.bits.placed := true.B
    walk.io.in.bits.raw    := false.B
    walk.io.in.bits.again  := false.B
    walk.io.in.bits.count  := 1.U
    walk.io.in.bits.more   := false.B
    walk.io.in.bits.first  := piece.span
  }

  // One next line a cycle: the walk's, which never waits, or the evaluator's.
  val next   = walk.io.next
  val detour = evaluate.io.continue
  detour.ready := !next.valid
  val keeps    = next.valid || detour.valid
  val keepSlot = Mux(next.valid, next.bits.slot, detour.bits.slot)
  when(next.valid || (detour.valid && !detour.bits.same)) {
    val further = Mux(next.bits.extend, extensions.read(next.bits.slot).position >> 1, next.bits.line)
    nextLine.write(keepSlot, Mux(next.valid, further, detour.bits.line))
    phases.write(
      keepSlot,
      Mux(next.valid, Mux(next.bits.extend, Phase.Extension, Phase.References), detour.bits.phase)
    )
  }
  when(next.valid) { slotsAt.write(next.bits.slot, next.bits.slots) }
  when(detour.valid) { // of one that is put back it is not asked for
    val at = Wire(new SizeAt)
    at.word  := detour.bits.word
    at.klass := detour.bits.klass
    sizeAt.write(detour.bits.slot, at)
  }
  val keepLong = next.valid && next.bits.long
  for ((queue, mine) <- Seq(continued -> !keepLong, longs -> keepLong)) {
    queue.io.put.valid := keeps && mine
    queue.io.put.bits  := keepSlot
  }

  val sized = RegNext(evaluate.io.end.valid && !evaluate.io.slotless, false.B)
  val ended = Mux(sized, bitOf(RegNext(evaluate.io.end.bits)), 0.U) |
    Mux(walk.io.end.valid, bitOf(walk.io.end.bits), 0.U) |
    Mux(evaluate.io.settled.valid, bitOf(evaluate.io.settled.bits), 0.U) |
    Mux(stale, bitOf(staleSlot), 0.U)
  free     := (free | ended) & ~Mux(allocate || takePiece, newBit, 0.U)
  inFlight := inFlight + (allocate || takePiece) - (sized +& walk.io.end.valid) - (evaluate.io.settled.valid +& stale)
  assert(inFlight === PopCount(~free), "slots in use that are not counted")
  // Which slots have a next line is known late in the cycle: what that changes here is done in the next.
  private val detoured    = RegNext(detour.fire, false.B)
  private val detourOf    = bitOf(RegNext(detour.bits.slot))
  private val detouredTo  = RegNext(detour.bits.phase)
  private val elsewhere   = detoured && !RegNext(detour.bits.same)
  private val toSize      = Mux(elsewhere && detouredTo === Phase.Size, detourOf, 0.U)
  private val toExtension = Mux(elsewhere && detouredTo === Phase.Extension, detourOf, 0.U)
  private val nextOf      = bitOf(next.bits.slot)
  private val taken       = Mux(allocate || takePiece, newBit, 0.U)
  toForget := Mux(RegNext(next.valid, false.B), bitOf(RegNext(next.bits.slot)), 0.U) | Mux(detoured, detourOf, 0.U)
  begun := fresh |
    Mux(allocate, newBit, 0.U) | Mux(io.redefined, (counted | sizing) & ~free, 0.U)
  // An array never begins again, nor does one that began as an instance: what is read next of it is none's.
  counted := (counted & ~taken & ~Mux(next.valid && !next.bits.again, nextOf, 0.U)) |
    Mux(next.valid && next.bits.again, nextOf, 0.U) | toExtension
  sizing := (sizing & ~taken & ~Mux(next.valid, nextOf, 0.U)) | toSize
  assert((free & ended) === 0.U, "a slot ended twice")
  assert(!io.redefined || io.quiet, "objects begin again while their lines are on the way")

  val badBlock = Wire(Valid(new FaultReport))
  badBlock.valid := walk.io.bad
  badBlock.bits  := FaultReport(Contract.Fault.BadShape, Cat(walk.io.badObj, 0.U(3.W)), walk.io.badSize)
  val wrong = FaultReport.first(Seq(late, evaluate.io.fault, badBlock))
  io.fault.valid := RegNext(wrong.valid, false.B)
  io.fault.bits  := RegEnable(wrong.bits, wrong.valid)
  io.limitFault  := check.io.fault
  io.empty       := free.andR && !pieceIn.io.deq.valid && evaluate.io.quiet && !scan.io.busy
  private val inHand = if (p.wide) aValid || onItsWay else aValid
  // All but the references that leave.
  private def othersRest = !check.io.busy && fetch.io.quiet && !isNew && !guesses && !arrived.io.deq.valid && !inHand &&
    !misses.io.busy && !stale && !(pieceIn.io.deq.valid && pieceRoom && !io.grey.valid) && evaluate.io.quiet &&
    walk.io.quiet && !walk.io.prefetch.valid
  io.allCounted       := (if (p.earlyFlush) othersRest else DontCare)
  io.quiet            := (if (p.earlyFlush) io.allCounted else othersRest) && !scan.io.busy
  io.events.scanned   := evaluate.io.scanned
  io.events.hit       := RegNext(cache.io.accept && cache.io.found, false.B)
  io.events.missed    := io.shapes.klass.fire
  io.events.stale     := stale
  io.events.fetched   := fetch.io.fetched
  io.events.slotsRead := Word.count(evaluate.io.slotsRead)
  io.events.slotsNull := Word.count(evaluate.io.slotsNull)
  io.events.stallGrey := free.andR && evaluate.io.quiet && !io.grey.valid
  io.events.stallMark := io.references.map(r => r.valid && !r.ready).reduce(_ || _)
  // Nothing in hand, and objects that wait.
  val idles = RegNext(!free.andR && !arrived.io.deq.valid && !aValid && !scan.io.busy, false.B)
  io.events.stallShape  := idles && misses.io.busy
  io.events.stallMemory := idles && !misses.io.busy
}

object ScanLane {

  /** Pieces of other lanes' arrays that a lane has at most. */
  val pieces = 4

  /** Objects no more lines apart lie one after the other; what is asked for then is so many lines further. */
  val near     = 4
  val distance = 4
}
