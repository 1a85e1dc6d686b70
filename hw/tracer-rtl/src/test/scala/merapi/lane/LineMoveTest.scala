// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._

import merapi.BlockTest

import scala.util.Random

class LineMoveHarness(bits: Int, near: Int) extends Module {
  val io = IO(new Bundle {
    val now    = Input(UInt(bits.W))
    val before = Input(UInt(bits.W))
    val move   = Output(new LineMove(near))
  })
  io.move := LineMove(io.now, io.before, near)
}

/** Up, down, elsewhere or nowhere, also over the end of the lines' numbers. */
class LineMoveTest extends BlockTest {
  private val bits = 34

  for (near <- Seq(3, 4)) test(s"tells moves of up to $near lines from others") {
    simulate(new LineMoveHarness(bits, near)) { lines =>
      val all    = BigInt(1) << bits
      val random = new Random(near)
      for (_ <- 0 until 200; by <- (-9 to 9).map(BigInt(_)) :+ BigInt(bits - 1, random)) {
        val before = if (random.nextInt(4) == 0) BigInt(random.nextInt(4)) else BigInt(bits, random)
        lines.io.before.poke(before)
        lines.io.now.poke((before + by + all) % all)
        val (up, down) = (by >= 1 && by <= near, by >= -near && by <= -1)
        assert(is(lines.io.move.some) == (by != 0), s"by $by")
        assert(is(lines.io.move.up) == up && is(lines.io.move.down) == down, s"by $by")
        if (up || down) {
          assert(is(lines.io.move.back) == down, s"by $by")
          lines.io.move.by.expect(by.abs)
        }
      }
    }
  }
}
