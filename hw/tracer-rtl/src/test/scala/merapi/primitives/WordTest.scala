// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._
import chisel3.util.log2Ceil

import merapi.BlockTest

import scala.util.Random

/** The functions of Word on words of one width. */
class WordHarness(width: Int) extends Module {
  private val byBits = log2Ceil(width) + 1
  val io = IO(new Bundle {
    val x       = Input(UInt(width.W))
    val by      = Input(UInt(byBits.W))
    val upFrom  = Output(UInt(width.W))
    val above   = Output(UInt(width.W))
    val lowest  = Output(UInt(width.W))
    val index   = Output(UInt(log2Ceil(width).max(1).W))
    val first   = Output(UInt(width.W))
    val count   = Output(UInt(log2Ceil(width + 1).W))
    val shifted = Output(UInt(width.W))
    val several = Output(Bool())
  })
  io.upFrom  := Word.upFrom(io.x)
  io.above   := Word.above(io.x)
  io.lowest  := Word.lowest(io.x)
  io.index   := Word.lowestIndex(io.x)
  io.first   := Word.first(io.by, width)
  io.count   := Word.count(io.x)
  io.shifted := Word.shiftUp(io.x, io.by)
  io.several := Word.several(io.x)
}

class WordTest extends BlockTest {
  for (width <- Seq(1, 2, 3, 7, 16, 23, 32, 64)) test(s"bits of words of $width") {
    simulate(new WordHarness(width)) { word =>
      val all = (BigInt(1) << width) - 1
      for (seed <- seeds(2)) {
        val random = new Random(seed)
        restart(word)
        def check(x: BigInt, by: Int): Unit = {
          word.io.x.poke(x)
          word.io.by.poke(by)
          val lowest = x & -x
          def same(what: String, found: UInt, want: BigInt): Unit =
            assert(found.peek().litValue == want, s"seed $seed: $what of ${x.toString(16)}, $by")
          same("what is from the lowest on", word.io.upFrom, if (x == 0) 0 else all ^ (lowest - 1))
          same("what is above the lowest", word.io.above, if (x == 0) 0 else all ^ (2 * lowest - 1) & all)
          same("the lowest", word.io.lowest, lowest)
          if (x != 0) same("the lowest's number", word.io.index, x.lowestSetBit)
          same("the first", word.io.first, (BigInt(1) << by.min(width)) - 1)
          same("the count", word.io.count, x.bitCount)
          assert(word.io.several.peek().litToBoolean == (x.bitCount > 1), s"seed $seed: several in ${x.toString(16)}")
          same("a shift", word.io.shifted, x << by & all)
        }
        for (i <- 0 until width; by       <- Seq(0, width - 1, width)) check(BigInt(1) << i, by)
        for (x <- Seq(BigInt(0), all); by <- 0 to width) check(x, by)
        for (_ <- 0 until 300) {
          val dense = BigInt(width, random)
          val x     = if (random.nextBoolean()) dense else dense & BigInt(width, random) & BigInt(width, random)
          check(x, random.nextInt(width + 1))
        }
      }
    }
  }
}
