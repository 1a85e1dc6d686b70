// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._

import merapi.BlockTest

import scala.collection.mutable
import scala.util.Random

/** Chunks in which a reference was dropped: each is found, as often as it is flagged, and none that is not; after a pause
  * before which one was dropped (and nothing settled since), all chunks of the heap.
  */
class RescanFlagsTest extends BlockTest {
  private val small = p.copy(lanes = 2, rescanFlags = 16)

  test("finds every flag") {
    simulate(new RescanFlags(small)) { flags =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        restart(flags)
        flags.io.unflag.valid.poke(false)
        flags.io.drops.foreach(_.valid.poke(false))
        flags.io.resumed.poke(false)
        flags.io.settled.poke(false)
        val shift   = random.nextInt(4)
        val regions = (9 << shift) + random.nextInt(7 << shift) + 1
        val chunks  = ((regions - 1) >> shift) + 1
        flags.io.shift.poke(shift)
        flags.io.regions.poke(regions)
        flags.clock.step(small.rescanFlags + 1)
        val set    = mutable.Set.empty[Int]
        var found  = 0
        var since  = false // a drop since the last pause
        var pauses = 0
        for (_ <- 0 until 150) {
          // Some are dropped, from either bank, while flags are looked for or after that.
          for (_ <- 0 until random.nextInt(12)) {
            for (drop <- flags.io.drops) {
              val drops = random.nextInt(3) == 0
              val at    = if (random.nextBoolean()) random.nextInt(chunks) else (chunks - 1) * random.nextInt(2)
              drop.valid.poke(drops)
              drop.bits.poke(at)
              if (drops) {
                set += at
                since = true
              }
            }
            flags.clock.step()
          }
          flags.io.drops.foreach(_.valid.poke(false))
          if (random.nextInt(8) == 0) {
            if (since) set ++= 0 until chunks
            pauses += (if (since) 1 else 0)
            since = false
            flags.io.resumed.poke(true)
            flags.clock.step()
            flags.io.resumed.poke(false)
          }
          // At rest: until none is left, or a few at a time.
          var more = random.nextInt(4) match { case 0 => 100; case n => n }
          while (more > 0) {
            var t = 0
            while (is(flags.io.searching)) {
              flags.clock.step()
              t += 1
              assert(t <= 2 * small.rescanFlags + 1, s"seed $seed: no end of the search")
            }
            if (is(flags.io.found.valid)) {
              val at = flags.io.found.bits.peek().litValue.toInt
              assert(set.remove(at), s"seed $seed: chunk $at was found, flagged are $set")
              flags.io.unflag.valid.poke(true)
              flags.io.unflag.bits.poke(at)
              flags.clock.step()
              flags.io.unflag.valid.poke(false)
              found += 1
              more -= 1
            } else {
              assert(set.isEmpty, s"seed $seed: nothing found, and flagged are $set")
              more = 0
              if (random.nextInt(3) == 0) {
                since = false
                flags.io.settled.poke(true)
                flags.clock.step()
                flags.io.settled.poke(false)
              }
            }
          }
        }
        assert(found > 150 && pauses > 4, s"seed $seed: $found, $pauses")
      }
    }
  }
}
