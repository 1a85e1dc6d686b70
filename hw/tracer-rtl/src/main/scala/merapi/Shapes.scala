// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

object ShapeLimits {

  /** Sizes and offsets up to 2^24; a shape beyond that is treated as absent: its objects go to the host. */
  val bits = 24
}

class ShapeBlock extends Bundle {
  val offset = UInt(ShapeLimits.bits.W)
  val count  = UInt(ShapeLimits.bits.W)
}

/** A checked shape. */
class Shape(p: TracerParameters) extends Bundle {
  val kind        = UInt(3.W)
  val quiet       = Bool()
  val elementLog2 = UInt(2.W)
  val header      = UInt(ShapeLimits.bits.W)
  val size        = UInt(ShapeLimits.bits.W) // words
  val blockCount  = UInt(ShapeLimits.bits.W)
  val extension   = UInt(p.lineAddress.W)    // line of the window
  val blocks      = Vec(Contract.ShapeInlineBlocks.toInt, new ShapeBlock)
}

/** Answer of the walker: `found` with a shape, or none. */
class ShapeAnswer(p: TracerParameters) extends Bundle {
  val found = Bool()
  val shape = new Shape(p)
}

class ShapePort(p: TracerParameters) extends Bundle {
  val klass  = Decoupled(UInt(64.W))
  val answer = Flipped(Valid(new ShapeAnswer(p)))
}

/** Looks shapes up in the window's table, one at a time, for all lanes, and checks them. */
class ShapeWalker(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config = Input(new TraceConfig(p))
    val lanes  = Vec(p.lanes, Flipped(new ShapePort(p)))
    val read   = new ReadPort(p)
    val quiet  = Output(Bool())
    val absent = Output(Bool())
    val fault  = Valid(new FaultReport)
  })
  object State extends ChiselEnum { val Idle, Ask, Wait, Check, Tell = Value }
  val state = RegInit(State.Idle)
  val klass = Reg(UInt(64.W))
  val lane  = Reg(UInt(log2Ceil(p.lanes max 2).W))
  val probe = Reg(UInt(log2Ceil(Contract.ShapeProbeLimit.toInt + 1).W))
  val line  = Reg(UInt(p.lineBits.W))
  val found = Reg(Bool())

  val pick = Module(new RRArbiter(UInt(64.W), p.lanes))
  pick.io.in.zip(io.lanes).foreach { case (a, l) => a <> l.klass }
  pick.io.out.ready := state === State.Idle

  val c      = io.config
  val folded = klass(31, 0) ^ klass(63, 32)
  val home   = (folded * Contract.ShapeHashMultiplier.U(32.W))(31, 0) >> (32.U - c.shapesLog2)
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
  shape.header      := field(L.HeaderBytes, 4)
  shape.size        := field(L.SizeWords, 4)
  shape.blockCount  := field(L.BlockCount, 4)
  shape.extension   := c.extension + (field(L.Extension, 8) >> 6)
  for (i <- 0 until 4) {
    shape.blocks(i).offset := field(L.Block + 8 * i + Contract.RefBlockLayout.Offset, 4)
    shape.blocks(i).count  := field(L.Block + 8 * i + Contract.RefBlockLayout.Count, 4)
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
        lane  := pick.io.chosen
        probe := 0.U
        found := false.B
        val special = pick.io.out.bits === Contract.ShapeKeyEmpty.U || pick.io.out.bits.andR
        state := Mux(special, State.Tell, State.Ask)
        io.absent := special
      }
    }
    is(State.Ask) { when(io.read.request.fire) { state := State.Wait } }
    is(State.Wait) {
      when(io.read.response.valid) {
        line  := io.read.response.bits.data
        state := State.Check
      }
    }
    is(State.Check) {
      val last = probe === (Contract.ShapeProbeLimit - 1).U || probe +& 1.U === slots
      when(key === klass) {
        found          := good && !large
        io.fault.valid := !good
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
  for ((l, i) <- io.lanes.zipWithIndex) {
    l.answer.valid      := state === State.Tell && lane === i.U
    l.answer.bits.found := found
    l.answer.bits.shape := shape
  }
  io.quiet := state === State.Idle
}

/** Shapes of one lane: two ways, filled from the walker. `seen` is kept per entry: the klass was reported. */
class ShapeCache(p: TracerParameters) extends Module {
  private val setBits = log2Ceil(p.shapeSets)
  val io = IO(new Bundle {
    val klass      = Flipped(Valid(UInt(64.W)))
    val done       = Output(Bool()) // the answer below is for `klass`
    val found      = Output(Bool())
    val shape      = Output(new Shape(p))
    val seen       = Output(Bool())
    val setSeen    = Input(Bool())  // with done: mark it reported
    val accept     = Input(Bool())  // with done: the answer was taken
    val forgetSeen = Input(Bool())  // a report did not leave after all
    val invalidate = Input(Bool())
    val missed     = Output(Bool())
    val walker     = new ShapePort(p)
  })
  class Entry extends Bundle {
    val klass = UInt(64.W)
    val shape = new Shape(p)
  }
  val ways  = Seq.fill(2)(Mem(p.shapeSets, new Entry))
  val valid = Seq.fill(2)(RegInit(0.U(p.shapeSets.W)))
  val seen  = Seq.fill(2)(RegInit(0.U(p.shapeSets.W)))
  val older = RegInit(0.U(p.shapeSets.W)) // way to replace next

  val klass = io.klass.bits
  // Klass words are aligned to eight bytes or are shifted; fold everything.
  val set   = Fold(klass, 64, setBits)
  val bit   = UIntToOH(set, p.shapeSets)
  val reads = ways.map(_.read(set))
  val hits  = (0 until 2).map(w => valid(w)(set) && reads(w).klass === klass)
  val hit   = hits.reduce(_ || _)

  object State extends ChiselEnum { val Look, Ask, Wait, Absent = Value }
  val state = RegInit(State.Look)
  io.walker.klass.valid := state === State.Ask
  io.walker.klass.bits  := klass
  io.missed             := io.walker.klass.fire
  io.done  := io.klass.valid && ((state === State.Look && hit) || state === State.Absent)
  io.found := state === State.Look
  io.shape := Mux(hits(1), reads(1).shape, reads(0).shape)
  io.seen  := Mux(hits(1), seen(1)(set), seen(0)(set))

  switch(state) {
    is(State.Look) { when(io.klass.valid && !hit) { state := State.Ask } }
    is(State.Ask) { when(io.walker.klass.fire) { state := State.Wait } }
    is(State.Wait) {
      when(io.walker.answer.valid) { state := Mux(io.walker.answer.bits.found, State.Look, State.Absent) }
    }
    is(State.Absent) { when(io.accept) { state := State.Look } }
  }
  val fill  = state === State.Wait && io.walker.answer.valid && io.walker.answer.bits.found
  val entry = Wire(new Entry)
  entry.klass := klass
  entry.shape := io.walker.answer.bits.shape
  for (w <- 0 until 2) {
    val mine = fill && older(set) === w.U
    when(mine) { ways(w).write(set, entry) }
    valid(w) := Mux(io.invalidate, 0.U, Mux(mine, valid(w) | bit, valid(w)))
    seen(w) := Mux(
      io.invalidate || io.forgetSeen,
      0.U,
      Mux(mine, seen(w) & ~bit, Mux(io.setSeen && state === State.Look && hits(w), seen(w) | bit, seen(w)))
    )
  }
  when(io.accept && state === State.Look) { older := Mux(hits(0), older | bit, older & ~bit) }
}
