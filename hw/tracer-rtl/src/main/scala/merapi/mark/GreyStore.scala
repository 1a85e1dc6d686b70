// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.{Grey, ReadPort, Region, TracerParameters, WritePort}
import merapi.primitives.SureFifo

/** A grey with its object's region, which its limit check begins with. */
class PlacedGrey(p: TracerParameters) extends Grey(p) {
  val region = UInt(p.regionBits.W)
}

/** Greys of one lane: a double-ended queue on chip whose oldest entries move to the spill area when it fills.
  *
  * New greys are pushed and taken at the top (depth first: what was found last is nearest in memory). Lines of
  * `greysPerLine` entries leave at the bottom when little room is left, and come back, last in first out, when the
  * queue runs empty.
  *
  * Room is kept free for objects that a lane gives back at a pause, one for each slot and for each place before its
  * evaluation, whose object may have no slot any more; so giving back never waits.
  * `full` says that a grey can be taken neither now nor by waiting for memory: the spill is full as well. The sweep
  * may fill only half of the whole; the other half is for what tracing finds, so that every pass over flagged chunks
  * marks at least one object more or drops nothing (see docs/microarchitecture.md, "Termination").
  */
class GreyStore(p: TracerParameters) extends Module {
  private val depth   = p.greyDepth
  private val address = log2Ceil(depth)
  private val perLine = p.greysPerLine
  private val reserve = p.greyReserve

  val io = IO(new Bundle {
    val spillFirst = Input(UInt(p.lineAddress.W))
    val spillLines = Input(UInt(p.lineAddress.W))
    val giveBack   = Flipped(Valid(new Grey(p))) // there is always room for it
    val mark       = Flipped(Decoupled(new Grey(p)))
    val sweep      = Flipped(Decoupled(new Grey(p)))
    val take       = Decoupled(new PlacedGrey(p))
    val regionLog2 = Input(UInt(6.W))
    val hold       = Input(Bool())               // take nothing back from the spill area
    val full       = Output(Bool())
    val deep       = Output(Bool())              // enough to do: half full, or more in the spill area
    val empty      = Output(Bool())
    val quiet      = Output(Bool())              // nothing outstanding at the memory
    val read       = new ReadPort(p)
    val write      = new WritePort(p)
    val spilled    = Output(Bool())
    val refilled   = Output(Bool())
  })

  val ram    = SyncReadMem(depth, new Grey(p))
  val bottom = RegInit(0.U(address.W))
  val count  = RegInit(0.U((address + 1).W))
  val lines  = RegInit(0.U(p.lineAddress.W)) // lines in the spill area
  val out    = Module(new SureFifo(new PlacedGrey(p), 4))
  io.take <> out.io.deq

  object State extends ChiselEnum { val Idle, Gather, Store, Stored, Fetch, Fetched, Came, Scatter = Value }
  val state = RegInit(State.Idle)
  // A line on its way out, the first to leave lowest, and one that came back: two, because neither needs selecting then.
  val leaving = Reg(Vec(perLine, new Grey(p)))
  val came    = Reg(Vec(perLine, new Grey(p)))
  val moved   = Reg(UInt(log2Ceil(perLine + 1).W))
  val rested  = RegNext(state === State.Idle, true.B)
  val reading = RegNext(state === State.Gather && moved < perLine.U, false.B)

  private val high = depth - reserve - 2 * perLine
  val room         = count < (depth - reserve).U
  // Of the lines of the cycle before.
  val spillFull = RegNext(lines >= io.spillLines, true.B)
  val spillHalf = RegNext(lines >= (io.spillLines >> 1), true.B)
  val spilling  = state === State.Gather || state === State.Store || state === State.Stored
  io.full := !room && spillFull && !spilling
  io.deep := count >= (depth / 2).U || lines =/= 0.U

  // Push, from registers alone: a mark of the cycle before (it must not wait, the next may come), then what is given
  // back (it waits for one mark at most), then the sweep, by the room of
  // the cycle before. A mark is known late in its cycle: it goes straight to the lane, or stands in `marked` for a cycle.
  val scatters  = state === State.Came || state === State.Scatter // the sweep waits
  val sweepRoom = RegNext((count < (depth / 2 - reserve).U || (room && !spillHalf)) && !scatters, false.B)
  val backs     = Module(new SureFifo(new Grey(p), 4))
  val back      = backs.io.deq
  backs.io.put := io.giveBack
  val marked = RegInit(0.U.asTypeOf(Valid(new Grey(p))))
  val push   = Module(new Arbiter(new Grey(p), 3))
  push.io.in(0).valid := marked.valid
  push.io.in(0).bits  := marked.bits
  push.io.in(1) <> back
  push.io.in(2).valid := io.sweep.valid && sweepRoom
  push.io.in(2).bits  := io.sweep.bits
  io.sweep.ready      := push.io.in(2).ready && sweepRoom
  push.io.out.ready   := true.B
  io.mark.ready       := room && !back.valid
  assert(!((push.io.out.valid || state === State.Scatter) && count === depth.U), "a grey pushed onto a full queue")

  // One read a cycle: gather for the spill, or take.
  val gather = state === State.Gather && moved < perLine.U
  val popped = RegInit(false.B)
  // Past the memory.
  val outFree    = out.io.room && !popped
  val direct     = push.io.out.valid && outFree
  val markDirect = !push.io.out.valid && outFree
  marked.valid := io.mark.fire && !markDirect
  marked.bits  := io.mark.bits
  // A mark may take a place in the same cycle.
  val pop = !push.io.out.valid && !gather && count =/= 0.U && state =/= State.Scatter &&
    out.io.count +& popped < 3.U
  val readAt   = Mux(gather, bottom, bottom + (count - 1.U)(address - 1, 0))
  val readGrey = ram.read(readAt)
  popped           := pop
  out.io.put.valid := popped || direct || (markDirect && io.mark.fire)
  val taken = Mux(popped, readGrey, Mux(push.io.out.valid, push.io.out.bits, io.mark.bits))
  out.io.put.bits.obj    := taken.obj
  out.io.put.bits.count  := taken.count
  out.io.put.bits.region := Region.of(p, taken.obj, io.regionLog2)

  val stored = push.io.out.valid && !direct
  // The same as not stored, from registers: the sweep waits.
  val scatter = state === State.Scatter && !((marked.valid || back.valid) && !outFree)
  assert(state =/= State.Scatter || scatter === !stored, "pushed while a line comes back")
  val next    = RegEnable(came(moved), state === State.Came || scatter) // of the line that came
  val writeAt = Mux(stored, bottom + count(address - 1, 0), bottom - 1.U)
  when(stored || scatter) { ram.write(writeAt, Mux(stored, push.io.out.bits, next)) }
  when(gather) {
    bottom := bottom + 1.U
    assert(count =/= 0.U, "spilled from an empty queue")
  }.elsewhen(scatter) { bottom := bottom - 1.U }
  count := count + stored - pop - gather + scatter

  io.read.request.valid      := state === State.Fetch
  io.read.request.bits.tag   := 0.U
  io.read.request.bits.line  := io.spillFirst + lines
  io.write.request.valid     := state === State.Store
  io.write.request.bits.tag  := 0.U
  io.write.request.bits.line := io.spillFirst + lines
  io.write.request.bits.data := leaving.asUInt
  io.spilled                 := io.write.request.fire
  io.refilled                := io.read.request.fire

  switch(state) {
    is(State.Idle) {
      moved := 0.U
      when(count > high.U && !spillFull) {
        // A line just written is not in `spillFull` yet.
        when(rested) { state := State.Gather }
      }.elsewhen(count === 0.U && lines =/= 0.U && !io.hold) {
        lines := lines - 1.U
        state := State.Fetch
      }
    }
    is(State.Gather) {
      when(gather) { moved := moved + 1.U }
      when(reading) { leaving := VecInit(leaving.tail :+ readGrey) }
      when(moved === perLine.U) { state := State.Store }
    }
    is(State.Store) { when(io.write.request.fire) { state := State.Stored } }
    is(State.Stored) {
      // Never read a line again before its write was answered.
      when(io.write.done.valid) {
        lines := lines + 1.U
        state := State.Idle
      }
    }
    is(State.Fetch) { when(io.read.request.fire) { state := State.Fetched } }
    is(State.Fetched) {
      when(io.read.response.valid) {
        came  := io.read.response.bits.data(perLine * (p.objectBits + 1) - 1, 0).asTypeOf(came)
        moved := 0.U
        state := State.Came
      }
    }
    // `moved` is ahead of what is stored by `next`.
    is(State.Came) {
      moved := 1.U
      state := State.Scatter
    }
    is(State.Scatter) {
      when(scatter) {
        moved := moved + 1.U
        when(moved === perLine.U) { state := State.Idle }
      }
    }
  }
  // Scatter pushes below the bottom, oldest entry first: a line comes back in reverse, which is irrelevant to the result.
  io.quiet := state === State.Idle && !(count > high.U && !spillFull) && !back.valid && !marked.valid
  io.empty := state === State.Idle && !back.valid && !marked.valid && count === 0.U && lines === 0.U && !popped && !out.io.deq.valid
}
