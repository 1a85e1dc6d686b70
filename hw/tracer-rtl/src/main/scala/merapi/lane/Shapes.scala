// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.{Contract, FaultReport, ReadPort, ReadRequest, TraceConfig, TracerParameters}
import merapi.primitives.{Fold, SureFifo, Word}

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
  val extended    = Bool()                   // more blocks than are in line
  val blockCount  = UInt(ShapeLimits.bits.W)
  val extension   = UInt(p.lineAddress.W)    // line, counted from the heap's first
  val blocks      = Vec(Contract.ShapeInlineBlocks.toInt, new ShapeBlock)
  // What the klass word's line holds of the blocks: which of the object's first units of four bytes are references (of
  // an array, the first element alone); and, by the object's place in its line, whether blocks go on in further lines.
  val near   = UInt(Shape.near.W)
  val beyond = UInt(8.W)
}

object Shape {

  /** Units of four bytes: a line may begin two of them into an object. */
  val near = 18

  /** Where an object begins in its klass word's line, in units of four bytes, by the object's number: the klass word of
    * one that begins in a line's last eight bytes is in the next line.
    */
  def placeInLine(place: Int): Int = if (place == 7) -2 else 2 * place
}

object ShapeHash {

  /** What waits for a shape is known by so many bits of its klass word: the same for two klasses costs time alone. */
  val bits = 5

  def apply(klass: UInt): UInt = Fold(klass, 64, bits)
}

class ShapeAsk extends Bundle {
  val klass = UInt(64.W)
  val hash  = UInt(ShapeHash.bits.W)
}

/** Answer of the walker: `found` with a shape, or none. All lanes hear it, whoever asked. */
class ShapeAnswer(p: TracerParameters) extends Bundle {
  val klass = UInt(64.W)
  val hash  = UInt(ShapeHash.bits.W)
  val found = Bool()
  val shape = new Shape(p)
}

class ShapePort(p: TracerParameters) extends Bundle {
  val klass  = Decoupled(new ShapeAsk)
  val answer = Flipped(Valid(new ShapeAnswer(p)))
}

/** Looks shapes up in the window's table for all lanes, several at a time, and checks them. What one lane asks for, all
  * have: lanes meet the same klasses. So a lane's question waits while a klass of the same hash is looked up: its answer
  * is probably this lane's as well.
  *
  * {{{
  *   lanes ── hash, a byte a cycle ── walks (klass, home, probe) ──> memory ── line ── fields ── answer
  *                                          └─────────── next probe ────────────────────────┘
  * }}}
  *
  * A line that comes is judged in two cycles and never waits; a walk that goes on to its next probe has a place to wait
  * in, because there is one for each walk.
  */
class ShapeWalker(p: TracerParameters) extends Module {
  private val walks   = p.shapeWalks
  private val tagBits = log2Ceil(walks)
  val io = IO(new Bundle {
    val config = Input(new TraceConfig(p))
    val lanes  = Vec(p.lanes, Flipped(new ShapePort(p)))
    val read   = new ReadPort(p)
    val quiet  = Output(Bool())
    val absent = Output(Bool())
    val fault  = Valid(new FaultReport)
  })
  object State extends ChiselEnum { val Idle, Hash, Home, Begin, Special = Value }
  val state   = RegInit(State.Idle)
  val ask     = Reg(new ShapeAsk)
  val used    = RegInit(0.U(walks.W))
  val busy    = RegInit(0.U((1 << ShapeHash.bits).W)) // hashes that are looked up
  val klasses = Mem(walks, UInt(64.W))
  val homes   = Mem(walks, UInt(32.W))

  val pick = Module(new RRArbiter(new ShapeAsk, p.lanes))
  // Of the question of the cycle before: between two that are taken there are more cycles than that, and before another
  // question a lane has none for a cycle.
  pick.io.in.zip(io.lanes).foreach { case (a, l) =>
    val mayAsk = RegNext(l.klass.valid && !busy(l.klass.bits.hash), false.B)
    a.valid       := l.klass.valid && mayAsk
    a.bits        := l.klass.bits
    l.klass.ready := a.ready && mayAsk
  }
  pick.io.out.ready := state === State.Idle

  val c = io.config
  // A table has at least a page of slots, more than are probed.
  private val mostSlotsLog2 = log2Ceil(Contract.TableEntriesMax)
  require(Contract.AreaAlignment >= Contract.ShapeProbeLimit * Contract.LineBytes)
  val folded  = Reg(UInt(32.W))
  val product = Reg(UInt(32.W))
  val bytes   = Reg(UInt(2.W))
  val home    = RegNext((product >> (32 - mostSlotsLog2)) >> (mostSlotsLog2.U - c.shapesLog2)(4, 0))
  val mask    = RegNext(((1.U(32.W) << c.shapesLog2) - 1.U)(31, 0))
  val freeTag = PriorityEncoder(~used)
  val special = ask.klass === Contract.ShapeKeyEmpty.U || ask.klass.andR

  // Probes to be read: new walks, and those that go on.
  class Probe extends Bundle {
    val tag   = UInt(tagBits.W)
    val probe = UInt(log2Ceil(Contract.ShapeProbeLimit.toInt + 1).W)
  }
  val probes   = Module(new SureFifo(new Probe, walks))
  val probesOf = Mem(walks, chiselTypeOf(probes.io.put.bits.probe))
  val onward   = Wire(Valid(new Probe))
  val begin    = state === State.Begin && !used.andR && !onward.valid
  probes.io.put.valid := begin || onward.valid
  probes.io.put.bits  := onward.bits
  when(!onward.valid) {
    probes.io.put.bits.tag   := freeTag
    probes.io.put.bits.probe := 0.U
  }
  when(probes.io.put.valid) { probesOf.write(probes.io.put.bits.tag, probes.io.put.bits.probe) }
  when(begin) {
    klasses.write(freeTag, ask.klass)
    homes.write(freeTag, home)
  }
  val asking  = RegInit(false.B)
  val request = Reg(new ReadRequest(p))
  probes.io.deq.ready := !asking || io.read.request.ready
  asking              := probes.io.deq.valid || (asking && !io.read.request.ready)
  when(probes.io.deq.fire) {
    request.tag  := probes.io.deq.bits.tag
    request.line := c.shapes + ((homes.read(probes.io.deq.bits.tag) +& probes.io.deq.bits.probe) & mask)
  }
  io.read.request.valid := asking
  io.read.request.bits  := request

  // A line that came.
  val valid = RegNext(io.read.response.valid, false.B)
  val tag   = RegEnable(io.read.response.bits.tag(tagBits - 1, 0), io.read.response.valid)
  val line  = RegEnable(io.read.response.bits.data, io.read.response.valid)

  private def field(at: Int, bytes: Int): UInt = line(8 * (at + bytes) - 1, 8 * at)
  import Contract.{ShapeKind, ShapeLayout => L}
  val shape = Wire(new Shape(p))
  val kind8 = field(L.Kind, 1)
  shape.kind        := kind8.take(3)
  shape.quiet       := field(L.Flags, 1)(Contract.ShapeFlag.Quiet)
  shape.elementLog2 := field(L.ElementLog2, 1).take(2)
  val isArray = kind8 === ShapeKind.ObjArray.U || kind8 === ShapeKind.PrimArray.U
  shape.size       := Mux(isArray, field(L.HeaderBytes, 4), field(L.SizeWords, 4)).take(ShapeLimits.bits)
  shape.blockCount := field(L.BlockCount, 4).take(ShapeLimits.bits)
  shape.hasBlocks  := shape.blockCount =/= 0.U
  shape.extended   := shape.blockCount > Contract.ShapeInlineBlocks.U
  shape.near       := 0.U // a cycle later
  shape.beyond     := 0.U
  shape.extension  := RegNext(c.extension - c.heap) + (field(L.Extension, 8) >> 6).take(p.lineAddress)
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
  val inlineGood = (0 until 4)
    .map { i =>
      val offset = field(L.Block + 8 * i, 4)
      val count  = field(L.Block + 8 * i + 4, 4)
      val end    = offset.pad(40) +& (count.pad(40) << oopLog2)
      blockCount <= i.U || ((offset & oopMask) === 0.U && offset >= fields && end <= sizeBytes)
    }
    .reduce(_ && _)
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
  // Of the fields that its kind has. A block of a good shape ends within the object: so its offset and count are within
  // the limit as well.
  val large = Mux(
    isArray,
    (header >> ShapeLimits.bits).orR,
    (kind8 =/= ShapeKind.Mirror.U && (size >> ShapeLimits.bits).orR) ||
      (kind8 === ShapeKind.Instance.U && (size >> (ShapeLimits.bits - 3)).orR)
  )

  // Its judgement.
  val key                           = line(63, 0)
  val judged                        = RegNext(valid, false.B)
  private def late[T <: Data](x: T) = RegEnable(x, valid)
  val judgeTag                      = late(tag)
  val klass                         = late(klasses.read(tag))
  val isKlass                       = late(key === klasses.read(tag))
  val isEmpty                       = late(key === Contract.ShapeKeyEmpty.U)
  val goodNow                       = late(good)
  val largeNow                      = late(large)
  val kindNow                       = late(kind8)
  val shapeNow                      = WireDefault(late(shape))
  val probe                         = late(probesOf.read(tag))
  private def below(at: UInt): UInt = Fill(Shape.near, (at >> 5).orR) | Word.first(at(4, 0), Shape.near)
  // In line; what an extended shape has there is nobody's.
  private val inUse    = shapeNow.blocks.indices.map(i => shapeNow.blockCount > i.U && !shapeNow.extended)
  private val elements = shapeNow.size >> 2
  private val first    = UIntToOH(elements(4, 0))(Shape.near - 1, 0) & Fill(Shape.near, !(elements >> 5).orR)
  shapeNow.near := Mux(
    kindNow === ShapeKind.ObjArray.U,
    first,
    shapeNow.blocks.zip(inUse).map { case (b, u) => Mux(u, below(b.end) & ~below(b.start), 0.U) }.reduce(_ | _)
  )
  shapeNow.beyond := VecInit((0 until 8).map { place =>
    val room = ScanJob.slots(p) - Shape.placeInLine(place)
    shapeNow.blocks.zip(inUse).map { case (b, u) => u && b.end > room.U }.reduce(_ || _)
  }).asUInt
  val ends = judged && (isKlass || isEmpty || probe === (Contract.ShapeProbeLimit - 1).U)
  onward.valid      := judged && !ends
  onward.bits.tag   := judgeTag
  onward.bits.probe := probe + 1.U
  io.fault.valid    := judged && isKlass && !goodNow
  io.fault.bits     := FaultReport(Contract.Fault.BadShape, klass, kindNow)

  // Told a cycle later: of a line, else of a klass word that has no shape whatever the table says.
  val telling = RegInit(false.B)
  val told    = Reg(new ShapeAnswer(p))
  val none    = state === State.Special && !ends
  telling := ends || none
  private val klassTold = Mux(ends, klass, ask.klass)
  when(ends || none) {
    told.klass := klassTold
    told.hash  := ShapeHash(klassTold)
    told.found := ends && isKlass && goodNow && !largeNow
    told.shape := shapeNow
  }
  io.absent := (ends && !isKlass) || none
  for (l <- io.lanes) {
    l.answer.valid := telling
    l.answer.bits  := told
  }

  switch(state) {
    is(State.Idle) {
      ask     := pick.io.out.bits
      folded  := pick.io.out.bits.klass(31, 0) ^ pick.io.out.bits.klass(63, 32)
      product := 0.U
      bytes   := 0.U
      when(pick.io.out.fire) { state := State.Hash }
    }
    // The hash, a byte of the folded klass word a cycle, the highest first.
    is(State.Hash) {
      product := Cat(product(23, 0), 0.U(8.W)) + (folded(31, 24) * Contract.ShapeHashMultiplier.U(32.W))(31, 0)
      folded  := Cat(folded(23, 0), 0.U(8.W))
      bytes   := bytes + 1.U
      when(bytes.andR) { state := Mux(special, State.Special, State.Home) }
    }
    is(State.Home) { state := State.Begin }
    is(State.Begin) { when(begin) { state := State.Idle } }
    is(State.Special) { when(none) { state := State.Idle } }
  }
  used := (used & ~Mux(ends, UIntToOH(judgeTag, walks), 0.U)) | Mux(begin, UIntToOH(freeTag, walks), 0.U)
  busy := (busy & ~Mux(telling, UIntToOH(told.hash, 1 << ShapeHash.bits), 0.U)) |
    Mux(pick.io.out.fire, UIntToOH(pick.io.out.bits.hash, 1 << ShapeHash.bits), 0.U)
  io.quiet := state === State.Idle && !used.orR && !telling
}
