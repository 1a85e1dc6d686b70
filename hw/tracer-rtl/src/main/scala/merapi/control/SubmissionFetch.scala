// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{ReadPort, TracerParameters}

/** Reads entries of the submission ring ahead of their execution, in order, a few at a time: a host with much to say
  * (greys that it answers deferred objects with) would otherwise wait a memory's latency per entry.
  *
  * An entry is asked for only when the host's index covers it, so what comes is whole. Whether it does, and where the
  * entry lies, is computed in two cycles from indexes of 64 bits and known in the third; so one is asked for every third
  * cycle at most. After a restart answers to older requests are dropped; their tags are not used again before.
  */
class SubmissionFetch(p: TracerParameters) extends Module {
  private val depth    = p.submissionReads
  private val slotBits = log2Ceil(depth)
  val io = IO(new Bundle {
    val enabled   = Input(Bool())
    val ring      = Input(UInt(p.lineAddress.W)) // first line
    val entries   = Input(UInt(p.lineAddress.W)) // a power of two
    val submitted = Input(UInt(64.W))            // the host's index as last seen
    val restart   = Flipped(Valid(UInt(64.W)))   // pulse: go on from this entry
    val entry     = Decoupled(UInt(p.lineBits.W))
    val read      = new ReadPort(p)
  })
  val asked                        = RegInit(0.U(64.W))             // next to ask for
  val taken                        = RegInit(0.U(slotBits.W))       // slot of the next to hand out
  val ahead                        = RegInit(0.U((slotBits + 1).W)) // asked for and not handed out
  val lines                        = Mem(depth, UInt(p.lineBits.W))
  val here                         = RegInit(0.U(depth.W))
  val waits                        = RegInit(0.U(depth.W))          // asked for, has not come
  val stale                        = RegInit(0.U(depth.W))          // of those, from before a restart
  private def slot(at: UInt): UInt = at(slotBits - 1, 0)
  private def bit(at: UInt): UInt  = UIntToOH(slot(at), depth)

  val left  = RegNext(io.submitted - asked)
  val place = RegNext((asked & (io.entries - 1.U))(p.lineAddress - 1, 0))
  // An impossible index is the control unit's to find.
  val some  = RegNext(left =/= 0.U && left <= io.entries)
  val line  = RegNext(io.ring + place)
  val known = RegInit(0.U(2.W)) // cycles since what they follow from changed
  known := Mux(!io.enabled || io.read.request.fire || io.restart.valid, 0.U, Cat(known(0), true.B))
  io.read.request.valid := io.enabled && known(1) && some && !ahead(slotBits) && !waits(slot(asked)) &&
    !io.restart.valid
  io.read.request.bits.tag  := slot(asked)
  io.read.request.bits.line := line
  val ask  = Mux(io.read.request.fire, bit(asked), 0.U)
  val came = Mux(io.read.response.valid, bit(io.read.response.bits.tag), 0.U)
  when(io.read.request.fire) { asked := asked + 1.U }
  when(io.read.response.valid) { lines.write(slot(io.read.response.bits.tag), io.read.response.bits.data) }
  io.entry.valid := here(slot(taken))
  io.entry.bits  := lines.read(slot(taken))
  val give = Mux(io.entry.fire, bit(taken), 0.U)
  when(io.entry.fire) { taken := taken + 1.U }
  ahead := ahead + io.read.request.fire - io.entry.fire
  waits := (waits | ask) & ~came
  stale := stale & ~came
  here  := (here | (came & ~stale)) & ~give
  when(io.restart.valid) {
    asked := io.restart.bits
    taken := slot(io.restart.bits)
    ahead := 0.U
    here  := 0.U
    stale := waits & ~came
  }
  assert((came & ~waits) === 0.U, "an entry came that nobody asked for")
}
