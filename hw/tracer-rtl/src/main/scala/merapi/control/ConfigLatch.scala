// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, FaultReport, ReadPort, Region, TraceConfig, TracerParameters}
import merapi.primitives.Word

/** An area of the window in lines; without a place, both are zero. */
class Area(p: TracerParameters) extends Bundle {
  val first = UInt(p.lineAddress.W)
  val count = UInt(p.lineAddress.W)
}

/** Copies configuration and directory out of the control page, once, and checks every field against the contract and
  * the window's size. The copy is what the cycle uses; the page is not looked at again.
  *
  * `rings` asks for the two ring areas alone (a handshake). Checks go one a cycle: fields as soon as they are here, areas
  * as they come, then pairs of areas and sizes out of a memory of sixteen entries; the first that is wrong is named. Of
  * an area only the lines that somebody uses are kept beside that memory.
  *
  * Who asked may be gone before it is done (a fault, an abort, another host): `stop`, so that a later start finds it idle
  * and is told of nothing older.
  */
class ConfigLatch(p: TracerParameters) extends Module {
  private val areaCount = Contract.AreaCount.toInt
  private val pageLog2  = log2Ceil(Contract.AreaAlignment)
  private val pageBits  = p.windowAddressBits - pageLog2
  val io = IO(new Bundle {
    val start       = Input(Bool())
    val stop        = Input(Bool())               // level: what is under way is given up
    val rings       = Input(Bool())
    val bitmap      = Input(UInt(1.W))
    val windowLines = Input(UInt((p.lineAddress + 1).W))
    val coherence   = Input(UInt(8.W))
    val done        = Output(Bool())              // pulse, with `fault`
    val fault       = Valid(new FaultReport)
    val config      = Output(new TraceConfig(p))
    val areas       = Output(Vec(areaCount, new Area(p)))
    val ringAreas   = Output(Vec(2, new Area(p))) // as at the handshake
    val ringLog2    = Output(UInt(5.W))           // entries of the completion ring
    val read        = new ReadPort(p)
  })
  import Contract.{Area => A, ConfigLayout => C, DirectoryLayout => D}
  object State extends ChiselEnum { val Idle, Ask, Wait, Fields, Take, Judge, Overlaps, Sizes, Sized, Rings = Value }
  val state     = RegInit(State.Idle)
  val lineAt    = Reg(UInt(3.W))          // of configuration (0) and directory
  val step      = Reg(UInt(4.W))          // an area
  val other     = Reg(UInt(4.W))
  val ringsOnly = Reg(Bool())
  val page      = Reg(UInt(p.lineBits.W)) // the configuration line
  val line      = Reg(UInt(p.lineBits.W)) // of the directory
  val rings     = Reg(Vec(2, new Area(p)))

  io.read.request.valid     := state === State.Ask && !io.stop
  io.read.request.bits.tag  := 0.U
  io.read.request.bits.line := (C.At / 64).U + lineAt // the directory follows the configuration
  require(D.At == C.At + 64, "configuration and directory are read as neighbours")

  private def field(at: Int, bytes: Int): UInt = page(8 * (at + bytes) - 1, 8 * at)
  val heapBase                                 = field(C.HeapBase, 8)
  val narrowShift                              = field(C.NarrowOopShift, 1)
  val oopBytes                                 = field(C.OopBytes, 1)
  val klassBytes                               = field(C.KlassBytes, 1)
  val alignment                                = field(C.AlignmentLog2, 1)
  val regionLog2                               = field(C.RegionLog2, 1)
  val coherence                                = field(C.Coherence, 1)
  val reserved0                                = field(22, 2)
  val mirror                                   = field(C.MirrorSizeOffset, 4)
  val regionCount                              = field(C.RegionCount, 4)
  // Right when the number of regions is.
  val heapBytes = Word.shiftUp(regionCount(p.regionBits, 0).pad(p.heapAddressBits + 1), regionLog2(5, 0))
  val countMost = (1.U << p.heapAddressBits) >> regionLog2(5, 0)
  val baseLow   = heapBase(7, 0) & ((1.U(9.W) << alignment(3, 0)) - 1.U)(7, 0)
  private def at(offset: Int): UInt = (C.At + offset).U(64.W)
  // In the order of the fields; the first that is wrong is named.
  val wrongFields = Seq(
    (narrowShift > 8.U, at(C.NarrowOopShift), narrowShift),
    (oopBytes =/= 4.U && oopBytes =/= 8.U, at(C.OopBytes), oopBytes),
    (klassBytes =/= 4.U && klassBytes =/= 8.U, at(C.KlassBytes), klassBytes),
    (alignment < 3.U || alignment > 8.U, at(C.AlignmentLog2), alignment),
    // A region's bits fill whole lines.
    (
      regionLog2 < Region.unitLog2.U || regionLog2 > Region.mostLog2.U || regionLog2 < alignment +& 9.U,
      at(C.RegionLog2),
      regionLog2
    ),
    (coherence =/= io.coherence, at(C.Coherence), coherence),
    (reserved0.orR, at(22), reserved0),
    (mirror(1, 0).orR, at(C.MirrorSizeOffset), mirror),
    (field(32, 8).orR, at(32), field(32, 8)),
    (field(40, 8).orR, at(32), field(40, 8)),
    (field(48, 8).orR, at(32), field(48, 8)),
    (field(56, 8).orR, at(56), field(56, 8)),
    (regionCount === 0.U || regionCount > countMost, at(C.RegionCount), regionCount),
    (baseLow.orR || heapBase +& heapBytes > (BigInt(1) << 64).U, at(C.HeapBase), heapBase)
  )

  // The area in hand, in bytes, as it stands in the directory.
  val offset                                            = Reg(UInt(64.W))
  val size                                              = Reg(UInt(64.W))
  private def areaAt(i: UInt): UInt                     = D.At.U(64.W) + (i << 4)
  private def sizeAt(i: UInt): UInt                     = areaAt(i) + 8.U
  private def lines(bytes: UInt): UInt                  = bytes(p.windowAddressBits - 1, p.lineLog2)
  private def beyond(bytes: UInt): Bool                 = bytes(63, p.windowAddressBits).orR
  private def aligned(x: UInt, alignment: BigInt): Bool = x(log2Ceil(alignment) - 1, 0) === 0.U
  // Of a ring or the shape table, a whole number of pages: a power of two, not above what the contract allows.
  private def goodTable(bytes: UInt): Bool = {
    val pages = bytes >> pageLog2
    val most  = Contract.TableEntriesMax * Contract.LineBytes / Contract.AreaAlignment
    (pages & (pages - 1.U)) === 0.U && !(pages >> (log2Ceil(most) + 1)).orR
  }
  val mapped = step === A.Heap.U || step === A.Bitmap0.U || step === A.Bitmap1.U
  val placed = offset =/= 0.U
  val exists = placed || ringsOnly
  val wrongOffset =
    !aligned(offset, Contract.AreaAlignment) || (mapped && !aligned(offset, Contract.MappedAlignment)) ||
      !placed || beyond(offset) || lines(offset) >= io.windowLines
  require(Contract.ControlBytes == Contract.AreaAlignment, "an aligned area with a place lies behind the control page")

  // An area in units of its alignment, with its end, so that a pair is compared without a sum before, and with whether
  // a table can have its size.
  class Pages extends Bundle {
    val first        = UInt(pageBits.W)
    val count        = UInt(pageBits.W)
    val end          = UInt((pageBits + 1).W)
    val goodTable    = Bool()
    def placed: Bool = first =/= 0.U
  }
  private def bytes(x: UInt): UInt = Cat(x, 0.U(pageLog2.W))
  val inHand                       = Wire(new Pages)
  inHand.first     := (offset >> pageLog2).take(pageBits)
  inHand.count     := (size >> pageLog2).take(pageBits)
  inHand.end       := inHand.first +& inHand.count
  inHand.goodTable := goodTable(size)
  val wrongSize = size === 0.U || !aligned(size, Contract.AreaAlignment) || beyond(size) ||
    bytes(inHand.end) >> p.lineLog2 > io.windowLines

  // Those that were found good.
  val pages       = Mem(areaCount, new Pages)
  val area        = pages.read(step)
  val pair        = pages.read(other)
  val bitmapBytes = heapBytes >> (alignment(3, 0) +& 3.U)
  val needed = MuxLookup(step, 0.U(p.windowAddressBits.W))(
    Seq(
      A.Shapes.U  -> Contract.LineBytes.U,
      A.Limits.U  -> Cat(regionCount(p.regionBits, 0), 0.U(3.W)),
      A.Live.U    -> Cat(regionCount(p.regionBits, 0), 0.U(3.W)),
      A.Bitmap0.U -> bitmapBytes,
      A.Bitmap1.U -> bitmapBytes,
      A.Heap.U    -> heapBytes
    ).map { case (k, v) => k -> v.pad(p.windowAddressBits) }
  )
  val required  = VecInit(Seq(A.Shapes, A.Limits, A.Live, A.Bitmap0, A.Bitmap1, A.Heap).map(step === _.U)).asUInt.orR
  val badShapes = step === A.Shapes.U && !area.goodTable
  val ring      = rings(step(0))
  val moved     = step < 2.U && (ring.first =/= lines(bytes(area.first)) || ring.count =/= lines(bytes(area.count)))

  val fault = Wire(Valid(new FaultReport))
  fault.valid := false.B
  fault.bits  := FaultReport(Contract.Fault.BadConfig, areaAt(step), offset)
  val done = WireDefault(false.B)
  io.done        := RegNext(done, false.B)
  io.fault.valid := RegNext(done && fault.valid, false.B)
  io.fault.bits  := RegEnable(fault.bits, done)
  private def wrong(where: UInt, value: UInt): Unit = {
    fault.valid        := true.B
    fault.bits.address := where
    fault.bits.detail  := value
    done               := true.B
    state              := State.Idle
  }
  // Kept of the areas that a cycle uses.
  val areas  = Reg(Vec(areaCount, new Area(p)))
  val judged = Wire(new Area(p))
  judged.first := lines(offset)
  judged.count := Mux(placed, lines(size), 0.U)

  switch(state) {
    is(State.Idle) {
      when(io.start) {
        lineAt    := Mux(io.rings, 1.U, 0.U)
        ringsOnly := io.rings
        state     := State.Ask
      }
    }
    is(State.Ask) {
      step := Cat(lineAt - 1.U, 0.U(2.W)).take(4)
      when(io.read.request.fire) { state := State.Wait }
    }
    is(State.Wait) {
      when(io.read.response.valid) {
        lineAt := lineAt + 1.U
        when(lineAt === 0.U) { page := io.read.response.bits.data }.otherwise { line := io.read.response.bits.data }
        state := Mux(lineAt === 0.U, State.Fields, State.Take)
      }
    }
    is(State.Fields) {
      state := State.Ask
      for ((bad, where, value) <- wrongFields.reverse) { when(bad) { wrong(where, value) } }
    }
    is(State.Take) {
      val here = VecInit((0 until 4).map(i => line(128 * i + 127, 128 * i)))(step(1, 0))
      offset := here(63, 0)
      size   := here(127, 64)
      state  := State.Judge
    }
    is(State.Judge) {
      pages.write(step, inHand)
      when(!ringsOnly) { areas(step) := judged }
      step  := step + 1.U
      other := 0.U
      state := State.Take
      when(step(1, 0).andR) { state := State.Ask }
      when(step.andR) { state := State.Overlaps }
      when(ringsOnly && step(0)) {
        step  := 0.U
        state := State.Rings
      }
      when(exists && wrongSize) { wrong(sizeAt(step), size) }
      when(exists && wrongOffset) { wrong(areaAt(step), offset) }
      when(ringsOnly && !wrongOffset && !wrongSize && !goodTable(size)) { wrong(sizeAt(step), size) }
    }
    is(State.Overlaps) {
      other := other + 1.U
      when(other.andR) {
        step := step + 1.U
        when(step.andR) { state := State.Sizes }
      }
    }
    is(State.Sizes) {
      step := step + 1.U
      when(step.andR) { state := State.Sized }
    }
    is(State.Sized) {
      done  := true.B
      state := State.Idle
    }
    // Both areas, the second read as the other of the first.
    is(State.Rings) {
      step := step + 1.U
      when(!step(1)) {
        rings(step(0)).first := lines(bytes(area.first))
        rings(step(0)).count := lines(bytes(area.count))
      }.otherwise {
        done  := true.B
        state := State.Idle
      }
    }
  }
  // Of the area, and the pair, of the cycle before.
  val areaLate   = RegNext(area)
  val stepLate   = RegNext(step)
  val sized      = RegNext(state === State.Sizes, false.B)
  val wrongCount = RegNext(badShapes || (required && bytes(area.count) < needed))
  val missing    = RegNext(required && !area.placed)
  val movedLate  = RegNext(moved)
  val paired     = RegNext(state === State.Overlaps || (state === State.Rings && step === 1.U), false.B)
  val pairOverlaps = RegNext(area.placed && pair.placed && other < step) &&
    RegNext(area.first < pair.end) && RegNext(pair.first < area.end)
  when(state =/= State.Idle) {
    when(sized && wrongCount) { wrong(sizeAt(stepLate), bytes(areaLate.count)) }
    when(sized && missing) { wrong(areaAt(stepLate), 0.U) }
    when((sized && movedLate) || (paired && pairOverlaps)) { wrong(areaAt(stepLate), bytes(areaLate.first)) }
  }

  // Who waits for an answer takes it first.
  when(io.stop) {
    done := false.B
    when(state =/= State.Wait || io.read.response.valid) { state := State.Idle }
  }

  io.areas     := areas
  io.ringAreas := rings
  io.ringLog2  := RegEnable(Log2(rings(1).count).take(5), state =/= State.Idle)
  // What follows from the fields is worked out while they are checked, which takes longer.
  private def kept[T <: Data](x: T): T = RegEnable(x, state =/= State.Idle)
  val c                                = io.config
  c.heapBase      := heapBase
  c.fromNarrow    := kept(field(C.NarrowOopBase, 8) - heapBase)
  c.fromWide      := kept(0.U - heapBase)
  c.narrowShift   := narrowShift.take(4)
  c.wideOops      := kept(oopBytes === 8.U)
  c.wideKlass     := kept(klassBytes === 8.U)
  c.alignmentLog2 := alignment.take(4)
  c.regionLog2    := regionLog2.take(6)
  c.regionCount   := regionCount.take(p.regionBits + 1)
  c.mirrorOffset  := mirror
  c.heapBytes     := kept(heapBytes)
  // Smallest shift that brings every region's flag into the store of flags.
  private val lastRegion = (regionCount - 1.U)(p.regionBits, 0)
  c.flagShift := kept(
    PriorityEncoder((p.flagLog2 to p.regionBits).map(i => !lastRegion(p.regionBits, i).orR) :+ true.B)
  )
  c.flagUnits := kept(Region.units(regionLog2) + c.flagShift)
  c.heap      := areas(A.Heap).first
  c.limits    := areas(A.Limits).first
  c.live      := areas(A.Live).first
  c.bitmap    := areas(A.Bitmap0).first
  when(io.bitmap(0)) { c.bitmap := areas(A.Bitmap1).first }
  c.shapes         := areas(A.Shapes).first
  c.shapesLog2     := kept(Log2(areas(A.Shapes).count).take(5))
  c.extension      := areas(A.ShapeExtension).first
  c.extensionLines := areas(A.ShapeExtension).count
  c.spill          := areas(A.Spill).first
  c.spillPerLane   := areas(A.Spill).count >> p.laneLog2
}
