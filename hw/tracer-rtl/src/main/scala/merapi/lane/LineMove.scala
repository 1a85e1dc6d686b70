// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

/** Where a line lies to the one before it, by one subtraction: a few lines up, or down, or elsewhere. */
class LineMove(near: Int) extends Bundle {
  val some = Bool()                     // not the same line
  val up   = Bool()                     // by one to `near` lines
  val down = Bool()                     // by one to `near` lines
  val back = Bool()                     // known early: which of up and down, if it is one of them
  val by   = UInt(log2Ceil(near + 1).W) // if up or down
}

object LineMove {
  def apply(now: UInt, before: UInt, near: Int): LineMove = {
    val low  = log2Ceil(near + 1)
    val by   = now - before
    val few  = by(low - 1, 0)
    val high = by >> low
    val out  = Wire(new LineMove(near))
    out.some := by.orR
    out.up   := !high.orR && few =/= 0.U && few <= near.U
    out.down := high.andR && few >= ((1 << low) - near).U
    out.back := by.head(1).asBool
    out.by   := Mux(out.back, 0.U - few, few)
    out
  }
}
