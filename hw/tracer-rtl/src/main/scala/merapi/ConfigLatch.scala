// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

class Area extends Bundle {
  val offset = UInt(64.W)
  val size   = UInt(64.W)
}

/** Copies configuration and directory out of the control page, once, and checks every field against the contract and
  * the window's size. The copy is what the cycle uses; the page is not looked at again.
  *
  * `rings` asks for the two ring areas alone (a handshake). Checks go one a cycle: fields, areas, pairs of areas, sizes.
  */
class ConfigLatch(p: TracerParameters) extends Module {
  private val areaCount = Contract.AreaCount.toInt
  val io = IO(new Bundle {
    val start       = Input(Bool())
    val rings       = Input(Bool())
    val bitmap      = Input(UInt(1.W))
    val windowLines = Input(UInt((p.lineAddress + 1).W))
    val coherence   = Input(UInt(8.W))
    val done        = Output(Bool()) // pulse, with `fault`
    val fault       = Valid(new FaultReport)
    val config      = Output(new TraceConfig(p))
    val areas       = Output(Vec(areaCount, new Area))
    val ringAreas   = Output(Vec(2, new Area))
    val read        = new ReadPort(p)
  })
  import Contract.{Area => A, ConfigLayout => C, DirectoryLayout => D}
  object State extends ChiselEnum { val Idle, Ask, Wait, Fields, Areas, Overlaps, Sizes, Rings = Value }
  val state = RegInit(State.Idle)
  val step  = Reg(UInt(4.W))
  val other = Reg(UInt(4.W))
  val ringsOnly = Reg(Bool())
  val page  = Reg(UInt(p.lineBits.W)) // the configuration line
  val areas = Reg(Vec(areaCount, new Area))
  val rings = Reg(Vec(2, new Area)) // as at the handshake
  val windowBytes = Cat(io.windowLines, 0.U(6.W)).pad(64)

  io.read.request.valid     := state === State.Ask
  io.read.request.bits.tag  := 0.U
  io.read.request.bits.line := (C.At / 64).U + step // the directory follows the configuration
  require(D.At == C.At + 64, "configuration and directory are read as neighbours")

  private def field(at: Int, bytes: Int): UInt = page(8 * (at + bytes) - 1, 8 * at)
  val heapBase    = field(C.HeapBase, 8)
  val narrowShift = field(C.NarrowOopShift, 1)
  val oopBytes    = field(C.OopBytes, 1)
  val klassBytes  = field(C.KlassBytes, 1)
  val alignment   = field(C.AlignmentLog2, 1)
  val regionLog2  = field(C.RegionLog2, 1)
  val coherence   = field(C.Coherence, 1)
  val reserved0   = field(22, 2)
  val mirror      = field(C.MirrorSizeOffset, 4)
  val regionCount = field(C.RegionCount, 4)
  val heapBytes   = (regionCount.pad(64) << regionLog2(5, 0))(63, 0)
  val countMost   = (1.U(64.W) << p.heapAddressBits) >> regionLog2(5, 0)
  val baseLow     = heapBase(7, 0) & ((1.U(9.W) << alignment(3, 0)) - 1.U)(7, 0)
  private def at(offset: Int): UInt = (C.At + offset).U(64.W)
  // In the order of the fields; the first that is wrong is named.
  val wrongFields = Seq(
    (narrowShift > 8.U, at(C.NarrowOopShift), narrowShift),
    (oopBytes =/= 4.U && oopBytes =/= 8.U, at(C.OopBytes), oopBytes),
    (klassBytes =/= 4.U && klassBytes =/= 8.U, at(C.KlassBytes), klassBytes),
    (alignment < 3.U || alignment > 8.U, at(C.AlignmentLog2), alignment),
    (regionLog2 < 16.U || regionLog2 > 36.U, at(C.RegionLog2), regionLog2),
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

  private def areaAt(i: UInt): UInt = D.At.U(64.W) + (i << 4)
  private def sizeAt(i: UInt): UInt = areaAt(i) + 8.U
  val area   = areas(step)
  val mapped = step === A.Heap.U || step === A.Bitmap0.U || step === A.Bitmap1.U
  private def aligned(x: UInt, alignment: BigInt): Bool = (x & (alignment - 1).U) === 0.U
  val exists = area.offset =/= 0.U || ringsOnly
  val wrongOffset = !aligned(area.offset, Contract.AreaAlignment) ||
    (mapped && !aligned(area.offset, Contract.MappedAlignment)) ||
    area.offset < Contract.ControlBytes.U || area.offset >= windowBytes
  val wrongSize = area.size === 0.U || !aligned(area.size, Contract.AreaAlignment) || area.size > windowBytes - area.offset
  val notPower  = (area.size & (area.size - 1.U)).orR
  val pair      = areas(other)
  val overlap = area.offset =/= 0.U && pair.offset =/= 0.U && other < step &&
    area.offset < pair.offset + pair.size && pair.offset < area.offset + area.size
  val bitmapBytes = heapBytes >> (alignment(3, 0) +& 3.U)
  val needed = MuxLookup(step, 0.U(64.W))(
    Seq(
      A.Shapes.U  -> Contract.LineBytes.U,
      A.Limits.U  -> Cat(regionCount, 0.U(3.W)),
      A.Live.U    -> Cat(regionCount, 0.U(3.W)),
      A.Bitmap0.U -> bitmapBytes,
      A.Bitmap1.U -> bitmapBytes,
      A.Heap.U    -> heapBytes
    ).map { case (k, v) => k -> v.pad(64) }
  )
  val required  = VecInit(Seq(A.Shapes, A.Limits, A.Live, A.Bitmap0, A.Bitmap1, A.Heap).map(step === _.U)).asUInt.orR
  val badShapes = step === A.Shapes.U && (notPower || (area.size >> (31 + 6)).orR)
  val ring      = rings(step(0))
  val moved     = step < 2.U && !ringsOnly && (ring.offset =/= area.offset || ring.size =/= area.size)

  val fault = Wire(Valid(new FaultReport))
  fault.valid := false.B
  fault.bits  := FaultReport(Contract.Fault.BadConfig, areaAt(step), area.offset)
  io.done     := false.B
  io.fault.valid := io.done && fault.valid
  io.fault.bits  := fault.bits
  private def wrong(where: UInt, value: UInt): Unit = {
    fault.valid        := true.B
    fault.bits.address := where
    fault.bits.detail  := value
    io.done            := true.B
    state              := State.Idle
  }
  private def advance(next: State.Type): Unit = {
    step := step + 1.U
    when(step === (areaCount - 1).U) { state := next }
  }
  switch(state) {
    is(State.Idle) {
      when(io.start) {
        step      := Mux(io.rings, 1.U, 0.U)
        ringsOnly := io.rings
        state     := State.Ask
      }
    }
    is(State.Ask) { when(io.read.request.fire) { state := State.Wait } }
    is(State.Wait) {
      when(io.read.response.valid) {
        val data = io.read.response.bits.data
        when(step === 0.U) { page := data }.otherwise {
          for (i <- 0 until 4) areas(Cat((step - 1.U)(1, 0), i.U(2.W))) := Cat(
            data(128 * i + 63, 128 * i),
            data(128 * i + 127, 128 * i + 64)
          ).asTypeOf(new Area)
        }
        state := State.Ask
        step  := step + 1.U
        when(ringsOnly || step === 4.U) {
          step  := 0.U
          state := Mux(ringsOnly, State.Areas, State.Fields)
        }
      }
    }
    is(State.Fields) {
      state := State.Areas
      for ((bad, where, value) <- wrongFields.reverse) { when(bad) { wrong(where, value) } }
    }
    is(State.Areas) {
      advance(State.Overlaps)
      when(ringsOnly && step === 1.U) { state := State.Rings }
      other := 0.U
      when(exists && wrongSize) { wrong(sizeAt(step), area.size) }
      when(exists && wrongOffset) { wrong(areaAt(step), area.offset) }
      when(ringsOnly && !wrongOffset && !wrongSize && notPower) { wrong(sizeAt(step), area.size) }
    }
    is(State.Overlaps) {
      other := other + 1.U
      when(other === (areaCount - 1).U) { advance(State.Sizes) }
      when(overlap) { wrong(areaAt(step), area.offset) }
    }
    is(State.Sizes) {
      step := step + 1.U
      when(step === (areaCount - 1).U) {
        io.done := true.B
        state   := State.Idle
      }
      when(badShapes) { wrong(sizeAt(step), area.size) }
      when(required && area.size < needed) { wrong(sizeAt(step), area.size) }
      when(required && area.offset === 0.U) { wrong(areaAt(step), 0.U) }
      when(moved) { wrong(areaAt(step), area.offset) }
    }
    is(State.Rings) {
      io.done  := true.B
      state    := State.Idle
      rings(0) := areas(0)
      rings(1) := areas(1)
      val (a, b) = (areas(0), areas(1))
      when(a.offset < b.offset + b.size && b.offset < a.offset + a.size) { wrong(areaAt(1.U), b.offset) }
    }
  }

  private def lineOf(bytes: UInt): UInt = (bytes >> 6)(p.lineAddress - 1, 0)
  io.areas     := areas
  io.ringAreas := rings
  val c = io.config
  c.heapBase       := heapBase
  c.narrowBase     := field(C.NarrowOopBase, 8)
  c.narrowShift    := narrowShift
  c.wideOops       := oopBytes === 8.U
  c.wideKlass      := klassBytes === 8.U
  c.alignmentLog2  := alignment
  c.regionLog2     := regionLog2
  c.regionCount    := regionCount
  c.mirrorOffset   := mirror
  c.heapBytes      := heapBytes
  // Smallest shift that brings every region's flag into the store of flags.
  c.flagShift := PriorityEncoder((0 until 32).map(i => ((regionCount - 1.U) >> i) < p.rescanFlags.U))
  c.heap           := lineOf(areas(A.Heap).offset)
  c.limits         := lineOf(areas(A.Limits).offset)
  c.live           := lineOf(areas(A.Live).offset)
  c.bitmap         := lineOf(Mux(io.bitmap(0), areas(A.Bitmap1).offset, areas(A.Bitmap0).offset))
  c.shapes         := lineOf(areas(A.Shapes).offset)
  c.shapesLog2     := Log2(lineOf(areas(A.Shapes).size))
  c.extension      := lineOf(areas(A.ShapeExtension).offset)
  c.extensionLines := Mux(areas(A.ShapeExtension).offset === 0.U, 0.U, lineOf(areas(A.ShapeExtension).size))
  c.spill          := lineOf(areas(A.Spill).offset)
  c.spillPerLane   := Mux(areas(A.Spill).offset === 0.U, 0.U, lineOf(areas(A.Spill).size) >> p.laneLog2)
}
