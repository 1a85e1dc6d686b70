// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.{Bank, Contract, FaultReport, Reference, TraceConfig, TracerParameters}
import merapi.primitives.Fifo

/** A reference as it stands in the heap (or in a GREY command, where it is an address). */
class RawReference(p: TracerParameters) extends Bundle {
  val value     = UInt(64.W)
  val source    = UInt(p.objectBits.W) // object that it was read from
  val host      = Bool()
  val uncounted = Bool()               // a lane reads the same once more
}

/** A reference into the heap that no object can have; offsets from the heap's start. */
class CrookedReference(p: TracerParameters) extends Bundle {
  val offset = UInt((p.heapAddressBits + 1).W)
  val source = UInt(p.objectBits.W)
  val host   = Bool()
  def report(c: TraceConfig): FaultReport = FaultReport(
    Contract.Fault.BadReference,
    c.heapBase + offset,
    Mux(host, 0.U, c.heapBase + Cat(source, 0.U(3.W)))
  )
}

/** Drops what needs no marking: references outside the heap, at or above their limit, recently tested. Nulls that were
  * read from objects do not come here; those of the host count as outside, also of a heap that begins at address 0. In
  * order, one a cycle; whoever sends a host's reference hears of its end through `ended` or from a bank.
  *
  * Three stages, each ready by its own registers: address to offset; inside the heap and aligned; limit and, beside it,
  * the recently tested. With many banks what goes on stands in a register before them.
  *
  * The recent filter holds references that were sent to a bank. A bank that drops one flags its source, and the filter
  * is emptied before flagged chunks are swept, so that a reference stopped here is marked or will be offered again (by
  * that source, or by its own after a pause: see RescanFlags).
  * While it is being emptied it holds nothing and learns nothing, and references pass.
  */
class ReferenceFilter(p: TracerParameters, recents: Int) extends Module {
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val invalidate = Input(Bool())
    val in         = Flipped(Decoupled(new RawReference(p)))
    val out        = Decoupled(new Reference(p))
    val bank       = Output(UInt(p.lanes.W))        // of `out`, a bit for each; none without `out`
    val ended      = Output(UInt(3.W))              // a bit for each that ended here, of those that count: a cycle late
    val outside    = Output(Bool())                 // the same, as the next two
    val above      = Output(Bool())
    val filtered   = Output(Bool())
    val quiet      = Output(Bool())
    val fill       = Input(new LimitFill(p))
    val ask        = Decoupled(UInt(LimitFill.askBits(p).W))
    val fault      = Valid(new LimitFault(p))       // a cycle after its reference ended
    val crooked    = Valid(new CrookedReference(p)) // the same, of a reference between two objects
  })
  class Found extends Bundle {
    // From the heap's start: the carry of the part that a heap can have is still to be added to the rest.
    val high      = UInt((64 - p.heapAddressBits).W)
    val low       = UInt((p.heapAddressBits + 1).W)
    val source    = UInt(p.objectBits.W)
    val host      = Bool()
    val isNull    = Bool()
    val uncounted = Bool()
  }
  class Inside extends Bundle {
    val source    = UInt(p.objectBits.W)
    val host      = Bool()
    val uncounted = Bool()
  }
  val c = io.config
  // An address is one addition away from its offset.
  val narrow = !c.wideOops && !io.in.bits.host
  val scaled = c.scaled(io.in.bits.value)
  val found  = Module(new Fifo(new Found, 2))
  found.io.enq.valid := io.in.valid
  io.in.ready        := found.io.enq.ready
  private val (value, from) = (Mux(narrow, scaled, io.in.bits.value), Mux(narrow, c.fromNarrow, c.fromWide))
  private val lowBits       = p.heapAddressBits
  found.io.enq.bits.low       := value(lowBits - 1, 0) +& from(lowBits - 1, 0)
  found.io.enq.bits.high      := value(63, lowBits) + from(63, lowBits)
  found.io.enq.bits.source    := io.in.bits.source
  found.io.enq.bits.host      := io.in.bits.host
  found.io.enq.bits.isNull    := io.in.bits.host && io.in.bits.value === 0.U
  found.io.enq.bits.uncounted := io.in.bits.uncounted

  val f       = found.io.deq.bits
  val offset  = f.low(lowBits - 1, 0)
  val far     = Mux(f.low(lowBits), !f.high.andR, f.high.orR)
  val outside = far || offset >= c.heapBytes || f.isNull
  val low     = offset(7, 0) & ((1.U(9.W) << c.alignmentLog2) - 1.U)(7, 0)
  val crooked = !outside && low =/= 0.U
  val ends    = found.io.deq.valid && (outside || crooked)

  // Recently tested: written when a reference goes on. The next one's entry is read in that same cycle and may be anything
  // if it is the one that is written (of equal index), so the next one is then compared with the reference before it.
  val indexBits                        = log2Ceil(recents)
  private def indexOf(obj: UInt): UInt = (obj ^ (obj >> indexBits))(indexBits - 1, 0)
  class Entry extends Bundle {
    val valid = Bool()
    val obj   = UInt(p.objectBits.W)
  }
  val entries   = SyncReadMem(recents, new Entry)
  val sweeping  = RegInit(true.B)
  val sweepNext = RegInit(0.U(indexBits.W))
  when(io.invalidate) { sweeping := true.B; sweepNext := 0.U }
  when(sweeping) {
    sweepNext := sweepNext + 1.U
    when(sweepNext.andR) { sweeping := false.B }
  }
  val emptied = !sweeping && !RegNext(sweeping, true.B) // what was read is not from before

  val check = Module(new LimitCheck(p, new Inside, ahead = true))
  check.io.fill := io.fill
  io.ask <> check.io.ask
  check.io.in.valid               := found.io.deq.valid && !outside && !crooked
  check.io.in.bits.obj            := offset >> 3
  check.io.region                 := c.region(check.io.in.bits.obj)
  check.io.in.bits.data.source    := f.source
  check.io.in.bits.data.host      := f.host
  check.io.in.bits.data.uncounted := f.uncounted
  found.io.deq.ready              := outside || crooked || check.io.in.ready

  class Out extends Bundle {
    val reference = new Reference(p)
    val bank      = UInt(p.laneLog2.W)
  }
  val out    = Module(new Fifo(new Out, p.markQueue / 2))
  val result = check.io.out.bits
  val entry  = entries.read(indexOf(check.io.next))
  val last   = RegNext(result.obj)
  val wrote  = RegNext(check.io.out.fire, false.B) && !RegNext(result.data.host)
  val torn   = wrote && indexOf(last) === indexOf(result.obj)
  val recent = Mux(torn, last === result.obj, entry.valid && entry.obj === result.obj)
  val known  = recent && emptied && !result.data.host
  val passes = result.below && !known
  check.io.out.ready := out.io.enq.ready // whatever comes out: what it is is known late
  out.io.enq.valid   := check.io.out.valid && passes
  val sent = out.io.enq.bits.reference
  sent.bit             := c.markBit(result.obj)
  sent.flag            := c.rescanFlag(result.data.source)
  sent.host            := result.data.host
  out.io.enq.bits.bank := Bank.of(p, sent.bit)
  private val banks = Mux(out.io.deq.valid, UIntToOH(out.io.deq.bits.bank, p.lanes), 0.U)
  val leaves        = RegInit(false.B)
  if (p.wide) {
    out.io.deq.ready := !leaves || io.out.ready
    when(out.io.deq.ready) { leaves := out.io.deq.valid }
    io.out.valid := leaves
    io.out.bits  := RegEnable(out.io.deq.bits.reference, out.io.deq.ready)
    io.bank      := RegEnable(banks, 0.U, out.io.deq.ready)
  } else {
    out.io.deq.ready := io.out.ready
    io.out.valid     := out.io.deq.valid
    io.out.bits      := out.io.deq.bits.reference
    io.bank          := banks
  }
  // Whether it goes on is known late. One that is known is remembered once more, and one at or above its limit, which
  // does not change before everything is forgotten, does not pass next time either.
  val remember = check.io.out.fire && !result.data.host
  when(sweeping || remember) {
    val now = Wire(new Entry)
    now.valid := !sweeping
    now.obj   := result.obj
    entries.write(Mux(sweeping, sweepNext, indexOf(result.obj)), now)
  }

  val judged     = RegNext(check.io.out.fire && !result.data.uncounted, false.B)
  val belowLate  = RegNext(result.below)
  val passesLate = RegNext(passes)
  io.outside  := RegNext(found.io.deq.valid && outside && !f.uncounted, false.B)
  io.above    := judged && !belowLate
  io.filtered := judged && belowLate && !passesLate
  io.ended    := Cat(RegNext(ends && !f.uncounted, false.B), io.above, io.filtered)
  io.quiet    := !io.in.valid && !found.io.deq.valid && !check.io.busy && !out.io.deq.valid && !leaves

  private val isCrooked = found.io.deq.valid && crooked
  io.crooked.valid       := RegNext(isCrooked, false.B)
  io.crooked.bits.offset := RegEnable(offset, isCrooked)
  io.crooked.bits.source := RegEnable(f.source, isCrooked)
  io.crooked.bits.host   := RegEnable(f.host, isCrooked)
  io.fault               := check.io.fault
}
