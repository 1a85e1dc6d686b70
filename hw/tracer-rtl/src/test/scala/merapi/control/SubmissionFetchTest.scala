// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._

import merapi.{BlockTest, Config}

import scala.util.Random

/** Entries of a ring that the host goes on filling, whose slots it writes again as soon as their entries were handed out:
  * they come in order, whole, each once, and after a restart from where it says.
  */
class SubmissionFetchTest extends BlockTest {
  private val entries = 8

  test("hands entries out in order") {
    simulate(new SubmissionFetch(p)) { fetch =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random, 2, if (seed % 2 == 0) 8 else 60)
        restart(fetch)
        fetch.io.ring.poke(Config.spill)
        fetch.io.entries.poke(entries)
        fetch.io.enabled.poke(false)
        fetch.io.entry.ready.poke(false)
        // Far along in the host's count.
        val begin              = if (seed == 1) BigInt(0) else BigInt(62, random)
        var written, submitted = begin // by the host; as the control unit has seen it
        var handed             = begin
        var version            = 0
        def entry(i: BigInt)   = (i << 64) | (BigInt(version) << 32) | 0x5a5a
        def line(i: BigInt)    = BigInt(Config.spill) + i % entries
        fetch.io.submitted.poke(submitted)
        fetch.io.restart.valid.poke(true)
        fetch.io.restart.bits.poke(begin)
        fetch.clock.step()
        fetch.io.restart.valid.poke(false)
        var came, restarts = 0
        for (t <- 0 until 4000) {
          if (written < handed + entries && random.nextInt(4) == 0) {
            memory.lines(line(written)) = entry(written)
            written += 1
          }
          if (random.nextInt(8) == 0) submitted = written
          fetch.io.submitted.poke(submitted)
          val restarting = random.nextInt(60) == 0
          // An abort drops what was submitted; what the host writes then is another entry of the same number.
          fetch.io.restart.valid.poke(restarting)
          if (restarting) fetch.io.restart.bits.poke(submitted)
          fetch.io.enabled.poke(t % 500 > 20)
          fetch.io.entry.ready.poke(!restarting && random.nextInt(3) != 0)
          memory.serve(fetch.io.read)
          if (fires(fetch.io.entry)) {
            val have = fetch.io.entry.bits.peek().litValue
            assert(handed < submitted, s"seed $seed: entry $handed was not submitted yet")
            assert(have == entry(handed), s"seed $seed: expected entry $handed, found ${have >> 64}")
            handed += 1
            came += 1
          }
          fetch.clock.step()
          memory.tick()
          if (restarting) {
            restarts += 1
            handed = submitted
            version += 1
            for (i <- 0 until (written - handed).toInt) memory.lines(line(handed + i)) = entry(handed + i)
          }
        }
        assert(came > 120 && restarts > 30, s"seed $seed: $came entries, $restarts restarts")
      }
    }
  }
}
