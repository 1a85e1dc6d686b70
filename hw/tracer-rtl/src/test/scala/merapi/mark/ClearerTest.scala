// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._

import merapi.{BlockTest, Config}

import scala.util.Random

/** Ranges of lines: all of each is zero when the clearer is not busy any more, nothing beside it is, and nothing is
  * under way while it is held and quiet.
  */
class ClearerTest extends BlockTest {
  private val area = 40 // lines

  test("clears its range and nothing else") {
    simulate(new Clearer(p)) { clearer =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random, 2, 30)
        val ones   = (BigInt(1) << 512) - 1
        restart(clearer)
        clearer.io.range.valid.poke(false)
        clearer.io.hold.poke(false)
        clearer.clock.step()
        for (_ <- 0 until 25) {
          val first = random.nextInt(area)
          val count = random.nextInt(area - first + 1)
          for (i <- -1 to area) memory.lines(Config.bitmap + i) = ones
          clearer.io.range.valid.poke(true)
          clearer.io.range.bits.first.poke(Config.bitmap + first)
          clearer.io.range.bits.count.poke(count)
          assert(is(clearer.io.range.ready), s"seed $seed: busy with nothing")
          var over    = false
          var t       = 0
          var holding = false
          while (!over) {
            if (random.nextInt(20) == 0) holding = !holding && t < 1000
            clearer.io.hold.poke(holding)
            memory.serve(clearer.io.write)
            clearer.clock.step()
            memory.tick()
            clearer.io.range.valid.poke(false)
            clearer.io.write.done.valid.poke(false)
            if (memory.outstanding(clearer.io.write).nonEmpty) {
              assert(is(clearer.io.busy) && !is(clearer.io.quiet), s"seed $seed: a write is under way")
            }
            over = !is(clearer.io.busy)
            t += 1
            assert(t < 3000, s"seed $seed: no end")
          }
          for (i <- -1 to area) {
            val want = if (i >= first && i < first + count) BigInt(0) else ones
            assert(memory.lines(Config.bitmap + i) == want, s"seed $seed: line $i of $count from $first")
          }
        }
      }
    }
  }
}
