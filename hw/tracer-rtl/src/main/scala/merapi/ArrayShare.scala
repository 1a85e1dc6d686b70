// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Cuts the rest of a long array in two when the next lane has nothing to do; combinational.
  *
  * What goes on after a line of references passes through. If it is an array (one run of references, no further blocks)
  * with enough lines left and the next lane takes a piece in this cycle, its run ends at the middle, at the border of a
  * line, and the piece is the rest.
  */
class ArrayShare(p: TracerParameters) extends Module {
  private val least = 8 // lines left that make cutting worth while
  private val lineBits = p.heapAddressBits - 6 + 1
  val io = IO(new Bundle {
    val in    = Flipped(Valid(new Continuation(p)))
    val obj   = Input(UInt(p.objectBits.W)) // of `in`
    val out   = Valid(new Continuation(p))
    val long  = Output(Bool()) // `out` is an array with lines left
    val piece = Decoupled(new Piece(p))
  })
  val work  = io.in.bits.work
  val array = work.phase === Phase.References && work.extensionLeft === 0.U &&
    work.spans.tail.map(s => s.start === s.end).reduce(_ && _)
  val line = work.line(lineBits - 1, 0)
  val last = ((work.spans(0).end - 1.U) >> 4)(lineBits - 1, 0)
  val left = last - line // after the one that comes next
  val middle = line + (left >> 1) + 1.U
  val border = Cat(middle, 0.U(4.W))(p.heapAddressBits - 2, 0)

  io.out  := io.in
  io.long := array && left =/= 0.U
  io.piece.valid     := io.in.valid && array && left >= least.U
  io.piece.bits.obj  := io.obj
  io.piece.bits.work := work
  io.piece.bits.work.line           := middle
  io.piece.bits.work.slots          := Fill(ScanJob.slots(p), 1.U(1.W)) // lines follow: this one is full
  io.piece.bits.work.spans(0).start := border
  when(io.piece.fire) { io.out.bits.work.spans(0).end := border }
}
