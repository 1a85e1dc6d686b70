// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.TracerParameters
import merapi.primitives.Word

/** Chunks of the heap in which a reference was dropped, one bit each: a memory per bank, which sets bits, and one walk
  * over all, which finds them.
  *
  * Nobody asks for a flag before everything else is at rest. So the walk may take its time: `searching` from the cycle
  * after a drop (or an `unflag`) until a flag is found or all were looked at since. Flags are cleared one a cycle after
  * a reset; long before that is over nothing can be dropped, since a cycle begins with reading its configuration.
  *
  * A reference that a filter stops because another one to the same object went on before stands for that one: when a bank
  * drops it, the chunk of its source alone is flagged. In a pause the host may free that source. So after a pause with a
  * drop before it (since the last one, and since nothing was left to do) all chunks of the heap are flagged: `all` from
  * `at` on, whatever the memories say.
  */
class RescanFlags(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val drops     = Vec(p.lanes, Flipped(Valid(UInt(p.flagLog2.W))))
    val unflag    = Flipped(Valid(UInt(p.flagLog2.W))) // of the one that was found
    val resumed   = Input(Bool())                      // pulse, when nothing moves
    val settled   = Input(Bool())                      // pulse: all that was dropped has been found again
    val regions   = Input(UInt((p.regionBits + 1).W))
    val shift     = Input(UInt(5.W))                   // regions per chunk, log2
    val found     = Valid(UInt(p.flagLog2.W))
    val searching = Output(Bool())
  })
  val flags     = Seq.fill(p.lanes)(Mem(p.rescanFlags, Bool()))
  val clearing  = RegInit(true.B)
  val at        = RegInit(0.U(p.flagLog2.W))
  val left      = RegInit(0.U((p.flagLog2 + 1).W)) // to look at
  val found     = RegInit(false.B)
  val all       = RegInit(0.U((p.flagLog2 + 1).W)) // from `at` on
  val inHeap    = Word.shiftUp(at.pad(p.regionBits + 1), io.shift) < io.regions
  val here      = VecInit(flags.map(_.read(at))).asUInt.orR || (all =/= 0.U && inHeap)
  val searching = left =/= 0.U && !found
  val passes    = (searching && !here) || io.unflag.valid
  when(clearing || passes) { at := at + 1.U }
  when(searching) {
    found := here
    left  := left - 1.U
  }
  val dropped = VecInit(io.drops.map(_.valid)).asUInt.orR
  when(io.unflag.valid) { found := false.B }
  val since = RegInit(false.B) // a pause, and idle
  when(dropped || io.unflag.valid) { left := p.rescanFlags.U }
  when(dropped) { since := true.B }.elsewhen(io.settled) { since := false.B }
  when(passes && all =/= 0.U) { all := all - 1.U }
  when(io.resumed) {
    since := false.B
    when(since) {
      all  := p.rescanFlags.U
      left := p.rescanFlags.U
    }
    assert(!dropped && !io.unflag.valid, "a reference dropped while everything rests")
  }
  when(clearing && at.andR) { clearing := false.B }
  for ((bank, drop) <- flags.zip(io.drops)) {
    // The chunk that was found is unflagged when nothing moves.
    when(clearing || io.unflag.valid || drop.valid) { bank.write(Mux(drop.valid, drop.bits, at), drop.valid) }
    assert(!(drop.valid && (clearing || io.unflag.valid)), "a reference dropped while flags are cleared")
  }
  assert(!io.unflag.valid || (found && io.unflag.bits === at), "a flag cleared that was not found")
  io.found.valid := found
  io.found.bits  := at
  io.searching   := searching
}
