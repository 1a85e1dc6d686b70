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

  /** What comes, and before what memory: `stay` references to one of `lines` bitmap lines after the other, a dozen bits of
    * each, a quarter of them to another line, or 0: half of them to a few bits of any line, half of them anywhere. The memory's latency is from `least` to
    * `most` cycles, and the store takes a grey in one of `greys` cycles, dirty lines leave early in one of `early`, and the
    * host clears one mark of `cleared` in a pause.
    */
  private case class Traffic(lines: Int, stay: Int, least: Int, most: Int, greys: Double, early: Int, cleared: Int)
  private val anywhere = Traffic(1024, 0, 2, 12, 1.5, 8, 20)
  private val together = Traffic(8, 24, 20, 60, 3, 2, 2)

  test("marks, drops, refuses, writes back and forgets")(marks(p))
  test("the same with replays that follow each other")(marks(following))

  // Trains of replays that are stopped and go on: by a store that is seldom ready, and by a dirty list of two lines.
  private val crowded = p.copy(bitmapLines = 4, bitmapMisses = 2, dirtyBound = 2, bitmapWaiters = 32)
  test("many that wait for one line, before a full store and a full dirty list")(marks(crowded, together))
  test("the same, many of them, with replays that follow each other") {
    marks(crowded.copy(pipelinedReplays = true), together)
  }

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

  private def marks(small: TracerParameters, traffic: Traffic = anywhere): Unit =
    simulate(new MarkBank(small)) { bank =>
      for (seed <- seeds(4)) {
        val random  = new Random(seed)
        val memory  = new Memory(random, traffic.least, traffic.most)
        val regions = 64
        powerUp(bank, regions)
        val lines = regions * 65536 / 8 / 512 min traffic.lines
        // The host's marks.
        val marked = mutable.Set.empty[Int]
        for (_   <- 0 until 300) marked += random.nextInt(lines * 512)
        for (bit <- marked) memory.lines(Config.bitmap + bit / 512) |= BigInt(1) << (bit % 512)
        val hot                                                      = Seq.fill(40)(random.nextInt(lines * 512))
        var sent, turned, already, dropped, refused, answered, hosts = 0
        // Of the line that many come for: some bits of a word and others all over it.
        val some = Seq(0, 1, 2, 5, 31, 63, 64, 70, 130, 200, 448, 511)
        var line = 0
        def comesFor: Int = if (traffic.stay == 0) {
          if (random.nextBoolean()) hot(random.nextInt(hot.size)) else random.nextInt(lines * 512)
        } else {
          if (random.nextInt(traffic.stay) == 0) line = random.nextInt(lines)
          (if (random.nextInt(4) == 0) random.nextInt(lines) else line) * 512 + some(random.nextInt(some.size))
        }
        // References that came since the line that they are for was asked for, by line, and the most of all.
        val waiting     = mutable.Map.empty[BigInt, Int]
        var mostWaiting = 0

        def cycle(): Unit = {
          bank.io.cleanEarly.poke(random.nextInt(traffic.early) == 0)
          memory.serve(bank.io.fill)
          memory.serve(bank.io.writeBack)
          waiting.filterInPlace((l, _) => memory.outstanding(bank.io.fill).contains(l))
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
            bank.io.grey.ready.poke(!full && random.nextDouble() * traffic.greys < 1)
            bank.io.greyFull.poke(full)
            bank.io.in.valid.poke(offer)
            if (offer) {
              val bit  = comesFor
              val host = random.nextInt(8) == 0
              bank.io.in.bits.bit.poke(bit)
              bank.io.in.bits.flag.poke(bit % p.rescanFlags)
              bank.io.in.bits.host.poke(host)
              if (bank.io.in.ready.peek().litToBoolean) {
                sent += 1
                if (host) hosts += 1
                val of = BigInt(Config.bitmap + bit / 512)
                if (memory.outstanding(bank.io.fill).contains(of)) {
                  waiting(of) = waiting.getOrElse(of, 0) + 1
                  mostWaiting = mostWaiting max waiting(of)
                }
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
          for (bit <- marked.toSeq if random.nextInt(traffic.cleared) == 0) {
            marked -= bit
            memory.lines(Config.bitmap + bit / 512) &= ~(BigInt(1) << (bit % 512))
          }
          bank.io.invalidate.poke(true)
          cycle()
          bank.io.invalidate.poke(false)
          settle(!bank.io.sweeping.peek().litToBoolean, "the sweep")
        }
        assert(
          turned > (if (traffic.stay == 0) 200 else 100) && already > 50 && dropped > 50 && refused > 5,
          s"seed $seed: a path was hardly taken: $turned turned, $already set, $dropped dropped, $refused refused"
        )
        assert(traffic.stay == 0 || mostWaiting > 12, s"seed $seed: $mostWaiting at most waited for a line")
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

  /** What comes beside a train of replays, in cycles since its line came: a reference to another line, which is clean, one
    * to a further bit of the train's own line, and a cycle in which the store takes nothing. `dirty`: one line is dirty
    * before, of the two that may be, and the first bit of the train is set.
    */
  private case class Beside(dirty: Boolean, other: Int, own: Option[Int], refused: Option[Int])
  // Bits of line 2, whose train it is, and others.
  private val (waited, other, own) = (Seq(1024, 1025, 1026, 1027, 1028), 513, 1033)

  /** Marks in their order, with their cycles since the line's own operation. */
  private def train(bank: MarkBank, beside: Beside): Seq[(Int, Int)] = {
    val steady = new Random(1) { override def nextInt(n: Int): Int = n - 1 }
    val memory = new Memory(steady, 40, 40)
    powerUp(bank, 64)
    memory.lines(Config.bitmap + 1) = 1
    if (beside.dirty) memory.lines(Config.bitmap + 2) = 1
    var now           = 0
    var arrived, fill = -1
    val turned        = mutable.ArrayBuffer.empty[(Int, Int)]
    def cycle(refused: Boolean = false): Unit = {
      bank.io.grey.ready.poke(!refused)
      memory.serve(bank.io.fill)
      memory.serve(bank.io.writeBack)
      if (is(bank.io.fill.response.valid)) arrived = now
      if (fires(bank.io.grey)) turned += ((bank.io.grey.bits.obj.peek().litValue.toInt, now))
      if (arrived >= 0 && fill < arrived && (fires(bank.io.grey) || is(bank.io.already))) fill = now
      bank.clock.step()
      memory.tick()
      now += 1
    }
    def until(what: => Boolean, why: String): Unit = {
      var left = 300
      while (!what && left > 0) { cycle(); left -= 1 }
      assert(left > 0, s"$beside: no end of $why")
    }
    def send(bit: Int): Unit = {
      bank.io.in.bits.bit.poke(bit)
      bank.io.in.valid.poke(true)
      until(is(bank.io.in.ready), "what is before")
      cycle()
      bank.io.in.valid.poke(false)
    }
    until(!is(bank.io.sweeping), "the sweep")
    for (bit <- (if (beside.dirty) Seq(0, 512) else Seq(512))) {
      send(bit)
      until(is(bank.io.quiet), "a line before")
    }
    turned.clear()
    arrived = -1
    // One that comes with the stages full of what changes the tag is tried again, behind others.
    for (bit <- waited) { send(bit); (0 until 3).foreach(_ => cycle()) }
    assert(arrived < 0 && turned.isEmpty, s"$beside: a line before its time")
    until(arrived >= 0, "the fetch")
    val offers = mutable.Queue.from(((beside.other, other) +: beside.own.map((_, own)).toSeq).sortBy(_._1))
    for (_ <- 0 until 60) {
      val offered = offers.headOption.filter(_._1 <= now - arrived)
      bank.io.in.valid.poke(offered.nonEmpty)
      for ((_, bit) <- offered) {
        bank.io.in.bits.bit.poke(bit)
        if (is(bank.io.in.ready)) offers.dequeue()
      }
      cycle(beside.refused.contains(now - arrived))
    }
    bank.io.in.valid.poke(false)
    val marks   = turned.toSeq
    val inOrder = waited.drop(if (beside.dirty) 1 else 0)
    assert(marks.map(_._1).filter(waited.contains) == inOrder, s"$beside: not in the order in which they came")
    until(is(bank.io.quiet), "what waited")
    bank.io.clean.poke(true)
    until(is(bank.io.cleaned), "cleaning")
    bank.io.clean.poke(false)
    assert(marks.map(_._1).sorted == (inOrder ++ beside.own.map(_ => own) :+ other).sorted, beside)
    for (l <- 0 until 3) {
      val want = (marks.map(_._1) ++ Seq(512) ++ (if (beside.dirty) Seq(0, 1024) else Nil)).filter(_ / 512 == l)
      assert(
        memory.lines(Config.bitmap + l) == want.foldLeft(BigInt(0))((w, b) => w.setBit(b % 512)),
        s"$beside: line $l"
      )
    }
    marks.map { case (bit, at) => (bit, at - fill) }
  }

  test("replays that follow each other are stopped and go on") {
    simulate(new MarkBank(crowded.copy(pipelinedReplays = true))) { bank =>
      val seen = for {
        dirty   <- Seq(false, true)
        first   <- 0 until 6
        own     <- None +: Seq(8, 9).map(d => Some(first + d))
        refused <- None +: (0 until 16 by (if (own.isEmpty) 1 else 5)).map(Some(_))
      } yield train(bank, Beside(dirty, first, own, refused))
      def is(what: (Int, Int)*): Boolean = seen.contains(what.toSeq)
      // The list of dirty lines is full: the line that was dirty before leaves, and then another one.
      assert(is(other -> 2, 1025 -> 11, 1026 -> 12, 1027 -> 13, 1028 -> 21))
      // The line itself leaves in the midst of its train, and is dirty once more.
      assert(is(1024 -> 0, other -> 2, 1025 -> 3, 1026 -> 4, 1027 -> 12, 1028 -> 13))
      // One that does not belong to the train makes it dirty.
      assert(is(1024 -> 0, other -> 2, 1025 -> 3, 1026 -> 4, own -> 11, 1027 -> 12, 1028 -> 13))
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
