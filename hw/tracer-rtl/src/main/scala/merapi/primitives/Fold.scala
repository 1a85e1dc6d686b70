// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._

object Fold {

  /** All `width` bits of x folded into `bits` by exclusive-or. */
  def apply(x: UInt, width: Int, bits: Int): UInt =
    (0 until width by bits).map(i => x((i + bits).min(width) - 1, i).pad(bits)).reduce(_ ^ _)
}
