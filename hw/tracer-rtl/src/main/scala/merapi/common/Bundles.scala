// SPDX-License-Identifier: Apache-2.0
package merapi.common

import chisel3._
import chisel3.util._

import merapi.primitives.Word

/** One 64-byte line to read. The requester has a place for the answer before it asks. */
class ReadRequest(p: TracerParameters) extends Bundle {
  val line = UInt(p.lineAddress.W)
  val tag  = UInt(p.tagBits.W)
}

class ReadResponse(p: TracerParameters) extends Bundle {
  val tag  = UInt(p.tagBits.W)
  val data = UInt(p.lineBits.W)
}

/** A client that reads: at most one outstanding request per tag, and it takes an answer in the cycle it comes (the
  * response has no ready), so that no answer can hold up another.
  */
class ReadPort(p: TracerParameters) extends Bundle {
  val request  = Decoupled(new ReadRequest(p))
  val response = Flipped(Valid(new ReadResponse(p)))
}

/** Lines are written whole. */
class WriteRequest(p: TracerParameters) extends Bundle {
  val line = UInt(p.lineAddress.W)
  val data = UInt(p.lineBits.W)
  val tag  = UInt(p.tagBits.W)
}

class WritePort(p: TracerParameters) extends Bundle {
  val request = Decoupled(new WriteRequest(p))
  val done    = Flipped(Valid(UInt(p.tagBits.W)))
}

/** Why a context stops: enum fault with its address and detail. */
class FaultReport extends Bundle {
  val code    = UInt(4.W)
  val address = UInt(64.W)
  val detail  = UInt(64.W)
}

object FaultReport {
  def apply(code: Int, address: UInt, detail: UInt): FaultReport = {
    val f = Wire(new FaultReport)
    f.code    := code.U
    f.address := address
    f.detail  := detail
    f
  }

  /** The first of several in one cycle, by position. */
  def first(reports: Seq[Valid[FaultReport]]): Valid[FaultReport] = {
    val out = Wire(Valid(new FaultReport))
    out.valid := reports.map(_.valid).reduce(_ || _)
    out.bits  := PriorityMux(reports.map(r => r.valid -> r.bits))
    out
  }

  /** The same in the next cycle, of what is wide from many places: each in registers that are zero but for the first, and
    * change only when there is something to tell, or was in the cycle before.
    */
  def firstLate[T <: Data](reports: Seq[Valid[T]]): Valid[T] = {
    val out = Wire(chiselTypeOf(reports.head))
    val held = reports.zipWithIndex.map { case (r, i) =>
      val before = reports.take(i).foldLeft(false.B)((any, b) => any || b.valid)
      RegEnable(Mux(r.valid && !before, r.bits.asUInt, 0.U), r.valid || RegNext(r.valid, true.B))
    }
    out.valid := RegNext(reports.map(_.valid).reduce(_ || _), false.B)
    out.bits  := held.reduce(_ | _).asTypeOf(out.bits)
    out
  }
}

/** What BEGIN_CYCLE latched. Constant while a cycle runs. Addresses of areas are lines of the window. */
class TraceConfig(p: TracerParameters) extends Bundle {
  val heapBase       = UInt(64.W)
  val fromNarrow     = UInt(64.W) // narrow base less heap's: what is added to a decoded reference for its offset
  val fromWide       = UInt(64.W) // the same for addresses
  val narrowShift    = UInt(4.W)  // of the decoding
  val wideOops       = Bool()
  val wideKlass      = Bool()
  val alignmentLog2  = UInt(4.W)
  val regionLog2     = UInt(6.W)
  val regionCount    = UInt((p.regionBits + 1).W)
  val mirrorOffset   = UInt(32.W)
  val heapBytes      = UInt((p.heapAddressBits + 1).W)
  val flagShift      = UInt(5.W)  // regions per rescan flag, log2
  val flagUnits      = UInt(5.W)  // units of 64 KiB (Region) per rescan flag, log2
  val heap           = UInt(p.lineAddress.W)
  val limits         = UInt(p.lineAddress.W)
  val live           = UInt(p.lineAddress.W)
  val bitmap         = UInt(p.lineAddress.W)
  val shapes         = UInt(p.lineAddress.W)
  val shapesLog2     = UInt(5.W)
  val extension      = UInt(p.lineAddress.W)
  val extensionLines = UInt(p.lineAddress.W)
  val spill          = UInt(p.lineAddress.W)
  val spillPerLane = UInt(p.lineAddress.W) // lines

  /** A narrow reference as it stands in the heap, times the unit that it counts in. */
  def scaled(value: UInt): UInt = Word.shiftUp(value(31, 0).pad(64), narrowShift)

  /** Number of the mark bit of an object. */
  def markBit(obj: UInt): UInt = bitAt(obj).take(p.objectBits)

  /** The same of any word of the heap, and of what is after the last. */
  def bitAt(word: UInt): UInt = word >> (alignmentLog2 - 3.U)(2, 0)

  /** Object of a mark bit. */
  def objectOf(bit: UInt): UInt   = Word.shiftUp(bit.pad(p.objectBits), (alignmentLog2 - 3.U)(2, 0))
  def region(obj: UInt): UInt     = Region.of(p, obj, regionLog2)
  def rescanFlag(obj: UInt): UInt = (Region.unit(obj) >> flagUnits).take(p.flagLog2)
}

/** A marked object whose references are to be read. `count`: its words are not in the live table yet. */
class Grey(p: TracerParameters) extends Bundle {
  val obj   = UInt(p.objectBits.W)
  val count = Bool()
}

/** A reference that passed the filter, on its way to its mark bank.
  *
  * When the bank cannot keep a grey for it, it leaves the object unmarked and flags the chunk of the object that the
  * reference was read from (`flag`), so that the edge is followed again. A reference of the host (`host`) has no such
  * object: the bank refuses it and the command processor offers it again.
  */
class Reference(p: TracerParameters) extends Bundle {
  val bit  = UInt(p.objectBits.W) // mark bit of its object
  val flag = UInt(p.flagLog2.W)
  val host = Bool()
}

/** An object for the host. `unsized`: marked by the device, and without a shape: the host counts it. */
class Deferred(p: TracerParameters) extends Bundle {
  val obj     = UInt(p.objectBits.W)
  val unsized = Bool()
}

object Region {

  /** Smallest regions, in bytes. Shifts by what a region may have beyond that need fewer steps. */
  val unitLog2 = 16

  /** Largest regions, in bytes. A heap may be one of them, so this may be as much as `heapAddressBits` or more. */
  val mostLog2 = 36

  /** How many of the smallest a region is, log2. */
  def units(regionLog2: UInt): UInt = (regionLog2 - unitLog2.U)(4, 0)

  /** Number of the smallest region that an object, which counts words, would be in. */
  def unit(obj: UInt): UInt = obj >> (unitLog2 - 3)

  /** Region of an object. */
  def of(p: TracerParameters, obj: UInt, regionLog2: UInt): UInt = (unit(obj) >> units(regionLog2)).take(p.regionBits)

  /** First byte of a region, as wide as that of any. */
  def start(region: UInt, regionLog2: UInt): UInt = Word.shiftUp(Cat(region, 0.U(unitLog2.W)), units(regionLog2))
}

object Bank {

  /** Bank of a mark bit: an exclusive-or over the bits of its line's number, so that neither a sweep nor a stride
    * leaves banks idle. The low bits of the line number can be computed back from bank and upper bits.
    */
  def of(p: TracerParameters, markBit: UInt): UInt =
    if (p.lanes == 1) 0.U(0.W)
    else {
      val line = markBit >> 9
      (0 until 5).map(i => (line >> (i * p.laneLog2))(p.laneLog2 - 1, 0)).reduce(_ ^ _)
    }
}
