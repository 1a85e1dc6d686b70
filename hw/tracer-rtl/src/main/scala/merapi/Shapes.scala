// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

object ShapeLimits {

  /** Sizes and offsets up to 2^24; a shape beyond that is treated as absent: its objects go to the host. */
  val bits = 24
}

/** References of an object: [start, end) in units of four bytes from its start; equal when the block is not there. */
class ShapeBlock extends Bundle {
  val start = UInt((ShapeLimits.bits - 2).W)
  val end   = UInt((ShapeLimits.bits + 2).W)
}

/** A checked shape, as lanes use it. */
class Shape(p: TracerParameters) extends Bundle {
  val kind        = UInt(3.W)
  val quiet       = Bool()
  val elementLog2 = UInt(2.W)
  val size        = UInt(ShapeLimits.bits.W) // words; of an array, its header's bytes
  val hasBlocks   = Bool()
  val extended    = Bool() // more blocks than are in line
  val blockCount  = UInt(ShapeLimits.bits.W)
  val extension   = UInt(p.lineAddress.W)    // line, counted from the heap's first
  val blocks      = Vec(Contract.ShapeInlineBlocks.toInt, new ShapeBlock)
}

/** Answer of the walker: `found` with a shape, or none. All lanes hear it, whoever asked. */
class ShapeAnswer(p: TracerParameters) extends Bundle {
  val klass = UInt(64.W)
  val found = Bool()
  val shape = new Shape(p)
}

class ShapePort(p: TracerParameters) extends Bundle {
  val klass  = Decoupled(UInt(64.W))
  val answer = Flipped(Valid(new ShapeAnswer(p)))
}

/** Looks shapes up in the window's table, one at a time, for all lanes, and checks them. What one lane asks for, all
  * have: lanes meet the same klasses.
  */
class ShapeWalker(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config = Input(new TraceConfig(p))
    val lanes  = Vec(p.lanes, Flipped(new ShapePort(p)))
    val read   = new ReadPort(p)
    val quiet  = Output(Bool())
    val absent = Output(Bool())
    val fault  = Valid(new FaultReport)
  })
  object State extends ChiselEnum { val Idle, Hash, Home, Ask, Wait, Judge, Check, Tell = Value }
  val state = RegInit(State.Idle)
  val klass = Reg(UInt(64.W))
  val probe = Reg(UInt(log2Ceil(Contract.ShapeProbeLimit.toInt + 1).W))
  val line  = Reg(UInt(p.lineBits.W))
  val found = Reg(Bool())

  val pick = Module(new RRArbiter(UInt(64.W), p.lanes))
  pick.io.in.zip(io.lanes).foreach { case (a, l) => a <> l.klass }
  pick.io.out.ready := state === State.Idle

  val c      = io.config
  // The hash, a byte of the folded klass word a cycle, the highest first.
  val folded  = Reg(UInt(32.W))
  val product = Reg(UInt(32.W))
  val bytes   = Reg(UInt(2.W))
  val home    = RegNext(product >> (32.U - c.shapesLog2))
  val mask   = ((1.U(32.W) << c.shapesLog2) - 1.U)(31, 0)
  val slots  = (1.U(32.W) << c.shapesLog2)(31, 0)
  io.read.request.valid     := state === State.Ask
  io.read.request.bits.tag  := 0.U
  io.read.request.bits.line := c.shapes + ((home +& probe) & mask)

  private def field(at: Int, bytes: Int): UInt = line(8 * (at + bytes) - 1, 8 * at)
  import Contract.{ShapeKind, ShapeLayout => L}
  val shape = Wire(new Shape(p))
  val kind8 = field(L.Kind, 1)
  shape.kind        := kind8
  shape.quiet       := field(L.Flags, 1)(Contract.ShapeFlag.Quiet)
  shape.elementLog2 := field(L.ElementLog2, 1)
  val isArray = kind8 === ShapeKind.ObjArray.U || kind8 === ShapeKind.PrimArray.U
  shape.size        := Mux(isArray, field(L.HeaderBytes, 4), field(L.SizeWords, 4))
  shape.blockCount  := field(L.BlockCount, 4)
  shape.hasBlocks   := shape.blockCount =/= 0.U
  shape.extended    := shape.blockCount > Contract.ShapeInlineBlocks.U
  shape.extension   := RegNext(c.extension - c.heap) + (field(L.Extension, 8) >> 6)
  for (i <- 0 until 4) {
    val start = field(L.Block + 8 * i + Contract.RefBlockLayout.Offset, 4)(ShapeLimits.bits - 1, 2)
    val count = field(L.Block + 8 * i + Contract.RefBlockLayout.Count, 4)(ShapeLimits.bits - 1, 0)
    shape.blocks(i).start := start
    shape.blocks(i).end   := start +& Mux(shape.blockCount > i.U, Mux(c.wideOops, Cat(count, 0.U(1.W)), count), 0.U)
  }
  // Fields against each other, at full width.
  val size       = field(L.SizeWords, 4)
  val header     = field(L.HeaderBytes, 4)
  val blockCount = field(L.BlockCount, 4)
  val extension  = field(L.Extension, 8)
  val element    = field(L.ElementLog2, 1)
  val oopLog2    = Mux(c.wideOops, 3.U, 2.U)
  val oopMask    = Mux(c.wideOops, 7.U, 3.U)
  val fields     = Mux(c.wideKlass, 16.U, 12.U)
  val sizeBytes  = Cat(size, 0.U(3.W))
  val inline     = blockCount <= Contract.ShapeInlineBlocks.U
  val inlineGood = (0 until 4).map { i =>
    val offset = field(L.Block + 8 * i, 4)
    val count  = field(L.Block + 8 * i + 4, 4)
    val end    = offset.pad(40) +& (count.pad(40) << oopLog2)
    blockCount <= i.U || ((offset & oopMask) === 0.U && offset >= fields && end <= sizeBytes)
  }.reduce(_ && _)
  val extensionBytes = Cat(c.extensionLines, 0.U(6.W))
  val extensionGood = extension(5, 0) === 0.U && extension <= extensionBytes &&
    Cat(blockCount, 0.U(3.W)) <= extensionBytes - extension
  val instanceGood = blockCount <= (sizeBytes >> oopLog2) && Mux(inline, inlineGood, extensionGood)
  val arrayGood    = header >= fields + 4.U
  val good = MuxLookup(kind8, false.B)(
    Seq(
      ShapeKind.Instance.U  -> instanceGood,
      ShapeKind.ObjArray.U  -> (arrayGood && (header & oopMask) === 0.U && element === oopLog2),
      ShapeKind.PrimArray.U -> (arrayGood && element <= 3.U),
      ShapeKind.Mirror.U    -> (c.mirrorOffset >= fields),
      ShapeKind.Reference.U -> true.B,
      ShapeKind.Loader.U    -> true.B,
      ShapeKind.Host.U      -> true.B
    )
  )
  val goodNow = RegNext(good)
  // A block of a good shape ends within the object: so its offset and count are within the limit as well.
  val large = (size >> ShapeLimits.bits).orR || (header >> ShapeLimits.bits).orR ||
    (kind8 === ShapeKind.Instance.U && (size >> (ShapeLimits.bits - 3)).orR)

  val key = line(63, 0)
  io.fault.valid := false.B
  io.fault.bits  := FaultReport(Contract.Fault.BadShape, klass, kind8)
  io.absent      := false.B
  switch(state) {
    is(State.Idle) {
      when(pick.io.out.fire) {
        klass := pick.io.out.bits
        probe := 0.U
        found := false.B
        val special = pick.io.out.bits === Contract.ShapeKeyEmpty.U || pick.io.out.bits.andR
        state   := Mux(special, State.Tell, State.Hash)
        folded  := pick.io.out.bits(31, 0) ^ pick.io.out.bits(63, 32)
        product := 0.U
        bytes   := 0.U
        io.absent := special
      }
    }
    is(State.Hash) {
      product := Cat(product(23, 0), 0.U(8.W)) + (folded(31, 24) * Contract.ShapeHashMultiplier.U(32.W))(31, 0)
      folded  := folded << 8
      bytes   := bytes + 1.U
      when(bytes.andR) { state := State.Home }
    }
    is(State.Home) { state := State.Ask }
    is(State.Ask) { when(io.read.request.fire) { state := State.Wait } }
    is(State.Wait) {
      when(io.read.response.valid) {
        line  := io.read.response.bits.data
        state := State.Judge
      }
    }
    // One cycle for the fields against each other.
    is(State.Judge) { state := State.Check }
    is(State.Check) {
      val last = probe === (Contract.ShapeProbeLimit - 1).U || probe +& 1.U === slots
      when(key === klass) {
        found          := goodNow && !large
        io.fault.valid := !goodNow
        state          := State.Tell
      }.elsewhen(key === Contract.ShapeKeyEmpty.U || last) {
        io.absent := true.B
        state     := State.Tell
      }.otherwise {
        probe := probe + 1.U
        state := State.Ask
      }
    }
    is(State.Tell) { state := State.Idle }
  }
  for (l <- io.lanes) {
    l.answer.valid      := state === State.Tell
    l.answer.bits.klass := klass
    l.answer.bits.found := found
    l.answer.bits.shape := shape
  }
  io.quiet := state === State.Idle
}
