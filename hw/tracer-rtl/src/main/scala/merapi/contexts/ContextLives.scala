// SPDX-License-Identifier: Apache-2.0
package merapi.contexts

import chisel3._
import chisel3.util._

import merapi.common.ContextParameters

/** The window that a context is to serve, in bytes of the memory; `bytes` 0: none. */
class AskedWindow extends Bundle {
  val base  = UInt(64.W)
  val bytes = UInt(64.W)
}

/** Which context serves which window, from when to when.
  *
  * A context is free, open, or ending. What an open one serves is what is asked for: any change of that ends its use. Its
  * tracer is in reset from then on, and it is free when all that it had asked of the memory has been answered. A free one
  * is opened when a window is asked for that keeps the rules:
  *   - the base is a multiple of the granule (ContextParameters);
  *   - the window has at least a byte, and not more than a tracer can address;
  *   - it ends within the memory;
  *   - it shares no byte with the window of a context that is not free, one that is ending included: its last writes are
  *     still on their way.
  *
  * A window that breaks a rule is refused for as long as it does, and that is said of none before it: asking for none
  * ends it in the next cycle. Only of a window that is asked for in place of one that was refused, without that, it may
  * be said until it has been judged itself. One context is looked at after the other, in rounds,
  * and only this opens them: nothing that was compared can change before it is decided but what was asked for and whether
  * a context ends.
  */
class ContextLives(c: ContextParameters) extends Module {
  private val p      = c.tracer
  private val number = log2Ceil(c.contexts)
  val io = IO(new Bundle {
    val asked   = Input(Vec(c.contexts, new AskedWindow))
    val drained = Input(Vec(c.contexts, Bool()))
    val open    = Output(Vec(c.contexts, Bool())) // otherwise its tracer is in reset
    val free    = Output(Vec(c.contexts, Bool())) // nothing of it is outstanding, its window may be anybody's
    val refused = Output(Vec(c.contexts, Bool()))
    val windows = Output(Vec(c.contexts, new ServedWindow(c)))
  })

  class Place extends Bundle {
    val base  = UInt(c.baseBits.W)
    val bytes = UInt((p.windowAddressBits + 1).W)
    val end   = UInt((c.baseBits + 1).W) // granules: after the last that it has a part of
  }
  val open    = RegInit(VecInit(Seq.fill(c.contexts)(false.B)))
  val ending  = RegInit(VecInit(Seq.fill(c.contexts)(false.B)))
  val refused = RegInit(VecInit(Seq.fill(c.contexts)(false.B)))
  val served  = Reg(Vec(c.contexts, new Place))

  for (i <- 0 until c.contexts) {
    val base  = Cat(served(i).base, 0.U(c.granuleLog2.W))
    val still = io.asked(i).base === base && io.asked(i).bytes === served(i).bytes
    when(open(i) && !still) {
      open(i)   := false.B
      ending(i) := true.B
    }
    when(ending(i) && io.drained(i)) { ending(i) := false.B }
    when(io.asked(i).bytes === 0.U) { refused(i) := false.B }
    io.open(i)          := open(i)
    io.free(i)          := !open(i) && !ending(i)
    io.refused(i)       := refused(i)
    io.windows(i).base  := served(i).base
    io.windows(i).bytes := served(i).bytes
    assert(!(open(i) && ending(i)), "a context that is open and ends")
  }

  // The round: take what is asked of a context, judge it alone, compare it with each other context, decide.
  object State extends ChiselEnum { val Take, Judge, Compare, Decide = Value }
  val state     = RegInit(State.Take)
  val context   = RegInit(0.U(number.W))
  val other     = RegInit(0.U(number.W))
  val candidate = Reg(new AskedWindow)
  val place     = Reg(new Place)
  val bad       = Reg(Bool())
  val last      = (c.contexts - 1).U

  switch(state) {
    is(State.Take) {
      candidate := io.asked(context)
      state     := State.Judge
    }
    is(State.Judge) {
      val base  = candidate.base >> c.granuleLog2
      val whole = candidate.bytes >> c.granuleLog2
      val part  = candidate.bytes(c.granuleLog2 - 1, 0).orR
      place.base  := base.take(c.baseBits)
      place.bytes := candidate.bytes.take(p.windowAddressBits + 1)
      place.end   := (base(c.baseBits - 1, 0) +& whole(c.baseBits, 0) + part).take(c.baseBits + 1)
      // What is beyond these widths is bad whatever its sum is.
      val tooFar  = (base >> c.baseBits).orR
      val tooLong = candidate.bytes > (BigInt(1) << (p.windowAddressBits min c.memoryAddressBits)).U
      bad   := candidate.base(c.granuleLog2 - 1, 0).orR || tooFar || tooLong
      other := 0.U
      state := State.Compare
    }
    is(State.Compare) {
      val there  = served(other)
      val shares = place.base < there.end && there.base < place.end
      val beyond = place.end > (BigInt(1) << c.baseBits).U
      when(beyond || (shares && !io.free(other) && other =/= context)) { bad := true.B }
      other := other + 1.U
      when(other === last) { state := State.Decide }
    }
    is(State.Decide) {
      val none = candidate.bytes === 0.U
      val same = io.asked(context).asUInt === candidate.asUInt
      when(io.free(context)) {
        refused(context) := bad && !none && same
        when(!bad && !none && same) {
          open(context)   := true.B
          served(context) := place
        }
      }
      context := Mux(context === last, 0.U, context + 1.U)
      state   := State.Take
    }
  }
}
