// SPDX-License-Identifier: Apache-2.0
package merapi.common

import chisel3._

/** Lines of the control page, in the order in which a list of them is written. */
object PageLine {
  val counters                = 0
  val fault                   = Counters.lines
  val identity                = fault + 1
  val index                   = identity + 1
  val idle                    = index + 1
  val ack                     = idle + 1
  val indexAgain              = ack + 1 // carries the event that announces the others
  val count                   = indexAgain + 1
  def mask(lines: Int*): UInt = lines.map(BigInt(1) << _).sum.U(count.W)
  val allCounters: Seq[Int]   = (0 until Counters.lines).toList
}
