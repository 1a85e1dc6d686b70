// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

class Continuation(p: TracerParameters) extends Bundle {
  val slot = UInt(log2Ceil(p.slots).W)
  val work = new SlotWork(p)
}

/** An object for the host. `unsized`: marked by the device, and without a shape: the host counts it. */
class Deferred(p: TracerParameters) extends Bundle {
  val obj     = UInt(p.objectBits.W)
  val unsized = Bool()
}

/** A line with its object and, when it is one that sizes the object, its shape. */
class EvaluateJob(p: TracerParameters) extends Bundle {
  val slot       = UInt(log2Ceil(p.slots).W)
  val data       = UInt(p.lineBits.W)
  val phase      = Phase()
  val obj        = UInt(p.objectBits.W)
  val count      = Bool()
  val klass      = UInt(64.W)
  val found      = Bool()
  val shape      = new Shape(p)
  val report     = Bool()
  val extra      = UInt(32.W) // array length or mirror size
  val extraSome  = Bool()
  val extraKnown = Bool()
  val notNull    = UInt(ScanJob.slots(p).W) // slots of the line
}

/** Sizes an object by its shape, counts it, reports it, and says which references it has.
  *
  * Live words, SHAPE_SEEN and DEFER leave independently, each once: `counted`, `reported` and `sent` remember which
  * have left while others wait. At a pause an object whose reports find no room is given back as a grey; what has
  * left does not leave again (except SHAPE_SEEN and DEFER, which may repeat).
  *
  * An object that cannot be right is judged a cycle later, beside its way: its fault comes long before anything that
  * follows from it could reach the memory.
  */
class ObjectEvaluator(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config   = Input(new TraceConfig(p))
    val hold     = Input(Bool())
    val in       = Flipped(Decoupled(new EvaluateJob(p)))
    val slot     = Output(UInt(log2Ceil(p.slots).W)) // whose work is wanted
    val work     = Input(new SlotWork(p))            // of `slot`
    val live     = Decoupled(new LiveWords(p))
    val seen     = Decoupled(UInt(64.W))
    val deferred = Decoupled(new Deferred(p))
    val giveBack = Decoupled(new Grey(p))
    val scan     = Decoupled(new ScanJob(p))
    val walk     = Valid(new WalkJob(p))
    val continue = Decoupled(new Continuation(p))
    val end      = Valid(UInt(log2Ceil(p.slots).W))
    val scanned  = Output(Bool())
    val slotsRead = Output(UInt(ScanJob.slots(p).W)) // a cycle late
    val slotsNull = Output(UInt(ScanJob.slots(p).W))
    val quiet    = Output(Bool())
    val fault    = Valid(new FaultReport)
  })
  import Contract.ShapeKind
  val stage = Module(new Queue(new EvaluateJob(p), 2))
  stage.io.enq <> io.in
  val c     = io.config
  val x     = stage.io.deq.bits
  val valid = stage.io.deq.valid
  val work  = io.work
  val done  = WireDefault(false.B)
  stage.io.deq.ready := done
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
  val slack      = ((1.U(9.W) << c.alignmentLog2)(8, 0) - 1.U)(7, 0)
  val arrayBytes = (x.shape.size.pad(40) + (x.extra.pad(40) << x.shape.elementLog2)(39, 0) + slack) & ~slack.pad(40)
  val bytes      = Mux(array, arrayBytes, Mux(mirror, Cat(x.extra, 0.U(3.W)), Cat(x.shape.size, 0.U(3.W)))).pad(40)
  val start      = Cat(x.obj, 0.U(3.W))
  val mirrorAt   = start +& c.mirrorOffset

  val counted  = RegInit(false.B)
  val reported = RegInit(false.B)
  val sent     = RegInit(false.B)
  val sized    = valid && sizing && !needSize
  val wantLive = sized && x.found && x.count && !counted
  val wantSeen = sized && x.report && !reported
  val defers   = !x.found || kind >= ShapeKind.Reference.U
  val wantSent = sized && defers && !sent
  io.live.valid       := wantLive
  io.live.bits.region := c.region(x.obj)
  io.live.bits.words  := bytes >> 3
  io.seen.valid       := wantSeen
  io.seen.bits        := x.klass
  io.deferred.valid        := wantSent
  io.deferred.bits.obj     := x.obj
  io.deferred.bits.unsized := !x.found && x.count
  val told = (!wantLive || io.live.ready) && (!wantSeen || io.seen.ready) && (!wantSent || io.deferred.ready)

  // Spans in units of four bytes from the object's start, of the shape or of four blocks of a line of its extension.
  val length     = Mux(c.wideOops, Cat(x.extra, 0.U(1.W)), x.extra.pad(33))
  val arrayStart = x.shape.size >> 2
  val shaped     = Wire(Vec(4, new Span(p)))
  for (i <- 0 until 4) {
    shaped(i).start := x.shape.blocks(i).start
    shaped(i).end   := x.shape.blocks(i).end
  }
  when(objArray) {
    shaped.foreach { s => s.start := 0.U; s.end := 0.U }
    shaped(0).start := arrayStart
    shaped(0).end   := arrayStart +& length
  }
  val half      = work.extension(0)
  val blockGood = Wire(Vec(4, Bool()))
  val blocks    = Wire(Vec(4, new Span(p)))
  for (i <- 0 until 4) {
    def word(at: Int): UInt = x.data(32 * at + 31, 32 * at)
    def pick(at: Int): UInt = Mux(half, word(8 + 2 * i + at), word(2 * i + at))
    val offset = pick(0)
    val count  = pick(1)
    val used   = work.extensionLeft > i.U
    val mask   = Mux(c.wideOops, 7.U, 3.U)
    val end    = offset.pad(40) +& Mux(c.wideOops, Cat(count, 0.U(3.W)), Cat(count, 0.U(2.W))).pad(40)
    blockGood(i) := !used || ((offset & mask) === 0.U && offset >= Mux(c.wideKlass, 16.U, 12.U) &&
      end <= Cat(work.size, 0.U(3.W)))
    val units = Mux(used, Mux(c.wideOops, Cat(count, 0.U(1.W)), count), 0.U)
    blocks(i).start := offset >> 2
    blocks(i).end   := (offset >> 2) +& units
  }

  // Which slots of this line are references. Of the klass word's line, counted from where the object begins in it: a
  // block that begins or ends beyond it need not be added up.
  private val slots = ScanJob.slots(p)
  val inLine = Mux(x.obj(2, 0).andR, (-2).S(6.W).asUInt, Cat(0.U(2.W), x.obj(2, 0), 0.U(1.W))) // may be two before
  private def below(far: Bool, near: UInt): UInt = {
    val at   = (near.pad(6) + inLine)(5, 0)
    val part = ((1.U(slots.W) << at(3, 0)) - 1.U)(slots - 1, 0)
    Mux(far || at(5, 4) =/= 0.U, Fill(slots, 1.U(1.W)), part)
  }
  private def far(x: UInt): Bool = (x >> 5).orR
  val covered = VecInit(x.shape.blocks.map { b =>
    below(far(b.end), b.end(4, 0)) & ~below(far(b.start), b.start(4, 0))
  }).reduceTree(_ | _)
  val arrayEnd = arrayStart(4, 0) +& length(4, 0)
  val coveredArray = below(far(arrayStart) || far(length) || arrayEnd(5), arrayEnd(4, 0)) &
    ~below(far(arrayStart), arrayStart(4, 0))
  val ours = Mux(x.phase === Phase.Header, Mux(objArray, coveredArray, covered), work.slots) &
    Mux(c.wideOops, 0x5555.U, 0xffff.U)
  val bare    = x.phase === Phase.Size || x.phase === Phase.Extension
  io.scan.bits.obj  := x.obj
  io.scan.bits.data := x.data
  io.scan.bits.left := ours & x.notNull

  val refs     = (instance && x.shape.hasBlocks) || (objArray && x.extraSome)
  val toExtend = sizing && instance && x.shape.extended
  io.walk.bits.slot := x.slot
  io.walk.bits.obj  := x.obj
  io.walk.bits.bare := bare
  io.walk.bits.line := Mux(sizing, (x.obj +& 1.U) >> 3, work.line)
  io.walk.bits.base := Mux(x.phase === Phase.References, 0.U, Cat(x.obj, 0.U(1.W)))
  io.walk.bits.work := work
  when(sizing) {
    io.walk.bits.work.extensionLeft := 0.U
    io.walk.bits.work.spans         := shaped
  }
  when(x.phase === Phase.Extension) {
    io.walk.bits.work.spans         := blocks
    io.walk.bits.work.extension     := work.extension + 1.U
    io.walk.bits.work.extensionLeft := Mux(work.extensionLeft > 4.U, work.extensionLeft - 4.U, 0.U)
  }

  io.continue.bits.slot := x.slot
  io.continue.bits.work := work
  when(needSize) {
    io.continue.bits.work.phase := Phase.Size
    io.continue.bits.work.klass := x.klass
    val at = Mux(mirror, mirrorAt, start +& 16.U) // a wide klass word's length follows it
    io.continue.bits.work.line := at >> 6
    io.continue.bits.work.word := at(5, 2)
  }.otherwise {
    io.continue.bits.work.phase         := Phase.Extension
    io.continue.bits.work.line          := x.shape.extension
    io.continue.bits.work.extension     := Cat(x.shape.extension, 0.U(1.W))
    io.continue.bits.work.extensionLeft := x.shape.blockCount
    io.continue.bits.work.size          := x.shape.size
  }

  // Where the object goes from here. Given back: reports wait and a pause wants the lane to drain.
  val stuck = io.hold && sized && !told
  io.giveBack.valid    := stuck
  io.giveBack.bits.obj := x.obj
  // An unsized object that was reported is the host's to count.
  io.giveBack.bits.count := x.count && !counted && !io.live.fire && (x.found || !(sent || io.deferred.fire))
  val ready  = valid && Mux(sized, told, true.B)
  val toScan = ready && ((sized && refs && !toExtend) || !sizing)
  val toKeep = ready && sizing && (needSize || (sized && toExtend))
  val toEnd  = ready && sized && !refs
  io.scan.valid     := toScan && !bare
  io.continue.valid := toKeep
  val scans     = toScan && (io.scan.ready || bare)
  val givenBack = io.giveBack.fire
  io.walk.valid := scans
  done := toEnd || scans || (toKeep && io.continue.ready) || givenBack
  io.end.valid := toEnd || givenBack
  io.end.bits  := x.slot
  io.scanned   := done && sized && !givenBack && (instance || objArray)
  io.slotsRead := RegNext(Mux(scans && !bare, ours, 0.U), 0.U)
  io.slotsNull := RegNext(Mux(scans && !bare, ours & ~x.notNull, 0.U), 0.U)
  counted  := !done && (counted || io.live.fire)
  reported := !done && (reported || io.seen.fire)
  sent     := !done && (sent || io.deferred.fire)

  // What cannot be right.
  val sizeLate   = RegNext(valid && sizing && x.found, false.B)
  val mirrorLate = RegNext(needSize && mirror)
  val needLate   = RegNext(needSize)
  val startLate  = RegNext(start)
  val bytesLate  = RegNext(bytes)
  val atLate     = RegNext(mirrorAt)
  val badLength  = RegNext(array && x.extra(31)) // of an array, a signed number
  val workLate   = RegNext(work.size)
  val badBlocks  = RegNext(valid && x.phase === Phase.Extension && !blockGood.asUInt.andR, false.B)
  val bad = Mux(
    needLate,
    mirrorLate && atLate + 4.U > c.heapBytes,
    badLength || bytesLate === 0.U || startLate +& bytesLate > c.heapBytes
  )
  io.fault.valid := (sizeLate && bad) || badBlocks
  io.fault.bits  := FaultReport(Contract.Fault.BadObject, c.heapBase + startLate, bytesLate >> 3)
  when(badBlocks) { io.fault.bits := FaultReport(Contract.Fault.BadShape, c.heapBase + startLate, workLate) }
}
