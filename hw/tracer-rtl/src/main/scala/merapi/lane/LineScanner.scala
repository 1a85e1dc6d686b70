// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.{TraceConfig, TracerParameters}
import merapi.mark.RawReference
import merapi.primitives.Word

/** References of one line to read: those of `left`, none of them null; there may be none. */
class ScanJob(p: TracerParameters) extends Bundle {
  val obj  = UInt(p.objectBits.W)
  val data = UInt(p.lineBits.W)
  val left = UInt(ScanJob.slots(p).W) // by their first 4-byte slot
}

object ScanJob {
  def slots(p: TracerParameters): Int = p.lineBits / 32

  /** The slots that so many references fill. */
  def elements(p: TracerParameters, length: UInt, wide: Bool): UInt = {
    val few = Mux(wide, Cat(length(2, 0), 0.U(1.W)), length(3, 0))
    Mux((length >> 4).orR || (wide && length(3)), Fill(slots(p), 1.U(1.W)), Word.first(few, slots(p)))
  }

  /** Slots of the line that hold something; a wide reference is its first slot's. */
  def notNull(p: TracerParameters, data: UInt, wide: Bool): UInt = {
    val some = (0 until slots(p)).map(i => data(32 * i + 31, 32 * i).orR)
    VecInit((0 until slots(p)).map(i => if (i % 2 == 0) some(i) || (wide && some(i + 1)) else some(i))).asUInt
  }
}

/** Sends the references of one line, one a cycle and port. Of two ports each sends those of a parity of its own, so that
  * references to one object always leave by one port: what is recently tested is remembered behind it.
  */
class LineScanner(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val in         = Flipped(Decoupled(new ScanJob(p)))
    val references = Vec(p.scanPorts, Decoupled(new RawReference(p)))
    val busy       = Output(Bool())
  })
  val wide  = io.config.wideOops
  val valid = RegInit(false.B)
  val obj   = Reg(UInt(p.objectBits.W))
  val data  = Reg(UInt(p.lineBits.W))
  val mine  = Reg(Vec(p.scanPorts, UInt(ScanJob.slots(p).W))) // of what is left, each port's

  private def wordsOf(line: UInt) = (0 until ScanJob.slots(p)).map(i => line(32 * i + 31, 32 * i))
  val words                       = wordsOf(data)
  // Whatever the encoding and the alignment (256 bytes at most), some of these bits differ between neighbours.
  private val odd = VecInit(wordsOf(io.in.bits.data).map(_(9, 0).xorR)).asUInt
  private val dealt =
    if (p.scanPorts == 1) Seq(io.in.bits.left) else Seq(io.in.bits.left & ~odd, io.in.bits.left & odd)
  private val ports = mine.zip(io.references).map { case (left, port) =>
    val pick = Word.lowest(left)
    val low  = Mux1H(pick, words)
    // A wide reference begins at an even slot.
    val high = Mux1H((0 until ScanJob.slots(p) by 2).map(i => pick(i) -> words(i + 1)))
    val some = left.orR
    val rest = left & ~pick
    port.valid          := valid && some
    port.bits.value     := Cat(Mux(wide, high, 0.U), low)
    port.bits.source    := obj
    port.bits.host      := false.B
    port.bits.uncounted := false.B
    (Mux(port.ready, rest, left), !Word.several(left) && (port.ready || !some))
  }
  val last = valid && ports.map(_._2).reduce(_ && _)
  io.in.ready := !valid || last
  valid       := io.in.fire || (valid && !last)
  when(io.in.fire) {
    obj  := io.in.bits.obj
    data := io.in.bits.data
  }
  // Whether a line comes is known late: what is taken of none counts for nothing.
  mine    := Mux(io.in.ready, VecInit(dealt), VecInit(ports.map(_._1)))
  io.busy := valid
}
