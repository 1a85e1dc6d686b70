// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** A reference as it stands in the heap (or in a GREY command, where it is an address). */
class RawReference(p: TracerParameters) extends Bundle {
  val value  = UInt(64.W)
  val source = UInt(p.objectBits.W) // object that it was read from
  val host   = Bool()
}

/** Drops what needs no marking: references outside the heap, at or above their limit, recently tested. Nulls do not
  * come here. In order, one a cycle; whoever sends a host's reference hears of its end through `ended` or from a bank.
  *
  * The recent filter holds references that were sent to a bank. A bank that drops one flags its source, and the filter
  * is emptied before flagged chunks are swept, so that a reference stopped here is marked or will be offered again.
  */
class ReferenceFilter(p: TracerParameters, recent: Int) extends Module {
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val invalidate = Input(Bool())
    val sweeping   = Output(Bool())
    val in         = Flipped(Decoupled(new RawReference(p)))
    val out        = Decoupled(new Reference(p))
    val ended      = Output(UInt(2.W)) // so many references ended here
    val outside    = Output(Bool())
    val above      = Output(Bool())
    val filtered   = Output(Bool())
    val quiet      = Output(Bool())
    val read       = new ReadPort(p)
    val fault      = Valid(new FaultReport)
  })

  class Decoded extends Bundle {
    val obj    = UInt(p.objectBits.W)
    val source = UInt(p.objectBits.W)
    val host   = Bool()
  }
  // Decode.
  val c       = io.config
  val narrow  = !c.wideOops && !io.in.bits.host
  val address = Mux(narrow, (c.narrowBase + (io.in.bits.value(31, 0).pad(48) << c.narrowShift))(63, 0), io.in.bits.value)
  val offset  = (address - c.heapBase)(63, 0)
  val outside = offset >= c.heapBytes
  val low     = offset(7, 0) & ((1.U(9.W) << c.alignmentLog2) - 1.U)(7, 0)
  val crooked = !outside && low =/= 0.U

  val check = Module(new LimitCheck(p, new Decoded))
  check.io.config        := c
  check.io.invalidate    := io.invalidate
  check.io.in.valid      := io.in.valid && !outside && !crooked
  check.io.in.bits.obj   := offset >> 3
  check.io.in.bits.data.obj    := offset >> 3
  check.io.in.bits.data.source := io.in.bits.source
  check.io.in.bits.data.host   := io.in.bits.host
  io.in.ready := outside || crooked || check.io.in.ready
  io.read <> check.io.read
  io.outside := io.in.valid && outside
  val bad = Wire(Valid(new FaultReport))
  bad.valid := io.in.valid && crooked
  bad.bits := FaultReport(
    Contract.Fault.BadReference,
    address,
    Mux(io.in.bits.host, 0.U, c.heapBase + Cat(io.in.bits.source, 0.U(3.W)))
  )
  io.fault := FaultReport.first(Seq(bad, check.io.fault))

  // Recently tested: read while the limit is compared, written when a reference goes on. The write may come too late
  // for the next reference: it is then tested once more, which costs a cycle and nothing else.
  val indexBits = log2Ceil(recent)
  private def indexOf(obj: UInt): UInt = (obj ^ (obj >> indexBits))(indexBits - 1, 0)
  class Entry extends Bundle {
    val valid = Bool()
    val obj   = UInt(p.objectBits.W)
  }
  val entries   = SyncReadMem(recent, new Entry, SyncReadMem.ReadFirst)
  val sweeping  = RegInit(true.B)
  val sweepNext = RegInit(0.U(indexBits.W))
  when(io.invalidate) { sweeping := true.B; sweepNext := 0.U }
  when(sweeping) {
    sweepNext := sweepNext + 1.U
    when(sweepNext.andR) { sweeping := false.B }
  }
  io.sweeping := sweeping || check.io.sweeping || io.invalidate

  val stageValid = RegInit(false.B)
  val stage      = Reg(new Decoded)
  val advance    = WireDefault(false.B)
  val below      = check.io.out.valid && check.io.out.bits.below
  check.io.out.ready := !io.sweeping && (!check.io.out.bits.below || !stageValid || advance)
  io.above   := check.io.out.fire && !check.io.out.bits.below
  val enter = check.io.out.fire && check.io.out.bits.below
  when(enter) { stage := check.io.out.bits.data }
  stageValid := enter || (stageValid && !advance)
  val entry = entries.read(indexOf(Mux(enter, check.io.out.bits.obj, stage.obj)))
  val known = entry.valid && entry.obj === stage.obj && !stage.host
  io.out.valid     := stageValid && !known
  io.out.bits.obj  := stage.obj
  io.out.bits.flag := c.rescanFlag(stage.source)
  io.out.bits.host := stage.host
  advance     := stageValid && (known || io.out.ready)
  io.filtered := stageValid && known
  val entryNow = Wire(new Entry)
  entryNow.valid := true.B
  entryNow.obj   := stage.obj
  val nothing = 0.U.asTypeOf(new Entry)
  val remember = io.out.fire && !stage.host
  when(sweeping || remember) {
    entries.write(Mux(sweeping, sweepNext, indexOf(stage.obj)), Mux(sweeping, nothing, entryNow))
  }
  io.ended := PopCount(Seq(io.in.valid && (outside || crooked), io.above, io.filtered))
  io.quiet := !io.in.valid && !check.io.busy && !stageValid
}
