// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._
import chisel3.util._

/** Bits of a word taken together, in a number of steps that is the logarithm of its width: short in hardware, and few
  * operations of a whole word in simulation, where a bit at a time would be as many as there are bits.
  */
object Word {
  private def steps(width: Int): Seq[Int] = Iterator.iterate(1)(_ * 2).takeWhile(_ < width).toSeq

  /** Each bit: whether it or one below it is set. Four bits are joined in a step, as many as a LUT6 has room for beside a
    * condition: three levels of them for 64 bits.
    */
  def upFrom(x: UInt): UInt = {
    val width = x.getWidth
    steps(width)
      .grouped(2)
      .foldLeft(x) { (bits, step) =>
        val by = step.head
        (by until width by by).take(3).map(far => (bits << far)(width - 1, 0)).foldLeft(bits)(_ | _)
      }
  }

  /** Those above the lowest that is set. */
  def above(x: UInt): UInt = if (x.getWidth == 1) 0.U(1.W) else (upFrom(x) << 1)(x.getWidth - 1, 0)

  /** The lowest that is set, alone. */
  def lowest(x: UInt): UInt = x & ~above(x)

  /** Number of the lowest that is set. */
  def lowestIndex(x: UInt): UInt = OHToUInt(lowest(x))

  /** The first `count` of `width`, 2^(bits of count) - 1 at most: ones that are shifted in, not one less than a power of
    * two, which would be a carry chain.
    */
  def first(count: UInt, width: Int): UInt = ~(Fill(width, 1.U(1.W)) << count)(width - 1, 0)

  /** Whether more than one is set: two bits are joined in a step, each with what is known of it. */
  def several(x: UInt): Bool = {
    val width = 1 << log2Ceil(x.getWidth)
    steps(width)
      .foldLeft((x.pad(width), 0.U(width.W))) { case ((some, many), by) =>
        val (someBelow, manyBelow) = ((some >> by).pad(width), (many >> by).pad(width))
        (some | someBelow, many | manyBelow | (some & someBelow))
      }
      ._2(0)
  }

  /** How many are set, added up in fields of a word. */
  def count(x: UInt): UInt = {
    val width = 1 << log2Ceil(x.getWidth)
    steps(width)
      .foldLeft(x.pad(width)) { (sums, by) =>
        val low =
          (0 until width / (2 * by)).foldLeft(BigInt(0))((m, i) => m | (((BigInt(1) << by) - 1) << (2 * by * i)))
        ((sums & low.U(width.W)) + ((sums >> by).asUInt & low.U(width.W)))(width - 1, 0)
      }
      .take(log2Ceil(x.getWidth + 1))
  }

  /** x << by, as wide as x. In Chisel what is shifted by a number grows by all that it could be shifted. */
  def shiftUp(x: UInt, by: UInt): UInt = {
    val width = x.getWidth
    (0 until by.getWidth).foldLeft(x) { (bits, i) =>
      val far = 1 << i
      Mux(by(i), if (far >= width) 0.U(width.W) else (bits << far)(width - 1, 0), bits)
    }
  }
}
