// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Compares objects with the limits of their regions, in order, one a cycle while the limit table's lines are held.
  *
  * Every checker has its own copy of the lines it needs (a direct-mapped store of lines of eight limits) and its own
  * miss, so that checkers never wait for each other. Dropped at every pause and cycle: the host may lower limits then.
  *
  * A limit must lie within its region (both ends included) and be aligned; anything else is BAD_CONFIG with the
  * limit's window offset.
  */
class LimitCheck[T <: Data](p: TracerParameters, gen: T) extends Module {
  private val rowBits = log2Ceil(p.limitLines)
  private val limitBits = p.objectBits + 1 // units of eight bytes; the end of the heap is a limit

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
    val config     = Input(new TraceConfig(p))
    val invalidate = Input(Bool()) // pulse; nothing is inside
    val sweeping   = Output(Bool())
    val in         = Flipped(Decoupled(new Item))
    val out        = Decoupled(new Result)
    val busy       = Output(Bool())
    val fetching   = Output(Bool())
    val read       = new ReadPort(p)
    val fault      = Valid(new FaultReport)
  })

  class Row extends Bundle {
    val valid = Bool()
    val line  = UInt((p.regionBits - 3).W)
    // An impossible limit is kept as such: the fault is raised when it is needed.
    val good   = Vec(8, Bool())
    val limits = Vec(8, UInt(limitBits.W))
  }
  val rows = SyncReadMem(p.limitLines, new Row)

  val sweeping  = RegInit(true.B)
  val sweepNext = RegInit(0.U(rowBits.W))
  when(io.invalidate) { sweeping := true.B; sweepNext := 0.U }
  when(sweeping) {
    sweepNext := sweepNext + 1.U
    when(sweepNext.andR) { sweeping := false.B }
  }
  io.sweeping := sweeping || io.invalidate

  object State extends ChiselEnum { val Run, Ask, Wait, Again = Value }
  val state  = RegInit(State.Run)
  val valid  = RegInit(false.B)
  val item   = Reg(new Item)
  val region = io.config.region(item.obj)
  val line   = region >> 3

  // While an item waits, its row is read again in every cycle.
  io.in.ready := !io.sweeping && state === State.Run && (!valid || io.out.fire)
  val nextObject = Mux(io.in.fire, io.in.bits.obj, item.obj)
  val row        = rows.read((io.config.region(nextObject) >> 3)(rowBits - 1, 0))
  when(io.in.fire) { item := io.in.bits }
  valid := io.in.fire || (valid && !io.out.fire)

  val hit   = row.valid && row.line === line
  val limit = row.limits(region(2, 0))
  io.out.valid      := valid && state === State.Run && hit
  io.out.bits.obj   := item.obj
  io.out.bits.data  := item.data
  io.out.bits.below := item.obj < limit && row.good(region(2, 0))
  io.fault.valid    := io.out.fire && !row.good(region(2, 0))
  val at = Cat(io.config.limits, 0.U(6.W)) + Cat(region, 0.U(3.W))
  io.fault.bits := FaultReport(Contract.Fault.BadConfig, at, Cat(limit, 0.U(3.W)))

  io.read.request.valid     := state === State.Ask
  io.read.request.bits.tag  := 0.U
  io.read.request.bits.line := io.config.limits + line
  val fresh = Wire(new Row)
  fresh.valid := true.B
  fresh.line  := line
  for (i <- 0 until 8) {
    val value = io.read.response.bits.data(64 * i + 63, 64 * i)
    val start = Cat(line, i.U(3.W)).pad(64) << io.config.regionLog2
    val inside = value >= start(63, 0) && value - start(63, 0) <= (1.U(64.W) << io.config.regionLog2)(63, 0)
    val aligned = (value(7, 0) & ((1.U(8.W) << io.config.alignmentLog2) - 1.U)(7, 0)) === 0.U
    fresh.limits(i) := value >> 3
    fresh.good(i)   := inside && aligned
  }
  switch(state) {
    is(State.Run) { when(valid && !hit) { state := State.Ask } }
    is(State.Ask) { when(io.read.request.fire) { state := State.Wait } }
    is(State.Wait) { when(io.read.response.valid) { state := State.Again } }
    is(State.Again) { state := State.Run }
  }
  val writeRow = state === State.Wait && io.read.response.valid
  val nothing  = 0.U.asTypeOf(new Row)
  when(sweeping || writeRow) {
    rows.write(Mux(sweeping, sweepNext, line(rowBits - 1, 0)), Mux(sweeping, nothing, fresh))
  }
  io.busy     := valid
  io.fetching := state === State.Ask || state === State.Wait
}
