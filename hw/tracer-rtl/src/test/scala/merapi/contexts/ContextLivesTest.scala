// SPDX-License-Identifier: Apache-2.0
package merapi.contexts

import chisel3._

import merapi.BlockTest
import merapi.common.ContextParameters

import scala.util.Random

/** Three contexts whose shell asks for windows at random, good and bad ones, near each other and at the memory's ends: one
  * is open only with a window that keeps the rules, and then with the one that is asked for; what is asked for and keeps
  * them is opened before long, what does not is refused; a context is free when it is neither open nor undrained.
  */
class ContextLivesTest extends BlockTest {
  // A memory smaller than the largest window, and ports whose turn is longer than what devdax maps.
  private val large = ContextParameters("test", p, contexts = 3, memoryAddressBits = 26)
  private val wide =
    ContextParameters("test", p.copy(ports = 8, interleaveLog2 = 20), contexts = 3, memoryAddressBits = 28)
  // Windows that are not the whole of the memory.
  private val short = ContextParameters(
    "test",
    p.copy(heapAddressBits = 32, windowAddressBits = 33),
    contexts = 3,
    memoryAddressBits = 35
  )
  private case class Window(base: BigInt, bytes: BigInt) {
    def end               = base + bytes
    def shares(o: Window) = base < o.end && o.base < end
  }
  private val none = Window(0, 0)

  for ((c, name) <- Seq((large, "two MiB"), (wide, "eight ports"), (short, "short windows")))
    test(s"opens what keeps the rules and nothing else: $name") {
      assert(c.granule == (if (c eq wide) 8 << 20 else 2 << 20))
      val memory = BigInt(1) << c.memoryAddressBits
      simulate(new ContextLives(c)) { lives =>
        for (seed <- seeds(3)) {
          val random = new Random(seed)
          restart(lives)
          val asked           = Array.fill(c.contexts)(none)
          val since           = Array.fill(c.contexts)(0)    // cycles that the same was asked for
          val served          = Array.fill(c.contexts)(none) // none: free
          val busy            = Array.fill(c.contexts)(0)    // cycles until drained, once it is closed
          val wasOpen         = Array.fill(c.contexts)(false)
          val still           = Array.fill(c.contexts)(0)    // cycles that no other context has changed
          var opened, refused = 0
          def keeps(w: Window) =
            w.bytes > 0 && w.base % c.granule == 0 && w.end <= memory && w.bytes <= (BigInt(
              1
            ) << c.tracer.windowAddressBits)
          def some(): Window = random.nextInt(12) match {
            case 0 => none
            case 1 => Window(BigInt(64, random), BigInt(64, random))
            case 2 => Window((BigInt(64, random) / c.granule) * c.granule, BigInt(c.granule))
            case 3 => Window(memory - c.granule, c.granule + random.nextInt(3) - 1)
            case 4 => Window(0, memory + random.nextInt(3) - 1)
            case 5 => Window(c.granule * BigInt(random.nextInt(32)), BigInt(1) << (20 + random.nextInt(24)))
            case 6 => Window(c.granule * BigInt(random.nextInt(32)) + (1 << random.nextInt(23)), BigInt(c.granule))
            case 7 => Window(0, (BigInt(1) << c.tracer.windowAddressBits) + random.nextInt(2))
            case _ =>
              val pieces = (memory / c.granule).toInt
              Window(
                c.granule * BigInt(random.nextInt(pieces)),
                BigInt(c.granule) * (1 + random.nextInt(4)) - random.nextInt(2)
              )
          }
          for (t <- 0 until 6000) {
            for (i <- 0 until c.contexts) {
              since(i) += 1
              if (random.nextInt(120) == 0) {
                asked(i) = some()
                since(i) = 0
              } else if (random.nextInt(400) == 0) {
                // For a cycle only.
                val before = asked(i)
                lives.io.asked(i).base.poke(before.base)
                lives.io.asked(i).bytes.poke(before.bytes ^ 1)
                since(i) = -1
              }
              if (since(i) >= 0) {
                lives.io.asked(i).base.poke(asked(i).base)
                lives.io.asked(i).bytes.poke(asked(i).bytes)
              }
              val open = is(lives.io.open(i))
              if (wasOpen(i) && !open) busy(i) = random.nextInt(60)
              lives.io.drained(i).poke(if (open) random.nextBoolean() else busy(i) == 0)
              busy(i) = (busy(i) - 1) max 0
            }
            for (i <- 0 until c.contexts) {
              val (open, free) = (is(lives.io.open(i)), is(lives.io.free(i)))
              assert(!(open && free), s"seed $seed: context $i is open and free")
              if (open && !wasOpen(i)) {
                val window = Window(
                  lives.io.windows(i).base.peek().litValue * c.granule,
                  lives.io.windows(i).bytes.peek().litValue
                )
                assert(served(i) == none, s"seed $seed: context $i was not free")
                assert(keeps(window), s"seed $seed: $window is served")
                for (j <- 0 until c.contexts if j != i && served(j) != none)
                  assert(!window.shares(served(j)), s"seed $seed: $window of $i shares bytes with ${served(j)} of $j")
                served(i) = window
                opened += 1
                for (j <- 0 until c.contexts) still(j) = 0
              }
              if (served(i) != none) {
                val now =
                  Window(
                    lives.io.windows(i).base.peek().litValue * c.granule,
                    lives.io.windows(i).bytes.peek().litValue
                  )
                assert(now == served(i), s"seed $seed: the window of context $i changed while it was served")
              }
              // One cycle late: open with what is asked for, or not at all.
              if (open && since(i) >= 1)
                assert(served(i) == asked(i), s"seed $seed: ${served(i)}, asked is ${asked(i)}")
              if (free && served(i) != none) {
                served(i) = none
                for (j <- 0 until c.contexts) still(j) = 0
              }
              wasOpen(i) = open
            }
            // Within three rounds of five steps and two more comparisons each.
            for (i <- 0 until c.contexts) {
              still(i) += 1
              if (since(i) > 100 && still(i) > 100) {
                val others = (0 until c.contexts).filter(j => j != i && served(j) != none)
                val good   = keeps(asked(i)) && others.forall(j => !served(j).shares(asked(i)))
                assert(is(lives.io.open(i)) == good, s"seed $seed: ${asked(i)} of $i, beside ${others.map(served(_))}")
                assert(is(lives.io.refused(i)) == (!good && asked(i).bytes != 0), s"seed $seed: ${asked(i)} of $i")
                if (is(lives.io.refused(i))) refused += 1
              }
            }
            lives.clock.step()
          }
          assert(opened > 20 && refused > 200, s"seed $seed: $opened opened, $refused refused")
        }
      }
    }

  // A shell asks for none and then for a good window, at any cycle of the round: it is not told that this one is refused.
  test("what was refused says nothing of what is asked for after none") {
    simulate(new ContextLives(large)) { lives =>
      restart(lives)
      def ask(window: Window): Unit = {
        lives.io.asked(1).base.poke(window.base)
        lives.io.asked(1).bytes.poke(window.bytes)
      }
      def until(what: => Bool): Unit = {
        var left = 100
        while (!is(what)) {
          lives.clock.step()
          left -= 1
          assert(left > 0, "a window is neither opened nor refused")
        }
      }
      for (i <- 0 until large.contexts) {
        lives.io.asked(i).bytes.poke(0)
        lives.io.drained(i).poke(true)
      }
      for (wait <- 0 until 30) {
        ask(Window(64, large.granule))
        until(lives.io.refused(1))
        lives.clock.step(wait)
        ask(none)
        lives.clock.step()
        assert(!is(lives.io.refused(1)), s"nothing is asked for, after $wait cycles")
        ask(Window(0, large.granule))
        until {
          assert(!is(lives.io.refused(1)), s"a good window is refused, after $wait cycles")
          lives.io.open(1)
        }
        ask(none)
        until(lives.io.free(1))
      }
    }
  }
}
