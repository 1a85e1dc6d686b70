// SPDX-License-Identifier: Apache-2.0
package merapi.control

import merapi.BlockTest

import scala.collection.mutable
import scala.util.Random

/** Entries of references that end in any order, are refused now and then, are held and forgotten: none leaves before
  * all of its references ended well, and nothing is offered while held.
  */
class GreyOfferTest extends BlockTest {
  private class Bench(offer: GreyOffer, random: Random) {
    val open                        = mutable.ArrayBuffer.empty[BigInt] // offered, not ended
    val missing                     = mutable.Set.empty[BigInt]         // put, not ended well
    var refusing                    = 0                                 // percent
    var most                        = 8                                 // most under way
    var put, sent, refusals, cycles = 0
    private var next                = BigInt(1)
    private var held                = false
    private var offering            = false
    private var ends                = (0, false)
    offer.io.again.poke(false)
    offer.io.clear.poke(false)
    offer.io.hold.poke(false)
    offer.io.put.valid.poke(false)
    offer.io.out.ready.poke(false)
    offer.io.ends.count.poke(0)
    offer.io.ends.refused.poke(false)

    def on(x: chisel3.Bool): Boolean = x.peek().litToBoolean

    def cycle(
        putPercent: Int,
        readyPercent: Int,
        hold: Boolean = false,
        clear: Boolean = false,
        again: Boolean = true
    ): Unit = {
      // How references end is heard two cycles later.
      offer.io.ends.count.poke(ends._1)
      offer.io.ends.refused.poke(ends._2)
      offer.io.hold.poke(hold)
      offer.io.clear.poke(clear)
      val tries = random.nextInt(100) < putPercent && on(offer.io.room)
      val count = 1 + random.nextInt(6)
      offer.io.put.valid.poke(tries)
      offer.io.put.bits.count.poke(count)
      for (i <- 0 until 6) offer.io.put.bits.references(i).poke(next + i)
      val ready = random.nextInt(100) < readyPercent && open.size < most
      offer.io.out.ready.poke(ready)
      val valid = on(offer.io.out.valid)
      assert(!held || !valid || offering, "offered while held")
      held = hold
      offering = valid && !ready
      val refused = on(offer.io.refused)
      assert(!refused || open.isEmpty, "asks for another time while some are under way")
      offer.io.again.poke(refused && again)
      if (on(offer.io.empty)) assert(missing.isEmpty, s"left with ${missing.size} references that did not end well")
      if (tries) {
        for (i <- 0 until count) missing += next + i
        next += count
        put += 1
      }
      if (valid && ready) {
        open += offer.io.out.bits.value.peek().litValue
        assert(on(offer.io.out.bits.host))
        sent += 1
      }
      ends = (0, false)
      while (open.nonEmpty && ends._1 < 3 && random.nextInt(3) != 0) {
        val one  = open.remove(random.nextInt(open.size))
        val away = random.nextInt(100) < refusing
        if (away) refusals += 1 else missing -= one
        ends = (ends._1 + 1, ends._2 || away)
      }
      offer.clock.step()
      cycles += 1
      if (clear) {
        open.clear()
        missing.clear()
        ends = (0, false)
        offering = false
      }
    }
    def drain(): Unit = {
      var left = 4000
      while (!on(offer.io.empty) && left > 0) { cycle(0, 90); left -= 1 }
      assert(left > 0, "no end")
      assert(missing.isEmpty && open.isEmpty)
    }
  }

  test("keeps entries until all their references have ended well") {
    simulate(new GreyOffer(p)) { offer =>
      for (seed <- seeds(6)) {
        val random = new Random(seed)
        offer.reset.poke(true)
        offer.clock.step(2)
        offer.reset.poke(false)
        val bench = new Bench(offer, random)
        for (round <- 0 until 24) {
          bench.refusing = if (random.nextBoolean()) 0 else random.nextInt(50)
          bench.most = 1 + random.nextInt(12)
          val (putPercent, readyPercent) = (random.nextInt(101), 20 + random.nextInt(81))
          val patient                    = random.nextBoolean() // the control unit has something else to do
          var hold                       = 0
          for (_ <- 0 until 100) {
            if (hold == 0 && random.nextInt(30) == 0) hold = 1 + random.nextInt(20)
            bench.cycle(
              putPercent,
              readyPercent,
              hold > 0,
              random.nextInt(150) == 0,
              !patient || random.nextInt(8) == 0
            )
            hold = (hold - 1).max(0)
          }
          // What refuses for ever is nothing that this unit could end.
          bench.refusing = bench.refusing.min(20)
          bench.drain()
        }
        assert(bench.put > 100 && bench.refusals > 50, s"seed $seed: ${bench.put} entries, ${bench.refusals} refusals")
      }
    }
  }

  test("offers one reference a cycle across entries") {
    simulate(new GreyOffer(p)) { offer =>
      offer.reset.poke(true)
      offer.clock.step(2)
      offer.reset.poke(false)
      val bench = new Bench(offer, new Random(1))
      bench.most = 100
      while (bench.put < 4) bench.cycle(100, 0)
      val (before, first) = (bench.sent, bench.cycles)
      while (bench.missing.nonEmpty || bench.sent == before) bench.cycle(0, 100)
      // All of them, and the wait for the last ones.
      assert(bench.cycles - first <= bench.sent - before + 12, s"${bench.sent} references in ${bench.cycles} cycles")
    }
  }
}
