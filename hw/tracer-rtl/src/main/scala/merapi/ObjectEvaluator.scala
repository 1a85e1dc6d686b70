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

/** One line of references to read. `bare`: the line is not the object's; only go on from its spans. */
class ScanJob(p: TracerParameters) extends Bundle {
  val slot = UInt(log2Ceil(p.slots).W)
  val obj  = UInt(p.objectBits.W)
  val data = UInt(p.lineBits.W)
  val line = UInt((p.heapAddressBits - 6 + 1).W) // of the heap
  val bare = Bool()
  val work = new SlotWork(p)
}

/** Sizes an object by its shape, counts it, reports it, and says which references it has.
  *
  * Live words, SHAPE_SEEN and DEFER leave independently, each once: `counted`, `reported` and `sent` remember which
  * have left while others wait. At a pause an object whose reports find no room is given back as a grey; what has
  * left does not leave again (except SHAPE_SEEN and DEFER, which may repeat).
  */
class ObjectEvaluator(p: TracerParameters) extends Module {
  class In extends Bundle {
    val slot       = UInt(log2Ceil(p.slots).W)
    val data       = UInt(p.lineBits.W)
    val phase      = Phase()
    val obj        = UInt(p.objectBits.W)
    val count      = Bool()
    val work       = new SlotWork(p)
    val klass      = UInt(64.W)
    val found      = Bool()
    val shape      = new Shape(p)
    val report     = Bool()
    val extra      = UInt(32.W) // array length or mirror size
    val extraKnown = Bool()
  }
  val io = IO(new Bundle {
    val config   = Input(new TraceConfig(p))
    val hold     = Input(Bool())
    val in       = Flipped(Decoupled(new In))
    val live     = Decoupled(new LiveWords(p))
    val seen     = Decoupled(UInt(64.W))
    val deferred = Decoupled(new Deferred(p))
    val giveBack = Decoupled(new Grey(p))
    val scan     = Decoupled(new ScanJob(p))
    val continue = Decoupled(new Continuation(p))
    val end      = Valid(UInt(log2Ceil(p.slots).W))
    val scanned  = Output(Bool())
    val quiet    = Output(Bool())
    val fault    = Valid(new FaultReport)
  })
  import Contract.ShapeKind
  val stage = Module(new Queue(new In, 1, pipe = true))
  stage.io.enq <> io.in
  val c     = io.config
  val x     = stage.io.deq.bits
  val valid = stage.io.deq.valid
  val done  = WireDefault(false.B)
  stage.io.deq.ready := done
  io.quiet := !valid

  val sizing   = x.phase === Phase.Header || x.phase === Phase.Size
  val kind     = x.shape.kind
  val instance = x.found && kind === ShapeKind.Instance.U
  val objArray = x.found && kind === ShapeKind.ObjArray.U
  val array    = objArray || (x.found && kind === ShapeKind.PrimArray.U)
  val mirror   = x.found && kind === ShapeKind.Mirror.U
  val needSize = x.phase === Phase.Header && ((array && !x.extraKnown) || mirror)

  // Size in bytes, arrays rounded up to the alignment.
  val align      = (1.U(9.W) << c.alignmentLog2)(8, 0)
  val arrayBytes = x.shape.header.pad(40) + (x.extra.pad(40) << x.shape.elementLog2)
  val rounded    = (arrayBytes + align - 1.U) & ~(align - 1.U).pad(40)
  val bytes      = Mux(array, rounded, Mux(mirror, Cat(x.extra, 0.U(3.W)), Cat(x.shape.size, 0.U(3.W)))).pad(40)
  val start      = Cat(x.obj, 0.U(3.W))
  val mirrorAt   = start +& c.mirrorOffset
  val badMirror  = mirror && mirrorAt + 4.U > c.heapBytes
  val badLength  = array && x.extra(31) // of an array, a signed number
  val bad        = x.found && Mux(needSize, badMirror, badLength || bytes === 0.U || start +& bytes > c.heapBytes)

  val counted  = RegInit(false.B)
  val reported = RegInit(false.B)
  val sent     = RegInit(false.B)
  val sized    = valid && sizing && !needSize && !bad
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

  // Blocks of the shape, or of a line of its extension, as spans of the heap.
  val oopLog2 = Mux(c.wideOops, 1.U, 0.U) // in units of four bytes
  val base    = Cat(x.obj, 0.U(1.W))
  private def span(offset: UInt, count: UInt, used: Bool): Span = {
    val s = Wire(new Span(p))
    s.start := base + (offset >> 2)
    s.end   := Mux(used, s.start + (count << oopLog2), s.start)
    s
  }
  val job = Wire(new ScanJob(p))
  job.slot := x.slot
  job.obj  := x.obj
  job.data := x.data
  job.bare := false.B
  job.line := Mux(sizing, (x.obj +& 1.U) >> 3, x.work.line - c.heap)
  // The line of a further size word is not one of references.
  when(x.phase === Phase.Size) { job.bare := true.B }
  job.work := x.work
  job.work.phase := Phase.References
  val extension = x.shape.blockCount > Contract.ShapeInlineBlocks.U
  when(sizing) {
    job.work.extensionLeft := 0.U
    for (i <- 0 until 4) {
      job.work.spans(i) := span(x.shape.blocks(i).offset, x.shape.blocks(i).count, x.shape.blockCount > i.U)
    }
    when(objArray) {
      job.work.spans(0) := span(x.shape.header, x.extra, true.B)
      for (i <- 1 until 4) job.work.spans(i) := span(0.U, 0.U, false.B)
    }
  }
  // Four blocks of an extension line.
  val half      = x.work.extension(0)
  val blockGood = Wire(Vec(4, Bool()))
  for (i <- 0 until 4) {
    def word(at: Int): UInt = x.data(32 * at + 31, 32 * at)
    def pick(at: Int): UInt = Mux(half, word(8 + 2 * i + at), word(2 * i + at))
    val offset = pick(0)
    val count  = pick(1)
    val used   = x.work.extensionLeft > i.U
    val mask   = Mux(c.wideOops, 7.U, 3.U)
    val end    = offset.pad(40) +& (count.pad(40) << (oopLog2 + 2.U))
    blockGood(i) := !used || ((offset & mask) === 0.U && offset >= Mux(c.wideKlass, 16.U, 12.U) &&
      end <= Cat(x.work.size, 0.U(3.W)))
    when(x.phase === Phase.Extension) { job.work.spans(i) := span(offset, count, used) }
  }
  val badBlocks = valid && x.phase === Phase.Extension && !blockGood.asUInt.andR
  when(x.phase === Phase.Extension) {
    job.bare                := true.B
    job.work.extension      := x.work.extension + 1.U
    job.work.extensionLeft  := Mux(x.work.extensionLeft > 4.U, x.work.extensionLeft - 4.U, 0.U)
  }

  val refs     = (instance && x.shape.blockCount =/= 0.U) || (objArray && x.extra =/= 0.U)
  val toExtend = sizing && instance && extension
  io.scan.bits := job
  io.continue.bits.slot := x.slot
  io.continue.bits.work := x.work
  when(needSize) {
    io.continue.bits.work.phase := Phase.Size
    io.continue.bits.work.klass := x.klass
    val at = Mux(mirror, mirrorAt, start +& 16.U) // a wide klass word's length follows it
    io.continue.bits.work.line := c.heap + (at >> 6)
    io.continue.bits.work.word := at(5, 2)
  }.otherwise {
    io.continue.bits.work.phase         := Phase.Extension
    io.continue.bits.work.line          := x.shape.extension
    io.continue.bits.work.extension     := Cat(x.shape.extension, 0.U(1.W))
    io.continue.bits.work.extensionLeft := x.shape.blockCount
    io.continue.bits.work.size          := x.shape.size
  }
  io.fault.valid := valid && ((sizing && bad) || badBlocks)
  io.fault.bits  := FaultReport(Contract.Fault.BadObject, c.heapBase + start, bytes >> 3)
  when(badBlocks) { io.fault.bits := FaultReport(Contract.Fault.BadShape, c.heapBase + start, x.work.size) }

  // Where the object goes from here. Given back: reports wait and a pause wants the lane to drain.
  val stuck = io.hold && sized && !told
  io.giveBack.valid      := stuck
  io.giveBack.bits.obj   := x.obj
  // An unsized object that was reported is the host's to count.
  io.giveBack.bits.count := x.count && !counted && !io.live.fire && (x.found || !(sent || io.deferred.fire))
  val drop     = valid && ((sizing && bad) || badBlocks)
  val ready    = valid && !drop && Mux(sized, told, true.B)
  val toScan   = ready && ((sized && refs && !toExtend) || !sizing)
  val toKeep   = ready && sizing && (needSize || (sized && toExtend))
  val toEnd    = (ready && sized && !refs) || drop
  io.scan.valid     := toScan
  io.continue.valid := toKeep
  val givenBack = io.giveBack.fire
  done := toEnd || (toScan && io.scan.ready) || (toKeep && io.continue.ready) || givenBack
  io.end.valid := toEnd || givenBack
  io.end.bits  := x.slot
  io.scanned   := done && sized && !givenBack && (instance || objArray) && !drop
  counted  := !done && (counted || io.live.fire)
  reported := !done && (reported || io.seen.fire)
  sent     := !done && (sent || io.deferred.fire)
}
