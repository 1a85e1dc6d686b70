// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._

import merapi.{BlockTest, Config}
import merapi.common.TracerParameters

import scala.collection.mutable
import scala.util.Random

/** The mark unit against a set of bits: every reference ends once, a bit turns once, and what is written back is what
  * was marked, with a bitmap larger than its cache, few misses at a time, and a grey store that is often full.
  */
class MarkBankTest extends BlockTest {
  private val following = p.copy(bitmapWaiters = 6, pipelinedReplays = true)

  test("marks, drops, refuses, writes back and forgets")(marks(p))
  test("the same with replays that follow each other")(marks(following))

  /** The first reset; nothing is offered, asked for or taken. */
  private def powerUp(bank: MarkBank, regions: Int): Unit = {
    bank.io.powerUp.poke(true)
    restart(bank)
    bank.io.powerUp.poke(false)
    configure(bank.io.config, regions)
    bank.io.in.valid.poke(false)
    bank.io.in.bits.host.poke(false)
    bank.io.grey.ready.poke(false)
    bank.io.greyFull.poke(false)
    bank.io.clean.poke(false)
    bank.io.cleanEarly.poke(false)
    bank.io.invalidate.poke(false)
  }

  private def marks(small: TracerParameters): Unit =
    simulate(new MarkBank(small)) { bank =>
      for (seed <- seeds(4)) {
        val random  = new Random(seed)
        val memory  = new Memory(random)
        val regions = 64
        powerUp(bank, regions)
        val lines = regions * 65536 / 8 / 512
        // The host's marks.
        val marked = mutable.Set.empty[Int]
        for (_   <- 0 until 300) marked += random.nextInt(lines * 512)
        for (bit <- marked) memory.lines(Config.bitmap + bit / 512) |= BigInt(1) << (bit % 512)
        val hot                                                      = Seq.fill(40)(random.nextInt(lines * 512))
        var sent, turned, already, dropped, refused, answered, hosts = 0

        def cycle(): Unit = {
          bank.io.cleanEarly.poke(random.nextInt(8) == 0)
          memory.serve(bank.io.fill)
          memory.serve(bank.io.writeBack)
          // A line is neither fetched nor written while it is being written.
          val writing = memory.outstanding(bank.io.writeBack)
          assert(writing.distinct.size == writing.size, s"seed $seed: a line is written twice at a time")
          assert(
            memory.outstanding(bank.io.fill).intersect(writing).isEmpty,
            s"seed $seed: a line is fetched while it is written"
          )
          if (bank.io.grey.ready.peek().litToBoolean && bank.io.grey.valid.peek().litToBoolean) {
            val bit = bank.io.grey.bits.obj.peek().litValue.toInt
            assert(marked.add(bit), s"seed $seed: object $bit marked twice")
            assert(bank.io.grey.bits.count.peek().litToBoolean)
            turned += 1
          }
          if (bank.io.already.peek().litToBoolean) already += 1
          if (bank.io.drop.valid.peek().litToBoolean) dropped += 1
          if (bank.io.answer.valid.peek().litToBoolean) {
            answered += 1
            if (bank.io.answer.bits.peek().litToBoolean) refused += 1
          }
          bank.clock.step()
          memory.tick()
        }
        def settle(what: => Boolean, why: String): Unit = {
          var left = 30000
          while (!what && left > 0) { cycle(); left -= 1 }
          assert(left > 0, s"seed $seed: no end of $why")
        }
        settle(!bank.io.sweeping.peek().litToBoolean, "the sweep")
        for (round <- 0 until 9) {
          // Full stores in some rounds: references are dropped or refused, and never marked.
          val full = round % 3 == 2
          for (_ <- 0 until 500) {
            val offer = random.nextInt(10) < 8
            bank.io.grey.ready.poke(!full && random.nextInt(3) != 0)
            bank.io.greyFull.poke(full)
            bank.io.in.valid.poke(offer)
            if (offer) {
              val bit  = if (random.nextBoolean()) hot(random.nextInt(hot.size)) else random.nextInt(lines * 512)
              val host = random.nextInt(8) == 0
              bank.io.in.bits.bit.poke(bit)
              bank.io.in.bits.flag.poke(bit % p.rescanFlags)
              bank.io.in.bits.host.poke(host)
              if (bank.io.in.ready.peek().litToBoolean) {
                sent += 1
                if (host) hosts += 1
              }
            }
            cycle()
          }
          bank.io.in.valid.poke(false)
          bank.io.grey.ready.poke(!full)
          settle(bank.io.quiet.peek().litToBoolean, "what was sent")
          assert(turned + already + dropped + refused == sent, s"seed $seed: references lost or ended twice")
          assert(answered == hosts, s"seed $seed: the host's references were not all answered")
          bank.io.clean.poke(true)
          settle(bank.io.cleaned.peek().litToBoolean, "cleaning")
          bank.io.clean.poke(false)
          for (l <- 0 until lines) {
            val want = (0 until 512).filter(i => marked(l * 512 + i)).foldLeft(BigInt(0))((w, i) => w.setBit(i))
            assert(memory.lines(Config.bitmap + l) == want, s"seed $seed: bitmap line $l in round $round")
          }
          // A pause: the host may clear bits of what it reclaims; the bank must not remember them.
          for (bit <- marked.toSeq if random.nextInt(20) == 0) {
            marked -= bit
            memory.lines(Config.bitmap + bit / 512) &= ~(BigInt(1) << (bit % 512))
          }
          bank.io.invalidate.poke(true)
          cycle()
          bank.io.invalidate.poke(false)
          settle(!bank.io.sweeping.peek().litToBoolean, "the sweep")
        }
        assert(
          turned > 200 && already > 50 && dropped > 50 && refused > 5,
          s"seed $seed: a path was hardly taken: $turned turned, $already set, $dropped dropped, $refused refused"
        )
      }
    }

  test("what waited for a bitmap line is marked in every cycle, or in every third") {
    for ((small, apart) <- Seq((p.copy(bitmapWaiters = 6), 3), (following, 1))) simulate(new MarkBank(small)) { bank =>
      val memory = new Memory(new Random(1), 40, 40)
      powerUp(bank, 64)
      bank.io.grey.ready.poke(true)
      var now    = 0
      val turned = mutable.ArrayBuffer.empty[(Int, Int)]
      def cycle(): Unit = {
        memory.serve(bank.io.fill)
        memory.serve(bank.io.writeBack)
        if (fires(bank.io.grey)) turned += ((bank.io.grey.bits.obj.peek().litValue.toInt, now))
        bank.clock.step()
        memory.tick()
        now += 1
      }
      while (is(bank.io.sweeping)) cycle()
      // Bits of one word, of two, and one that is sent twice.
      val bits = Seq(3, 5, 70, 4, 5, 71)
      for (bit <- bits) {
        bank.io.in.bits.bit.poke(bit)
        bank.io.in.valid.poke(true)
        while (!is(bank.io.in.ready)) cycle()
        cycle()
        // One that comes with the stages full of what changes the tag is tried again, behind others.
        bank.io.in.valid.poke(false)
        for (_ <- 0 until 3) cycle()
      }
      assert(turned.isEmpty, "a mark before its line")
      for (_ <- 0 until 80) cycle()
      assert(is(bank.io.quiet))
      assert(turned.map(_._1) == bits.distinct)
      // The first is marked by the line's own operation. The one that was sent twice takes its turn.
      val first = turned(1)._2
      assert(turned.tail.map(_._2 - first) == Seq(0, 1, 2, 4).map(apart * _))
    }
  }

  test("no bitmap line is taken for one of an epoch before") {
    simulate(new MarkBank(p)) { bank =>
      val memory = new Memory(new Random(1), 2, 4)
      powerUp(bank, 64)
      bank.io.grey.ready.poke(true)
      var turned, already = 0
      def cycle(): Unit = {
        memory.serve(bank.io.fill)
        memory.serve(bank.io.writeBack)
        if (fires(bank.io.grey)) turned += 1
        if (is(bank.io.already)) already += 1
        bank.clock.step()
        memory.tick()
      }
      def settle(what: => Boolean, why: String): Unit = {
        var left = 2000
        while (!what && left > 0) { cycle(); left -= 1 }
        assert(left > 0, s"no end of $why")
      }
      for (round <- 0 until epochRounds) {
        settle(!is(bank.io.sweeping), "the sweep")
        for (row <- epochRows(round)) {
          // The host has cleared what was marked.
          memory.lines(Config.bitmap + row) = 0
          val before = turned
          bank.io.in.bits.bit.poke(row * 512 + row)
          bank.io.in.valid.poke(true)
          settle(is(bank.io.in.ready), "what is before")
          cycle()
          bank.io.in.valid.poke(false)
          settle(is(bank.io.quiet), "a mark")
          assert(turned == before + 1 && already == 0, s"round $round: line $row is one of before")
        }
        bank.io.clean.poke(true)
        settle(is(bank.io.cleaned), "cleaning")
        bank.io.clean.poke(false)
        for (row <- epochRows(round)) {
          assert(memory.lines(Config.bitmap + row) == (BigInt(1) << row), s"round $round: line $row was not written")
        }
        bank.io.invalidate.poke(true)
        cycle()
        bank.io.invalidate.poke(false)
      }
    }
  }
}
