// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.{Contract, FaultReport, TraceConfig, TracerParameters}
import merapi.primitives.EpochSweep

/** A limit that cannot be one, of the region that it was read for. */
class LimitFault(p: TracerParameters) extends Bundle {
  val region = UInt(p.regionBits.W)
  val limit  = UInt((p.objectBits + 1).W)
  def report(c: TraceConfig): FaultReport =
    FaultReport(Contract.Fault.BadConfig, Cat(c.limits, 0.U(6.W)) + Cat(region, 0.U(3.W)), Cat(limit, 0.U(3.W)))
}

/** Compares objects with the limits of their regions, in order, one a cycle while their limits are held.
  *
  * Every checker has its own copy of the limits (a direct-mapped memory, filled by the LimitLoader that all share).
  * Dropped at every pause and cycle: the host may lower limits then. With `ahead`, while an item waits for its limit, that
  * of the item behind it is asked for as well (whether or not it is held already): soon after a pause nearly all are to
  * come.
  *
  * `in` is ready by a register alone: an item that comes while the one before it cannot leave has a place of its own,
  * so that what comes after the checker decides nothing before it in the same cycle. `next` is the object whose row is
  * read now: who keeps something else by object reads it in the same cycle and has it beside `out`.
  */
class LimitCheck[T <: Data](p: TracerParameters, gen: T, ahead: Boolean) extends Module {
  private val rowBits   = LimitFill.rowBits(p)
  private val limitBits = p.objectBits + 1 // units of eight bytes; the end of the heap is a limit

  private def rowOf(region: UInt): UInt = LimitFill.rowOf(p, region)

  class Item extends Bundle {
    val obj  = UInt(p.objectBits.W)
    val data = gen.cloneType
  }
  class Result extends Bundle {
    val obj   = UInt(p.objectBits.W)
    val data  = gen.cloneType
    val below = Bool()
  }
  val io = IO(new Bundle {
    val in     = Flipped(Decoupled(new Item))
    val region = Input(UInt(p.regionBits.W)) // of `in`
    val next   = Output(UInt(p.objectBits.W))
    val out    = Decoupled(new Result)
    val busy   = Output(Bool())
    val fill   = Input(new LimitFill(p))
    val ask    = Decoupled(UInt(LimitFill.askBits(p).W))
    val fault  = Valid(new LimitFault(p))    // a cycle after its object left
  })
  class Row extends Bundle {
    val epoch = UInt(EpochSweep.bits.W)
    val tag   = UInt((p.regionBits - log2Ceil(p.limitsTogether) - rowBits).W)
    // Of its regions, the first lowest.
    val good  = UInt(p.limitsTogether.W)
    val limit = UInt((limitBits * p.limitsTogether).W)
  }
  class Held extends Bundle {
    val item   = new Item
    val region = UInt(p.regionBits.W)
  }
  val rows = SyncReadMem(1 << rowBits, new Row)

  object State extends ChiselEnum { val Run, Ask, Again = Value }
  val state      = RegInit(State.Run)
  val valid      = RegInit(false.B)
  val held       = Reg(new Held)
  val spareValid = RegInit(false.B)
  val spare      = Reg(new Held)
  val open       = RegInit(false.B) // rows can be used
  open        := !io.fill.sweeping
  io.in.ready := !spareValid && open

  // While an item waits, its row is read again in every cycle.
  val come = Wire(new Held)
  come.item   := io.in.bits
  come.region := io.region
  val leave = io.out.fire
  val stay  = valid && !leave
  val next  = Mux(stay, held, Mux(spareValid, spare, come))
  io.next := next.item.obj
  val row = rows.read(rowOf(next.region)(rowBits - 1, 0))
  held       := next
  valid      := stay || spareValid || io.in.fire
  spareValid := stay && (spareValid || io.in.fire)
  when(!spareValid) { spare := come }

  val region = held.region
  // A row that was written while it was read may be anything.
  val torn  = RegNext(io.fill.write, false.B) && RegNext(io.fill.row) === rowOf(region)(rowBits - 1, 0)
  val hit   = row.epoch === io.fill.epoch && row.tag === rowOf(region) >> rowBits && !torn
  val good  = LimitFill.of(p, row.good, region).asBool
  val limit = LimitFill.of(p, row.limit, region)
  io.out.valid     := valid && state === State.Run && hit
  io.out.bits.obj  := held.item.obj
  io.out.bits.data := held.item.data
  // Each of the row is compared, and then chosen: that is late as it is.
  private val below = (0 until p.limitsTogether).map { i =>
    held.item.obj < row.limit(limitBits * (i + 1) - 1, limitBits * i) && row.good(i)
  }
  io.out.bits.below := LimitFill.of(p, Cat(below.reverse), region).asBool

  io.ask.valid := state === State.Ask
  io.ask.bits  := LimitFill.ask(p, region)
  if (ahead) {
    val second = RegInit(false.B) // the item behind
    when(state =/= State.Ask) { second := false.B }.elsewhen(io.ask.ready) { second := !second && spareValid }
    when(second) { io.ask.bits := LimitFill.ask(p, spare.region) }
  }
  val mine = io.fill.write && !io.fill.sweep && io.fill.isOf(region)
  switch(state) {
    is(State.Run) { when(valid && !hit && !torn && !io.fill.sweeping) { state := State.Ask } }
    is(State.Ask) { when(mine) { state := State.Again } }
    is(State.Again) { state := State.Run }
  }
  io.busy := valid || spareValid

  private val isBad = leave && !good
  io.fault.valid       := RegNext(isBad, false.B)
  io.fault.bits.region := RegEnable(region, isBad)
  io.fault.bits.limit  := RegEnable(limit, isBad)

  when(io.fill.sweep && io.fill.write) { assert(!valid, "an object at a limit that is being dropped") }
  when(io.fill.write) {
    val fresh = Wire(new Row)
    fresh.epoch := Mux(io.fill.sweep, 0.U, io.fill.epoch)
    fresh.tag   := rowOf(io.fill.region) >> rowBits
    fresh.good  := io.fill.good
    fresh.limit := io.fill.limits
    rows.write(io.fill.row, fresh)
  }
}
