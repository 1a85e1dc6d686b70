// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.{Contract, Deferred, FaultReport, Grey, TraceConfig, TracerParameters}
import merapi.mark.LiveWords

/** Where further blocks of a shape are: position in half lines of the heap (four blocks), and how many are left. */
class Extension(p: TracerParameters) extends Bundle {
  val position = UInt((p.lineAddress + 1).W)
  val left     = UInt(ShapeLimits.bits.W)
  val size     = UInt(ShapeLimits.bits.W) // the object's words
}

/** An object whose size is in another line, or whose blocks are in the shape extension: its next line is that one. Or
  * (`same`) a line of references that is put back: it is the next line once more, and the rest says nothing.
  */
class Detour(p: TracerParameters) extends Bundle {
  val slot  = UInt(log2Ceil(p.slots).W)
  val same  = Bool()
  val phase = Phase()
  val line  = UInt(p.lineAddress.W)
  val word  = UInt(4.W)  // Size: which 4-byte word of the line
  val klass = UInt(64.W) // Size
}

/** A line with its object and, when it is one that sizes the object, its shape. */
class EvaluateJob(p: TracerParameters) extends Bundle {
  val slot       = UInt(log2Ceil(p.slots).W)
  val phase      = Phase()
  val obj        = UInt(p.objectBits.W)
  val region     = UInt(p.regionBits.W)     // of the object
  val count      = Bool()
  val found      = Bool()
  val report     = Bool()
  val extra      = UInt(32.W)               // array length or mirror size
  val extraSome  = Bool()
  val filled     = UInt(ScanJob.slots(p).W) // slots that an array of this length would fill from a line's begin
  val extraKnown = Bool()
  val notNull    = UInt(ScanJob.slots(p).W) // slots of the line
  val shape      = new Shape(p)
  val klass      = UInt(64.W)
  val data       = UInt(p.lineBits.W)
}

/** Sizes an object by its shape, counts it, reports it, and says which references it has.
  *
  * Live words, SHAPE_SEEN and DEFER leave independently, each once: `counted`, `reported` and `sent` remember which
  * have left while others wait.
  *
  * Held, objects are given back as greys when their reports find no room (what has left does not leave again, except
  * SHAPE_SEEN and DEFER, which may repeat). When it is for a pause, those that come from then on are, and further lines
  * of references are put back: they are their objects' next lines after the pause. The acknowledgement waits for what a
  * line marks to be fetched, marked and written. But the first line since the last pause is evaluated: a host that paused
  * as soon as it had resumed could else keep the trace where it is. (A lane is also held while the control unit writes
  * its page or sweeps: that is over soon, and lines would be fetched twice.)
  *
  * An object that is given back before its klass was reported may be gone after a pause. Others of that klass have looked
  * their shape up meanwhile and count on that report: those that are here, or come before the lane's shape cache has
  * forgotten that the klass was seen (`doubted`), are given back as well.
  *
  * An object that cannot be right is judged a cycle later, beside its way: its fault comes long before anything that
  * follows from it could reach the memory.
  */
class ObjectEvaluator(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config    = Input(new TraceConfig(p))
    val hold      = Input(Bool())                     // give back what waits for the host
    val pausing   = Input(Bool())                     // and what has not begun
    val resumed   = Input(Bool())                     // pulse: a pause is over
    val in        = Flipped(Valid(new EvaluateJob(p)))
    val offered   = Input(Bool())                     // `in` may come: known early, unlike whether it does
    val room      = Output(Bool())                    // for two more: one may be on its way
    val slot      = Output(UInt(log2Ceil(p.slots).W)) // whose what follows is
    val slots     = Input(UInt(ScanJob.slots(p).W))   // References: which of the line's slots are the object's
    val line      = Input(UInt(p.lineAddress.W))      // References: the line
    val extension = Input(new Extension(p))           // Extension
    val extend    = Valid(new Extension(p))           // how it is from now on
    val live      = Decoupled(new LiveWords(p))
    val seen      = Decoupled(UInt(64.W))
    val deferred  = Decoupled(new Deferred(p))
    val giveBack  = Valid(new Grey(p))
    val unsaid    = Output(Bool())                    // SHAPE_SEEN of what is given back has not left
    val scan      = Decoupled(new ScanJob(p))
    val walk      = Decoupled(new WalkJob(p))
    val continue  = Decoupled(new Detour(p))
    val settled   = Valid(UInt(log2Ceil(p.slots).W))  // a cycle after it came: needs its slot no more
    val end       = Valid(UInt(log2Ceil(p.slots).W))
    val slotless  = Output(Bool())                    // of `end`: it was settled
    val scanned   = Output(Bool())
    val looked    = Valid(new Looked(p))              // an instance that has been sized, a cycle late
    val slotsRead = Output(UInt(ScanJob.slots(p).W))  // a cycle late
    val slotsNull = Output(UInt(ScanJob.slots(p).W))
    val quiet     = Output(Bool())
    val fault     = Valid(new FaultReport)            // counted from the heap's start
  })
  import Contract.ShapeKind
  // A queue. Its next place is written whether or not the line in hand comes: that is known late.
  private val depth = p.lineQueue
  val stage         = Mem(depth, new EvaluateJob(p))
  private val ptr   = log2Ceil(depth)
  val enqAt         = RegInit(0.U((ptr + 1).W))
  val deqAt         = RegInit(0.U((ptr + 1).W))
  val count         = enqAt - deqAt
  val c             = io.config
  val x             = stage.read(deqAt(ptr - 1, 0))
  val valid         = enqAt =/= deqAt
  val done          = WireDefault(false.B)
  when(io.offered) { stage.write(enqAt(ptr - 1, 0), io.in.bits) }
  when(io.in.valid) { enqAt := enqAt + 1.U }
  when(done) { deqAt := deqAt + 1.U }
  assert(io.offered || !io.in.valid, "a line that was not offered")
  assert(!(io.offered && count === depth.U), "a line offered without a place")
  io.room  := count <= (depth - 2).U
  io.slot  := x.slot
  io.quiet := !valid

  val sizing   = x.phase === Phase.Header || x.phase === Phase.Size
  val kind     = x.shape.kind
  val instance = x.found && kind === ShapeKind.Instance.U
  val objArray = x.found && kind === ShapeKind.ObjArray.U
  val array    = objArray || (x.found && kind === ShapeKind.PrimArray.U)
  val mirror   = x.found && kind === ShapeKind.Mirror.U
  val needSize = x.phase === Phase.Header && ((array && !x.extraKnown) || mirror)

  // Size in bytes, arrays rounded up to the alignment.
  val slack                     = ((1.U(9.W) << c.alignmentLog2)(8, 0) - 1.U)(7, 0)
  private val (content, header) = ((x.extra.pad(40) << x.shape.elementLog2)(39, 0), x.shape.size.pad(40))
  // Three operands, one carry chain.
  private val carries = (content & header) | (content & slack) | (header & slack)
  val arrayBytes      = ((content ^ header ^ slack) + Cat(carries(38, 0), 0.U(1.W))) & ~slack.pad(40)
  val bytes           = Mux(array, arrayBytes, Mux(mirror, Cat(x.extra, 0.U(3.W)), Cat(x.shape.size, 0.U(3.W)))).pad(40)
  val start           = Cat(x.obj, 0.U(3.W))
  val mirrorAt        = start +& c.mirrorOffset

  val counted  = RegInit(false.B)
  val reported = RegInit(false.B)
  val sent     = RegInit(false.B)
  val begun    = counted || reported || sent
  val gotOn    = RegInit(false.B) // since the last pause
  val puts     = io.pausing && gotOn
  val putBack  = valid && puts && x.phase === Phase.References
  val doubted  = WireDefault(false.B)
  val relies   = doubted && x.found && !x.report && !x.shape.quiet
  val returns  = valid && sizing && !begun && (relies || (puts && x.phase === Phase.Header))
  val sized    = valid && sizing && !needSize && !returns
  val wantLive = sized && x.found && x.count && !counted
  val wantSeen = sized && x.report && !reported
  val defers   = !x.found || kind >= ShapeKind.Reference.U
  val wantSent = sized && defers && !sent
  io.live.valid            := wantLive
  io.live.bits.region      := x.region
  io.live.bits.words       := bytes >> 3
  io.seen.valid            := wantSeen
  io.seen.bits             := x.klass
  io.deferred.valid        := wantSent
  io.deferred.bits.obj     := x.obj
  io.deferred.bits.unsized := !x.found && x.count
  val told = (!wantLive || io.live.ready) && (!wantSeen || io.seen.ready) && (!wantSent || io.deferred.ready)

  // In units of four bytes from the object's start.
  val length     = Mux(c.wideOops, Cat(x.extra, 0.U(1.W)), x.extra.pad(33))
  val arrayStart = x.shape.size >> 2

  // Which slots of this line are references: of the klass word's line, by where the object begins in it.
  private val slots = ScanJob.slots(p)
  private val places = VecInit((0 until 8).map { place =>
    val at = Shape.placeInLine(place)
    if (at < 0) (x.shape.near >> -at)(slots - 1, 0) else (x.shape.near << at)(slots - 1, 0)
  })
  val covered = places(x.obj(2, 0)) // of an array, its first element
  val goesOn  = x.shape.beyond(x.obj(2, 0))
  val coveredArray =
    (0 until slots).map(first => Mux(covered(first), (x.filled << first)(slots - 1, 0), 0.U)).reduce(_ | _)
  val ours = Mux(x.phase === Phase.Header, Mux(objArray, coveredArray, covered), io.slots) &
    Mux(c.wideOops, 0x5555.U, 0xffff.U)
  val bare = x.phase === Phase.Size || x.phase === Phase.Extension
  io.scan.bits.obj  := x.obj
  io.scan.bits.data := x.data
  io.scan.bits.left := ours & x.notNull

  val refs      = (instance && x.shape.hasBlocks) || (objArray && x.extraSome)
  val toExtend  = sizing && instance && x.shape.extended
  val further   = x.phase === Phase.Extension
  val blockLine = VecInit(x.data(255, 0), x.data(511, 256))(io.extension.position(0))
  io.walk.bits.slot        := x.slot
  io.walk.bits.obj         := x.obj
  io.walk.bits.bare        := bare
  io.walk.bits.line        := Mux(sizing, (x.obj +& 1.U) >> 3, io.line)
  io.walk.bits.stored      := x.phase === Phase.References
  io.walk.bits.placed      := false.B
  io.walk.bits.raw         := further
  io.walk.bits.again       := instance || further
  io.walk.bits.count       := Mux(objArray, 1.U, x.shape.blockCount(2, 0))
  io.walk.bits.more        := further && io.extension.left > 4.U
  io.walk.bits.size        := io.extension.size
  io.walk.bits.first.start := Mux(objArray, arrayStart, x.shape.blocks(0).start)
  io.walk.bits.first.end   := Mux(objArray, arrayStart +& length, x.shape.blocks(0).end)
  when(further) { io.walk.bits.count := Mux(io.extension.left > 4.U, 4.U, io.extension.left(2, 0)) }
  for (i <- 0 until 4) {
    def word(at: Int): UInt = blockLine(64 * i + 32 * at + 31, 64 * i + 32 * at)
    io.walk.bits.blocks(i).start := Mux(further, word(0), x.shape.blocks(i).start)
    io.walk.bits.blocks(i).end   := Mux(further, word(1), x.shape.blocks(i).end)
  }

  io.continue.bits.slot  := x.slot
  io.continue.bits.klass := x.klass
  val at = Mux(mirror, mirrorAt, start +& 16.U) // a wide klass word's length follows it
  io.continue.bits.same  := putBack
  io.continue.bits.phase := Mux(needSize, Phase.Size, Phase.Extension)
  io.continue.bits.line  := Mux(needSize, at >> 6, x.shape.extension)
  io.continue.bits.word  := at(5, 2)

  // This line is all that an object needs, and nobody but the live table hears of it: its slot is free as soon as it
  // stands here, so that slots are for what the memory is to bring.
  class Settling extends Bundle {
    val header, found, report, extended, hasBlocks, extraKnown = Bool()
    val kind                                                   = UInt(3.W)
    val beyond                                                 = UInt(8.W)
    val place                                                  = UInt(3.W)
  }
  private def settling(x: EvaluateJob): Settling = {
    val s = Wire(new Settling)
    s.header     := x.phase === Phase.Header
    s.found      := x.found
    s.report     := x.report
    s.extended   := x.shape.extended
    s.hasBlocks  := x.shape.hasBlocks
    s.extraKnown := x.extraKnown
    s.kind       := x.shape.kind
    s.beyond     := x.shape.beyond
    s.place      := x.obj(2, 0)
    s
  }
  private def isSettled(s: Settling): Bool = {
    val instance = s.kind === ShapeKind.Instance.U && !s.extended && !(s.hasBlocks && s.beyond(s.place))
    val array    = s.kind === ShapeKind.PrimArray.U && s.extraKnown
    s.header && s.found && !s.report && (instance || array)
  }
  // Known late in the cycle in which it comes, so judged in the next.
  io.settled.valid := RegNext(io.in.valid, false.B) && isSettled(RegNext(settling(io.in.bits)))
  io.settled.bits  := RegNext(io.in.bits.slot)
  val settled = isSettled(settling(x))
  io.slotless := settled

  // Where the object goes from here. Given back: reports wait and a pause wants the lane to drain, or it has not begun.
  // What is settled waits for the live table alone, and that for memory alone.
  val stuck = io.hold && sized && !told && !settled
  io.giveBack.valid    := stuck || returns
  io.giveBack.bits.obj := x.obj
  // An unsized object that was reported, which would be the host's to count, waits for nothing more.
  io.giveBack.bits.count := x.count && !counted && !io.live.fire
  assert(!io.giveBack.valid || x.found || !(sent || io.deferred.fire), "given back although it is the host's to count")
  val ready  = sized && told
  val toScan = (ready && refs && !toExtend) || (valid && !sizing && !putBack)
  val toKeep = (ready && toExtend) || (valid && !returns && sizing && needSize)
  val toEnd  = ready && !refs
  // To the scanner and to the walk in one cycle; not to the walk if this line is all.
  val isAll    = x.phase === Phase.Header && !objArray && !goesOn
  val scanOpen = bare || io.scan.ready
  val walkOpen = isAll || io.walk.ready
  io.scan.valid     := toScan && !bare && walkOpen
  io.walk.valid     := toScan && !isAll && scanOpen
  io.continue.valid := toKeep || putBack
  val scans     = toScan && scanOpen && walkOpen
  val givenBack = io.giveBack.valid
  io.unsaid := givenBack && x.report && !needSize && !reported && !io.seen.fire
  // Looks of the cycle after still find the klass seen: who looked then is here a cycle later.
  val forgetting = RegNext(io.unsaid, false.B)
  val forgotten  = RegNext(forgetting, false.B)
  val doubts     = RegInit(false.B)
  val doubtEnd   = Reg(chiselTypeOf(enqAt))
  when(forgotten) {
    doubts   := true.B
    doubtEnd := enqAt
  }.elsewhen(deqAt === doubtEnd) { doubts := false.B }
  doubted      := forgetting || forgotten || (doubts && deqAt =/= doubtEnd)
  done         := toEnd || scans || ((toKeep || putBack) && io.continue.ready) || givenBack
  io.end.valid := toEnd || (scans && isAll) || givenBack
  // Of the extension, the blocks after these.
  io.extend.valid         := (toKeep && !needSize) || (io.walk.fire && further)
  io.extend.bits.position := Mux(further, io.extension.position + 1.U, Cat(x.shape.extension, 0.U(1.W)))
  io.extend.bits.left     := Mux(further, io.extension.left - 4.U, x.shape.blockCount)
  io.extend.bits.size     := Mux(further, io.extension.size, x.shape.size)
  io.end.bits             := x.slot
  io.scanned              := done && sized && !givenBack && (instance || objArray)
  io.looked.valid         := RegNext(done && x.phase === Phase.Header && !givenBack && instance, false.B)
  io.looked.bits.obj      := RegNext(x.obj)
  io.looked.bits.klass    := RegNext(x.klass)
  io.looked.bits.near     := RegNext(x.shape.near)
  io.slotsRead            := RegNext(Mux(scans && !bare, ours, 0.U), 0.U)
  io.slotsNull            := RegNext(Mux(scans && !bare, ours & ~x.notNull, 0.U), 0.U)
  counted                 := !done && (counted || io.live.fire)
  reported                := !done && (reported || io.seen.fire)
  sent                    := !done && (sent || io.deferred.fire)
  // What sizes or extends an object is done again after a pause, as a rule, and is nothing that would have got on.
  private val getsOn = x.phase === Phase.Header || x.phase === Phase.References
  gotOn := !io.resumed && (gotOn || (done && getsOn && !givenBack && !putBack))

  // What cannot be right.
  val noKlass   = !x.found && x.klass === Contract.ShapeKeyEmpty.U
  val sizeLate  = RegNext(valid && sizing && x.found, false.B)
  val zeroLate  = RegNext(valid && sizing && noKlass, false.B)
  val needLate  = RegNext(needSize)
  val startLate = RegNext(start)
  val bytesLate = RegNext(bytes)
  val atLate    = RegNext(at)
  val badLength = RegNext(array && x.extra(31)) // of an array, a signed number
  val bad = Mux(
    needLate,
    atLate +& 4.U > c.heapBytes,
    badLength || bytesLate === 0.U || startLate +& bytesLate > c.heapBytes
  )
  io.fault.valid := (sizeLate && bad) || zeroLate
  io.fault.bits  := FaultReport(Contract.Fault.BadObject, startLate, Mux(zeroLate || needLate, 0.U, bytesLate >> 3))
}
