// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common._
import merapi.primitives.{Fifo, Word}

class Slice(p: TracerParameters) extends Bundle {
  val first = UInt((p.regionBits + 1).W)
  val count = UInt((p.regionBits + 1).W)
}

/** Lines to be cleared. */
class ClearRange(p: TracerParameters) extends Bundle {
  val first = UInt(p.lineAddress.W)
  val count = UInt(p.lineAddress.W)
}

/** Finds the greys of a slice: every mark bit below its region's limit becomes a grey that is not counted.
  *
  * It reads the bitmap in the window, not the banks' lines: what it must find was marked by the host, before the cycle,
  * or (when flagged chunks are swept again) written back. A mark of this cycle that it happens to see is scanned twice,
  * which costs time only; the control unit holds the lanes meanwhile so that there are hardly any. So a line may be read
  * while a bank writes it back: the marks to be found are in it before and after.
  *
  * Lines are read ahead into `sweepReads` buffers and used in order. After a pause, in which the host may have freed
  * regions, limits are read again, and lines that were read ahead as well.
  */
class BitmapSweep(p: TracerParameters) extends Module {
  private val tagBits = log2Ceil(p.sweepReads)
  private val bitLine = p.objectBits - 9 + 1
  val io = IO(new Bundle {
    val config  = Input(new TraceConfig(p))
    val slice   = Flipped(Valid(new Slice(p))) // when not busy
    val hold    = Input(Bool())
    val resumed = Input(Bool())                // pulse, when quiet: limits may be lower
    val greys   = Vec(p.lanes, Decoupled(new Grey(p)))
    val busy    = Output(Bool())
    val blocked = Output(Bool())               // a store takes no more: lanes must run
    val quiet   = Output(Bool())
    val lines   = Output(Bool())
    val ask     = Decoupled(UInt(LimitFill.askBits(p).W))
    val fill    = Input(new LimitFill(p))
    val read    = new ReadPort(p)
    val fault   = Valid(new FaultReport)
  })
  val c = io.config

  // Limits come from the loader of all checkers, a line of eight regions at a time.
  object State extends ChiselEnum { val Idle, WaitLimit, Judge, Resume, Run = Value }
  val state  = RegInit(State.Idle)
  val region = Reg(UInt((p.regionBits + 1).W))
  val end    = Reg(UInt((p.regionBits + 1).W))
  // Of the regions that share a line with `region`, as many together as come.
  class Limit extends Bundle {
    val good  = UInt(p.limitsTogether.W)
    val value = UInt((64 * p.limitsTogether).W)
  }
  private val rows                        = 8 / p.limitsTogether
  private def placeOf(region: UInt): UInt = LimitFill.rowOf(p, region)(2 - log2Ceil(p.limitsTogether), 0)
  val limits                              = Mem(rows, new Limit)
  assert(!(io.slice.valid && state =/= State.Idle), "a sweep started while one runs")
  // Asked for until all have come: when it begins to ask, some may have passed already.
  val missing = RegInit(0.U(rows.W))
  private def awaitLimit(): Unit = {
    missing := Fill(rows, 1.U(1.W))
    state   := State.WaitLimit
  }
  io.ask.valid := missing.orR && !io.hold
  io.ask.bits  := LimitFill.ask(p, region(p.regionBits - 1, 0))
  val fillHere = io.fill.write && !io.fill.sweep && (io.fill.region >> 3) === (region >> 3)
  val fillAt   = placeOf(io.fill.region)
  when(fillHere) {
    val came = Wire(new Limit)
    came.good  := io.fill.good
    came.value := io.fill.value
    limits.write(fillAt, came)
    missing := missing & ~UIntToOH(fillAt, rows)
  }

  val start        = Region.start(region, c.regionLog2)
  private val read = limits.read(placeOf(region))
  val limit        = LimitFill.of(p, read.value, region)
  val good         = LimitFill.of(p, read.good, region).asBool
  io.fault.valid := state === State.Judge && !good
  io.fault.bits  := FaultReport(Contract.Fault.BadConfig, Cat(c.limits, 0.U(6.W)) + Cat(region, 0.U(3.W)), limit)

  // Bits of this region, from a line's first to `endBit`, exclusive; lines are asked for and used in order.
  val endBit   = Reg(UInt((p.objectBits + 1).W))
  val asked    = Reg(UInt(bitLine.W))                 // next line to ask for
  val used     = Reg(UInt(bitLine.W))                 // next line to use
  val last     = Reg(UInt(bitLine.W))                 // after the last
  val goesOn   = RegInit(false.B)                     // the limit of a region that is being swept is read again
  val arrived  = RegInit(0.U(p.sweepReads.W))
  val buffers  = Mem(p.sweepReads, UInt(p.lineBits.W))
  val asking   = Module(new Fifo(new ReadRequest(p), 2))
  val underWay = asked(tagBits, 0) - used(tagBits, 0) // at most all buffers
  val reading  = RegInit(0.U((tagBits + 1).W))        // of these, asked for and not here
  asking.io.enq.valid     := state === State.Run && asked =/= last && !underWay(tagBits) && !io.hold
  asking.io.enq.bits.tag  := asked(tagBits - 1, 0)
  asking.io.enq.bits.line := c.bitmap + asked
  when(asking.io.enq.fire) { asked := asked + 1.U }
  reading := reading + asking.io.enq.fire - io.read.response.valid
  io.read.request <> asking.io.deq
  io.lines := io.read.request.fire
  when(io.read.response.valid) { buffers.write(io.read.response.bits.tag(tagBits - 1, 0), io.read.response.bits.data) }

  // The line in use: its words that hold bits, the word in use, the bit that is offered; lowest first.
  private val words = p.lineBits / 64
  val bits          = Reg(Vec(words, UInt(64.W)))
  val some          = RegInit(0.U(words.W))
  val bitsLine      = Reg(UInt(bitLine.W))
  val word          = RegInit(0.U(64.W))
  val wordAt        = Reg(UInt((bitLine + log2Ceil(words)).W))
  val mark          = RegInit(0.U.asTypeOf(Valid(UInt(p.objectBits.W))))
  val slotAt        = used(tagBits - 1, 0)
  val load          = state === State.Run && used =/= last && arrived(slotAt) && !some.orR
  val loaded        = buffers.read(slotAt)
  val loadable      = VecInit((0 until words).map(i => loaded(64 * i + 63, 64 * i)))
  // What is offered to the stores: of many, behind a queue, so that no store decides here in the same cycle.
  class Offer extends Bundle {
    val obj   = UInt(p.objectBits.W)
    val store = UInt(p.lanes.W) // one bit
  }
  val found = Wire(Decoupled(new Offer))
  val head  = if (p.wide) Fifo(found, 2) else found
  val spent = !some.orR && word === 0.U && !mark.valid && !head.valid
  val taken = WireDefault(false.B)
  when(load) {
    bits     := loadable
    some     := VecInit(loadable.map(_.orR)).asUInt
    bitsLine := used
    used     := used + 1.U
  }
  // Of a word's bits those below the limit.
  val nextAt  = Cat(bitsLine, PriorityEncoder(some))
  val endWord = endBit >> 6
  val ones    = Fill(64, 1.U(1.W))
  val beyond  = Word.shiftUp(ones, endBit(5, 0))
  val to      = Mux(nextAt < endWord, ones, Mux(nextAt === endWord, ~beyond, 0.U))
  val takeBit = word =/= 0.U && (!mark.valid || taken)
  when(word === 0.U && some.orR) {
    word   := bits(PriorityEncoder(some)) & to
    wordAt := nextAt
    some   := some & (some - 1.U)
  }.elsewhen(takeBit) { word := word & (word - 1.U) }
  when(takeBit) { mark.bits := Cat(wordAt, Word.lowestIndex(word)).take(p.objectBits) }
  val bank = RegEnable(Bank.of(p, Cat(wordAt, 0.U(6.W))), takeBit)
  mark.valid := takeBit || (mark.valid && !taken)
  val fillBit = Mux(io.read.response.valid, UIntToOH(io.read.response.bits.tag, p.sweepReads), 0.U)
  val loadBit = Mux(load, UIntToOH(slotAt, p.sweepReads), 0.U)
  arrived := (arrived | fillBit) & ~loadBit

  found.valid      := mark.valid
  found.bits.obj   := c.objectOf(mark.bits)
  found.bits.store := UIntToOH(bank, p.lanes)
  taken            := found.fire
  for ((g, i) <- io.greys.zipWithIndex) {
    g.valid      := head.valid && !io.hold && head.bits.store(i)
    g.bits.obj   := head.bits.obj
    g.bits.count := false.B
  }
  head.ready := !io.hold && (head.bits.store & VecInit(io.greys.map(_.ready)).asUInt).orR
  io.blocked := head.valid && !io.hold && !head.ready

  switch(state) {
    is(State.Idle) {
      when(io.slice.valid) {
        region := io.slice.bits.first
        end    := io.slice.bits.first + io.slice.bits.count
        when(io.slice.bits.count =/= 0.U) { awaitLimit() }
      }
    }
    is(State.WaitLimit) { when(missing === 0.U) { state := State.Judge } }
    is(State.Judge) {
      val firstUnit = c.bitAt(start >> 3)
      val endUnit   = c.bitAt((limit >> 3).take(p.objectBits + 1))
      endBit := endUnit
      // A region begins with a line of its own (docs/contract.md): an empty one has none.
      last  := Mux(good, (endUnit + 511.U) >> 9, firstUnit >> 9).take(bitLine)
      state := State.Resume
      when(!goesOn) {
        asked := (firstUnit >> 9).take(bitLine)
        used  := (firstUnit >> 9).take(bitLine)
        state := State.Run
      }
    }
    is(State.Resume) {
      val from = Mux(used < last, used, last)
      asked  := from
      used   := from
      goesOn := false.B
      state  := State.Run
    }
    is(State.Run) {
      when(used === last && spent && !io.hold) {
        region := region + 1.U
        when(region + 1.U === end) { state := State.Idle }
          .elsewhen((region + 1.U)(2, 0) === 0.U) { awaitLimit() }
          .otherwise { state := State.Judge }
      }
    }
  }
  when(io.resumed) {
    arrived := 0.U
    when(state === State.Run) { goesOn := true.B }
    // Also when it waited already: some limits of the line may have come before the pause.
    when(state =/= State.Idle) { awaitLimit() }
    assert(io.quiet && !state.isOneOf(State.Judge, State.Resume), "a sweep that did not rest in a pause")
  }
  io.busy := state =/= State.Idle
  // Held: reads that were asked for have arrived.
  io.quiet := reading === 0.U && (missing.orR || state =/= State.WaitLimit)
}

/** Writes zeros over a range of lines. */
class Clearer(p: TracerParameters) extends Module {
  private val inFlight = 8
  val io = IO(new Bundle {
    val range = Flipped(Decoupled(new ClearRange(p)))
    val hold  = Input(Bool())
    val busy  = Output(Bool())
    val quiet = Output(Bool())
    val write = new WritePort(p)
  })
  val next = Reg(UInt(p.lineAddress.W))
  val left = RegInit(0.U(p.lineAddress.W))
  val tags = RegInit(0.U(inFlight.W))
  val tag  = PriorityEncoder(~tags)
  io.range.ready := !io.busy
  when(io.range.fire) {
    next := io.range.bits.first
    left := io.range.bits.count
  }
  io.write.request.valid     := left =/= 0.U && !tags.andR && !io.hold
  io.write.request.bits.tag  := tag
  io.write.request.bits.line := next
  io.write.request.bits.data := 0.U
  when(io.write.request.fire) {
    next := next + 1.U
    left := left - 1.U
  }
  val start = Mux(io.write.request.fire, UIntToOH(tag, inFlight), 0.U(inFlight.W))
  val done  = Mux(io.write.done.valid, UIntToOH(io.write.done.bits(2, 0), inFlight), 0.U(inFlight.W))
  tags     := (tags | start) & ~done
  io.busy  := left =/= 0.U || tags.orR
  io.quiet := !tags.orR
}
