// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.{FaultReport, ReadPort, TraceConfig, TracerParameters}
import merapi.mark.{LimitCheck, LimitFill, RawReference}
import merapi.primitives.{Fifo, Word}

/** An instance that a lane has sized. `near`: which of its first units of four bytes are references. */
class Looked(p: TracerParameters) extends Bundle {
  val obj   = UInt(p.objectBits.W)
  val klass = UInt(64.W)
  val near  = UInt(Shape.near.W)
}

/** Runs ahead of the lanes along a chain: objects of one klass that are linked by one field.
  *
  * A list has one object in flight, and then the length of the core loop is all there is: limit, line, shape, evaluation,
  * scan, filter, bank and store for every element. While the lanes have next to nothing to do (`starved`) the chaser
  * reads link and klass word of one element after the other, two cycles each, and offers the links as references; the
  * lanes look at what they mark as they do at any grey, many at a time.
  *
  * {{{
  *   looked ── same klass as before? ── which field led here? ──┐ learnt: klass, field
  *          ── klass known ────────────────────────────────────>┴─ Read link ── Decode, read klass word ── Step ──┐
  *                                                                   ^              ^                             │
  *                                                                   │ next link    └── which reads it if here ───┤
  *                                       lines, asked for ahead ─────┘ <──────────────────────────────────────────┤
  *                                                                                                                v
  *                                                                         holder's limit ── references ──> filter
  * }}}
  *
  * Why what it offers is a reference of a live object: the first element was looked at by a lane; each next one is the
  * value of a field that the klass's shape says is a reference, has the same klass word, and lies below its limit. What
  * does not ends the chain, and what follows it in the queue is dropped. So marks, sizes and reports are what they would
  * be without it: it counts nothing, sizes nothing and reports nothing. Its own references are not counted either. (An
  * element that the host has marked, in a region that was not commanded, ends the way of the lanes and not the chain's:
  * what it leads to is live in that cycle anyway, and may be marked before the host asks.)
  *
  * Why it ends: a step costs one of `2 * slots` credits, an object looked at gives one back, and a chain that cannot
  * step for `chasePatience` cycles ends. A ring of elements is therefore left after as many steps as objects were looked
  * at, and some. It waits for the filter and for memory alone; at a pause it begins nothing, and what it has offered goes
  * its way.
  */
class Chaser(p: TracerParameters) extends Module {
  import Chaser._
  private val indexBits = log2Ceil(p.chaseLines)
  private val lineBits  = p.heapAddressBits - p.lineLog2      // counted from the heap's first
  private val wordBits  = p.heapAddressBits - 3
  private val ahead     = p.chaseLines - 1 - p.chaseLines / 4 // the line before is still read
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val looked     = Flipped(Vec(p.lanes, Valid(new Looked(p))))
    val starved    = Input(Bool())                           // the lanes have next to nothing to do
    val crowded    = Input(Bool())                           // some lane has enough to do: no step
    val hold       = Input(Bool())
    val invalidate = Input(Bool())                           // pulse, when quiet
    val dropShapes = Input(Bool())                           // pulse
    val fill       = Input(new LimitFill(p))
    val ask        = Decoupled(UInt(LimitFill.askBits(p).W)) // for limits
    val references = Decoupled(new RawReference(p))
    val read       = new ReadPort(p)
    val quiet      = Output(Bool())
  })
  val c = io.config

  // What lanes looked at, two cycles late; beside it what it is to the one before and to the chain.
  val klass     = Reg(UInt(64.W))                   // of the chain
  val unit      = Reg(UInt(log2Ceil(Shape.near).W)) // of an element, in four bytes: where its link is
  val known     = RegInit(false.B)
  val first     = FaultReport.firstLate(io.looked)
  val before    = RegInit(0.U.asTypeOf(Valid(new Looked(p))))
  val looked    = RegEnable(first.bits, first.valid)
  val lookedNow = RegNext(first.valid, false.B)
  val isChain   = RegNext(known && first.bits.klass === klass, false.B)
  val isLike    = RegNext(before.valid && first.bits.klass === before.bits.klass, false.B)
  val beforeObj = RegEnable(before.bits.obj, first.valid)
  when(first.valid) { before := first }

  val credit  = RegInit((2 * p.slots).U(log2Ceil(p.slots * 2 + 1).W)) // so far ahead at most
  val waited  = RegInit(0.U(log2Ceil(p.chasePatience + 1).W))
  val stepped = WireDefault(false.B)
  val mayStep = RegNext(credit =/= 0.U && !io.crowded, false.B)
  // Of every lane that looks, though several may in one cycle: a credit lost is one less from then on.
  val returned                      = RegNext(PopCount(io.looked.map(_.valid)), 0.U)
  private def most(sum: UInt): UInt = Mux(sum > (2 * p.slots).U, (2 * p.slots).U, sum)
  assert(!(stepped && credit === 0.U), "a step without a credit")
  credit := Mux(stepped, most(credit +& returned - 1.U), most(credit +& returned)).take(credit.getWidth)

  // Lines, by the low bits of their numbers.
  val data                              = Mem(p.chaseLines, UInt(p.lineBits.W))
  val tags                              = Mem(p.chaseLines, UInt((lineBits - indexBits).W))
  val asked                             = RegInit(0.U(p.chaseLines.W))
  val filled                            = RegInit(0.U(p.chaseLines.W))
  private def indexOf(line: UInt): UInt = line(indexBits - 1, 0)
  val at                                = Reg(UInt(wordBits.W)) // word of eight bytes that is read
  val line                              = at >> 3
  val index                             = indexOf(line)
  val pending                           = asked(index) && !filled(index)
  val here                              = asked(index) && filled(index) && tags.read(index) === (line >> indexBits)
  val words                             = data.read(index)
  val word                              = VecInit((0 until 8).map(i => words(64 * i + 63, 64 * i)))(at(2, 0))

  // What was looked at before is not begun with after.
  val forgot = RegNext(io.dropShapes || io.invalidate, false.B)

  object State extends ChiselEnum { val Idle, Pick, Read, Decode, Learn, Step = Value }
  val state    = RegInit(State.Idle)
  val learning = Reg(Bool())
  val newKlass = Reg(UInt(64.W))
  val fields   = Reg(UInt(Shape.near.W))   // to be tried
  val target   = Reg(UInt(p.objectBits.W))
  val obj      = Reg(UInt(p.objectBits.W)) // whose link is read, or has been in Step
  val isFirst  = Reg(Bool())               // a lane looked at it
  val value    = Reg(UInt(64.W))           // as it stands in the heap
  val offset   = Reg(UInt(64.W))           // where it leads, from the heap's start
  val found    = Reg(UInt(64.W))           // klass word of obj

  val check = Module(new LimitCheck(p, UInt(64.W), ahead = false))
  val end   = WireDefault(false.B)
  check.io.fill         := io.fill
  check.io.in.valid     := false.B
  check.io.in.bits.obj  := obj
  check.io.in.bits.data := value
  check.io.region       := RegNext(c.region(obj)) // obj is two cycles old in Step
  io.ask <> check.io.ask
  // An impossible limit is no fault here: the reference to this object met it before.
  val broken = RegInit(false.B)
  val out    = Module(new Fifo(new RawReference(p), 2))
  check.io.out.ready        := out.io.enq.ready
  out.io.enq.valid          := check.io.out.valid && check.io.out.bits.below && !broken
  out.io.enq.bits.value     := check.io.out.bits.data
  out.io.enq.bits.source    := check.io.out.bits.obj
  out.io.enq.bits.host      := false.B
  out.io.enq.bits.uncounted := true.B
  io.references <> out.io.deq
  when(check.io.out.fire && !check.io.out.bits.below) { broken := true.B }

  private def linkOf(of: UInt, unit: UInt): UInt = of + (unit >> 1)
  val klassWord                                  = Mux(c.wideKlass, found, found(31, 0).pad(64))
  val low                                        = offset(7, 0) & ((1.U(9.W) << c.alignmentLog2) - 1.U)(7, 0)
  val inside                                     = offset < c.heapBytes && low === 0.U
  val missing                                    = WireDefault(false.B) // the word at `at` is wanted
  val next                                       = offset(p.heapAddressBits - 1, 3)
  // Where a link leads, and beside it where that object's link is: an addition each. `unit` is older than any link.
  val linked   = Mux(c.wideOops, value, c.scaled(value))
  val from     = Mux(c.wideOops, c.fromWide, c.fromNarrow)
  val fromLink = RegNext(from + Cat(unit >> 1, 0.U(3.W)))
  private def readLink(of: UInt): Unit = {
    value := Mux(c.wideOops, word, Mux(unit(0), word(63, 32), word(31, 0)).pad(64))
    at    := of + 1.U
    state := State.Decode
  }
  switch(state) {
    is(State.Idle) {
      waited   := 0.U
      learning := false.B
      isFirst  := true.B
      when(lookedNow && io.starved && !forgot && !check.io.busy) {
        broken   := false.B
        obj      := looked.obj
        target   := looked.obj
        newKlass := looked.klass
        // Of wide references the lower half.
        fields := looked.near & Mux(c.wideOops, evenUnits, allUnits)
        when(isChain) {
          at    := linkOf(looked.obj, unit)
          state := State.Read
        }.elsewhen(isLike) {
          obj      := beforeObj
          learning := true.B
          known    := false.B
          state    := State.Pick
        }
      }
    }
    is(State.Pick) {
      val candidate = Word.lowestIndex(fields)
      unit   := candidate
      fields := fields & (fields - 1.U)
      at     := linkOf(obj, candidate)
      state  := Mux(fields === 0.U, State.Idle, State.Read)
    }
    is(State.Read) {
      missing := !here
      when(here) { readLink(obj) }
    }
    is(State.Decode) {
      offset  := linked + from
      found   := word
      missing := !here
      when(here) {
        at    := (linked + fromLink)(p.heapAddressBits - 1, 3)
        state := Mux(learning, State.Learn, State.Step)
      }
    }
    is(State.Learn) {
      state := State.Pick
      when(next === target && inside && value =/= 0.U) {
        // It goes on with the one that a lane has just looked at, whose link is at `at`.
        known    := true.B
        klass    := newKlass
        learning := false.B
        obj      := target
        state    := State.Read
      }
    }
    is(State.Step) {
      when((!isFirst && klassWord =/= klass) || value === 0.U) {
        end := true.B
      }.elsewhen(mayStep && check.io.in.ready) {
        check.io.in.valid := !isFirst // a lane sends what the first has
        stepped           := true.B
        waited            := 0.U
        isFirst           := false.B
        obj               := next
        state             := State.Read
        // If not, it is asked for when this step is known to be one.
        when(here) { readLink(next) }
        when(!inside) { end := true.B }
      }.otherwise {
        waited := waited + 1.U
        when(waited === p.chasePatience.U) { end := true.B }
      }
    }
  }
  when(end || io.hold || broken || io.dropShapes) { state := State.Idle }

  // Lines ahead: in the direction of the last step from one line to another near it, so many beyond the present one. Each
  // step asks for one more than it moved on.
  val lastLine = RegInit(0.U(lineBits.W))
  val runs     = RegInit(false.B)
  val down     = Reg(Bool())
  val guess    = Reg(UInt(lineBits.W)) // the line `beyond` + 1 further
  val beyond   = Reg(UInt(indexBits.W))
  val restart  = RegInit(false.B)      // `guess` is to begin at the present line
  val guesses  = Reg(UInt(log2Ceil(near + 2).W))
  val guessed  = WireDefault(false.B)  // `guess` is asked for
  val arrives  = stepped || (state === State.Read && RegNext(state === State.Idle, false.B))
  val moved    = RegNext(arrives, false.B) && state =/= State.Idle
  val newLine  = RegNext(line)
  val move     = LineMove(newLine, lastLine, near)
  val goesOn   = runs && down === move.down && beyond >= move.by
  restart := moved && move.some && !goesOn
  when(restart || guessed) { guess := Mux(restart, lastLine, guess) + Cat(Fill(lineBits - 1, down), 1.U(1.W)) }
  beyond  := beyond + guessed
  guesses := guesses - guessed
  when(moved) {
    lastLine := newLine
    guesses  := Mux(move.up || move.down, move.by, 0.U) + 1.U
    when(move.some) {
      runs   := move.up || move.down
      down   := move.down
      beyond := Mux(goesOn, beyond - move.by + guessed, 0.U).take(indexBits)
    }
  }
  val heapLines = c.heapBytes >> p.lineLog2

  // Requests: what is wanted now, then a guess. One stands here until the memory takes it.
  val asking    = RegInit(false.B)
  val request   = Reg(UInt(lineBits.W))
  val wants     = missing && !pending
  val guessSeat = indexOf(guess)
  val guessFree = !asked(guessSeat) || filled(guessSeat)
  val mayGuess  = runs && !restart && guesses =/= 0.U && beyond < ahead.U && state =/= State.Idle
  val takes     = !asking && !io.hold && Mux(wants, line < heapLines, mayGuess && guessFree && guess < heapLines)
  val chosen    = Mux(wants, line, guess)
  guessed := takes && !wants
  when(takes) {
    asking  := true.B
    request := chosen
    tags.write(indexOf(chosen), chosen >> indexBits)
  }
  when(wants && line >= heapLines) { state := State.Idle } // its klass word would be beyond the heap
  io.read.request.valid     := asking
  io.read.request.bits.line := c.heap + request
  io.read.request.bits.tag  := indexOf(request)
  when(io.read.request.fire) { asking := false.B }
  val answer    = io.read.response
  val answerBit = UIntToOH(indexOf(answer.bits.tag), p.chaseLines)
  val askBit    = UIntToOH(indexOf(chosen), p.chaseLines)
  when(answer.valid) { data.write(indexOf(answer.bits.tag), answer.bits.data) }
  filled := (filled | Mux(answer.valid, answerBit, 0.U)) & ~Mux(takes, askBit, 0.U)
  asked  := asked | Mux(takes, askBit, 0.U)
  when(io.dropShapes || io.invalidate) {
    known        := false.B
    before.valid := false.B
  }
  when(io.invalidate) {
    asked := 0.U
    runs  := false.B
    assert(!(asked & ~filled).orR, "lines dropped while some are on their way")
  }

  // What lanes look at now is theirs: a lane that looks is not quiet.
  io.quiet := state === State.Idle && !io.looked.map(_.valid).reduce(_ || _) && !first.valid && !lookedNow &&
    !(asked & ~filled).orR && !check.io.busy && !out.io.deq.valid
}

object Chaser {

  /** Lines no further apart follow each other. */
  val near = 4

  private val units     = Shape.near
  private val allUnits  = ((BigInt(1) << units) - 1).U(units.W)
  private val evenUnits = (0 until units by 2).map(BigInt(1) << _).reduce(_ | _).U(units.W)
}
