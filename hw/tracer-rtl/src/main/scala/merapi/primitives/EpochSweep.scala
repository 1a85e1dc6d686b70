// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._
import chisel3.util._

object EpochSweep {
  val bits = 8
}

/** Which rows of an on-chip memory hold something: those of the present epoch. Dropping all of them (a pulse, or the
  * core's reset, which is an abort or a new cycle) takes one cycle. On-chip memory is never assumed clear, so rows are
  * swept at power-up, and again when the epochs are used up: while `sweeping`, the owner writes epoch 0, which is
  * nobody's, to row `next`.
  */
class EpochSweep(rows: Int) extends Module {
  require(isPow2(rows) && rows > 1, s"expected a power of two of rows, found $rows")
  val io = IO(new Bundle {
    val powerUp  = Input(Bool()) // the first reset, after which the memory holds anything
    val drop     = Input(Bool())
    val sweeping = Output(Bool())
    val next     = Output(UInt(log2Ceil(rows).W))
    val epoch    = Output(UInt(EpochSweep.bits.W))
  })
  val (sweeping, next, epoch) = withReset(io.powerUp) {
    (RegInit(true.B), RegInit(0.U(log2Ceil(rows).W)), RegInit(1.U(EpochSweep.bits.W)))
  }
  when(sweeping) {
    next := next + 1.U
    when(next.andR) { sweeping := false.B }
  }
  when(io.drop || reset.asBool) {
    epoch := epoch + 1.U
    when(epoch.andR) {
      epoch    := 1.U
      sweeping := true.B
      next     := 0.U
    }
  }
  io.sweeping := sweeping
  io.next     := next
  io.epoch    := epoch
}
