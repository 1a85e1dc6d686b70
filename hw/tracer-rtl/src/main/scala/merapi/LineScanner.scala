// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** References of one line to read: those of `left`, none of them null; there may be none. */
class ScanJob(p: TracerParameters) extends Bundle {
  val obj  = UInt(p.objectBits.W)
  val data = UInt(p.lineBits.W)
  val left = UInt(ScanJob.slots(p).W) // by their first 4-byte slot
}

object ScanJob {
  def slots(p: TracerParameters): Int = p.lineBits / 32

  /** The first `count` of `slots` (a comparison for each: one less than a power of two would be a carry chain). */
  def first(count: UInt, slots: Int): UInt = VecInit((0 until slots).map(i => count > i.U)).asUInt

  /** The slots that so many references fill. */
  def elements(p: TracerParameters, length: UInt, wide: Bool): UInt = {
    val few = Mux(wide, Cat(length(2, 0), 0.U(1.W)), length(3, 0))
    Mux((length >> 4).orR || (wide && length(3)), Fill(slots(p), 1.U(1.W)), first(few, slots(p)))
  }

  /** Slots of the line that hold something; a wide reference is its first slot's. */
  def notNull(p: TracerParameters, data: UInt, wide: Bool): UInt = {
    val some = (0 until slots(p)).map(i => data(32 * i + 31, 32 * i).orR)
    VecInit((0 until slots(p)).map(i => if (i % 2 == 0) some(i) || (wide && some(i + 1)) else some(i))).asUInt
  }
}

/** Sends the references of one line, one a cycle. */
class LineScanner(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val in         = Flipped(Decoupled(new ScanJob(p)))
    val references = Decoupled(new RawReference(p))
    val busy       = Output(Bool())
  })
  val wide  = io.config.wideOops
  val valid = RegInit(false.B)
  val job   = Reg(new ScanJob(p))

  val words = (0 until ScanJob.slots(p)).map(i => job.data(32 * i + 31, 32 * i))
  val pick  = PriorityEncoderOH(job.left)
  val low   = Mux1H(pick, words)
  // A wide reference begins at an even slot.
  val high = Mux1H((0 until ScanJob.slots(p) by 2).map(i => pick(i) -> words(i + 1)))
  val some = job.left.orR
  io.references.valid          := valid && some
  io.references.bits.value     := Cat(Mux(wide, high, 0.U), low)
  io.references.bits.source    := job.obj
  io.references.bits.host      := false.B
  io.references.bits.uncounted := false.B
  val rest = job.left & ~pick
  val last = valid && rest === 0.U && (io.references.ready || !some)
  io.in.ready := !valid || last
  valid       := io.in.fire || (valid && !last)
  when(io.in.fire) { job := io.in.bits }.elsewhen(io.references.fire) { job.left := rest }
  io.busy := valid
}
