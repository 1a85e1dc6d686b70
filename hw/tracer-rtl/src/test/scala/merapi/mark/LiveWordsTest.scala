// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._

import merapi.{BlockTest, Config}

import scala.util.Random

/** A lane's merging of live words: sums by region are what went in, and most updates end there. */
class LiveMergeTest extends BlockTest {
  for (regions <- Seq(p.mergeRegions, 8)) test(s"sums leave as they came, of $regions regions at a time") {
    simulate(new LiveMerge(p.copy(mergeRegions = regions))) { merge =>
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
  private def forwarding(lanes: Int) = p.copy(lanes = lanes, liveForwarding = lanes > 1)

  for (
    (q, what) <- Seq(
      forwarding(1)                                                     -> "",
      forwarding(1).copy(liveLines = 4 * LiveTable.group)               -> "",
      forwarding(4)                                                     -> ", updates that follow each other",
      p.copy(lanes = 4, liveLines = 4 * LiveTable.group, liveLegs = 32) -> ", and 32 of them on their way"
    )
  ) {
    val (rows, lanes) = (q.liveLines, q.lanes)
    test(s"adds to what the window holds, with $rows rows and lanes: $lanes$what") {
      simulate(new LiveTable(q)) { table =>
        for (seed <- seeds(4)) {
          val random  = new Random(seed)
          val memory  = new Memory(random)
          val regions = 8 * rows * 4
          start(table, regions)
          val want = Array.fill(regions)(BigInt(random.nextInt(1000)))
          for (r <- 0 until regions) memory.setWord(Config.live + r / 8, r % 8, want(r))
          def cycle(): Unit = step(table, memory, seed)
          for (round <- 0 until 6) {
            table.io.flush.poke(false)
            // Every other time in a few regions alone: of some groups nothing is there to flush. Of several lanes some come to
            // one row again and again, some of them to another line of it.
            val few  = Seq.fill(3)(random.nextInt(regions))
            val near = random.nextInt(regions)
            for (t <- 0 until (if (round % 2 == 0) 400 else 40)) {
              val offers = for (lane <- 0 until lanes) yield {
                val region =
                  if (round % 2 != 0) few(random.nextInt(3))
                  else if (lane == 0 && t % 100 < 50) random.nextInt(regions)
                  else (near / 8 * 8 + random.nextInt(8) + (if (random.nextInt(50) == 0) 8 * rows else 0)) % regions
                val words = random.nextInt(1 << 20)
                offer(table, region, words, lane > 0 || random.nextBoolean(), lane)
                (region, words)
              }
              for ((region, words) <- taken(table, offers)) want(region) += words
              cycle()
            }
            rest(table)
            // One that is given up before its end, and something counted after it.
            if (random.nextBoolean()) {
              while (table.io.quiet.peek().litToBoolean == false) cycle()
              table.io.flush.poke(true)
              for (_ <- 0 until random.nextInt(2 * rows)) cycle()
              table.io.flush.poke(false)
              val (region, words) = (random.nextInt(regions), random.nextInt(1 << 20))
              while (!offer(table, region, words, true)) cycle()
              want(region) += words
              cycle()
              rest(table)
            }
            flush(table, memory, seed, 5000)
            for (r <- 0 until regions) {
              assert(memory.word(Config.live + r / 8, r % 8) == want(r), s"seed $seed: region $r in round $round")
            }
          }
        }
      }
    }
  }

  test("a flush looks at groups alone in which something was counted") {
    val rows = 256
    simulate(new LiveTable(p.copy(liveLines = rows))) { table =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random)
        start(table, 8 * rows)
        val regions = Seq.fill(3)(random.nextInt(8 * rows))
        for (region <- regions) {
          while (!offer(table, region, 7, true)) step(table, memory, seed)
          step(table, memory, seed)
          rest(table)
        }
        val cycles = flush(table, memory, seed, 5000)
        assert(cycles < rows / 2, s"seed $seed")
        for (region <- regions.distinct) {
          assert(memory.word(Config.live + region / 8, region % 8) == 7 * regions.count(_ == region), s"seed $seed")
        }
        // Nothing is left to look at.
        table.io.flush.poke(false)
        step(table, memory, seed)
        assert(flush(table, memory, seed, 5000) < 4, s"seed $seed")
      }
    }
  }

  test("lanes that are in the same regions do not wait for each other's updates") {
    simulate(new LiveTable(forwarding(4))) { table =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random)
        start(table, 64)
        var updates = 0
        val want    = Array.fill(8)(BigInt(0))
        for (_ <- 0 until 1000) {
          val offers = Seq.fill(4)((random.nextInt(8), random.nextInt(1000)))
          for (((region, words), lane) <- offers.zipWithIndex) offer(table, region, words, true, lane)
          for ((region, words)         <- taken(table, offers)) {
            want(region) += words
            updates += 1
          }
          step(table, memory, seed)
        }
        rest(table)
        flush(table, memory, seed, 5000)
        for (region <- 0 until 8)
          assert(memory.word(Config.live, region) == want(region), s"seed $seed: region $region")
        assert(updates > 950, s"seed $seed: $updates updates in 1000 cycles")
      }
    }
  }

  private def start(table: LiveTable, regions: Int): Unit = {
    table.reset.poke(true)
    table.clock.step(2)
    table.reset.poke(false)
    table.io.flush.poke(false)
    rest(table)
    configure(table.io.config, regions)
  }
  private def step(table: LiveTable, memory: Memory, seed: Int): Unit = {
    memory.serve(table.io.read)
    memory.serve(table.io.write)
    val writing = memory.outstanding(table.io.write)
    assert(memory.outstanding(table.io.read).intersect(writing).isEmpty, s"seed $seed: read while written")
    table.clock.step()
    memory.tick()
  }
  private def rest(table: LiveTable): Unit = table.io.in.foreach(_.valid.poke(false))
  private def offer(table: LiveTable, region: Int, words: Int, valid: Boolean, lane: Int = 0): Boolean = {
    val in = table.io.in(lane)
    in.valid.poke(valid)
    in.bits.region.poke(region)
    in.bits.words.poke(words)
    valid && in.ready.peek().litToBoolean
  }

  /** Of what all lanes offer, by lane. */
  private def taken[T](table: LiveTable, offers: Seq[T]): Seq[T] =
    offers.zip(table.io.in).collect { case (o, in) if fires(in) => o }
  private def flush(table: LiveTable, memory: Memory, seed: Int, most: Int): Int = {
    table.io.flush.poke(true)
    var cycles = 0
    while (!table.io.flushed.peek().litToBoolean && cycles < most) { step(table, memory, seed); cycles += 1 }
    assert(cycles < most, s"seed $seed: no end of the flush")
    cycles
  }
}
