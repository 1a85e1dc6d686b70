// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._

import merapi.{BlockTest, Config}

import scala.util.Random

/** A lane's merging of live words: sums by region are what went in, and most updates end there. */
class LiveMergeTest extends BlockTest {
  test("sums leave as they came") {
    simulate(new LiveMerge(p)) { merge =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        merge.reset.poke(true)
        merge.clock.step(2)
        merge.reset.poke(false)
        val in, out = new Array[BigInt](64)
        for (i <- in.indices) { in(i) = 0; out(i) = 0 }
        var updates, left = 0
        def drain(): Unit = if (merge.io.out.valid.peek().litToBoolean && merge.io.out.ready.peek().litToBoolean) {
          out(merge.io.out.bits.region.peek().litValue.toInt) += merge.io.out.bits.words.peek().litValue
          left += 1
        }
        for (t <- 0 until 3000) {
          merge.io.flush.poke(false)
          merge.io.in.valid.poke(random.nextInt(4) != 0)
          // The last, which a flush finds on their way, are of regions that push each other out.
          val region = if (t < 2980 && random.nextInt(8) != 0) t / 100 else random.nextInt(64)
          merge.io.in.bits.region.poke(region)
          val words = random.nextInt(1000)
          merge.io.in.bits.words.poke(words)
          merge.io.out.ready.poke(random.nextInt(3) == 0)
          if (merge.io.in.valid.peek().litToBoolean && merge.io.in.ready.peek().litToBoolean) {
            in(region) += words
            updates += 1
          }
          drain()
          merge.clock.step()
        }
        merge.io.in.valid.poke(false)
        merge.io.flush.poke(true)
        for (_ <- 0 until 40) {
          merge.io.out.ready.poke(random.nextBoolean())
          drain()
          merge.clock.step()
        }
        assert(merge.io.empty.peek().litToBoolean)
        assert(in.toSeq == out.toSeq, s"seed $seed")
        assert(left * 2 < updates, s"seed $seed: $left of $updates updates left")
      }
    }
  }
}

/** The live table: the window's words plus everything counted, after a flush, with fewer rows than regions. */
class LiveTableTest extends BlockTest {
  test("adds to what the window holds") {
    simulate(new LiveTable(p)) { table =>
      for (seed <- seeds(4)) {
        val random  = new Random(seed)
        val memory  = new Memory(random)
        val regions = 8 * p.liveLines * 4
        table.reset.poke(true)
        table.clock.step(2)
        table.reset.poke(false)
        configure(table.io.config, regions)
        val want = Array.fill(regions)(BigInt(random.nextInt(1000)))
        for (r <- 0 until regions) memory.setWord(Config.live + r / 8, r % 8, want(r))
        def cycle(): Unit = {
          memory.serve(table.io.read)
          memory.serve(table.io.write)
          val writing = memory.outstanding(table.io.write)
          assert(memory.outstanding(table.io.read).intersect(writing).isEmpty, s"seed $seed: read while written")
          table.clock.step()
          memory.tick()
        }
        for (round <- 0 until 3) {
          table.io.flush.poke(false)
          for (_ <- 0 until 800) {
            val region = random.nextInt(regions)
            val words  = random.nextInt(1 << 20)
            table.io.in(0).valid.poke(random.nextBoolean())
            table.io.in(0).bits.region.poke(region)
            table.io.in(0).bits.words.poke(words)
            val taken = table.io.in(0).valid.peek().litToBoolean && table.io.in(0).ready.peek().litToBoolean
            if (taken) want(region) += words
            cycle()
          }
          table.io.in(0).valid.poke(false)
          table.io.flush.poke(true)
          var left = 5000
          while (!table.io.flushed.peek().litToBoolean && left > 0) { cycle(); left -= 1 }
          assert(left > 0, s"seed $seed: no end of the flush")
          for (r <- 0 until regions) {
            assert(memory.word(Config.live + r / 8, r % 8) == want(r), s"seed $seed: region $r in round $round")
          }
        }
      }
    }
  }
}
