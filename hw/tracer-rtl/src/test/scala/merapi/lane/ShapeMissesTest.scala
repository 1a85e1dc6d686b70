// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._

import merapi.BlockTest

import scala.collection.mutable
import scala.util.Random

/** Slots that wait for shapes, before a walker that looks one klass of a hash up at a time, for other lanes too: each
  * comes again once, after an answer with its hash and not before; a hash that is asked for is not asked for again, but
  * for the slot that guards its set. In a pause all come again and nothing is asked.
  */
class ShapeMissesTest extends BlockTest {
  test("wakes every slot after an answer") {
    simulate(new ShapeMisses(p)) { misses =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        misses.io.miss.valid.poke(false)
        misses.io.answer.valid.poke(false)
        misses.io.pausing.poke(false)
        restart(misses)
        val klasses         = Seq.fill(12)(BigInt(40, random)) ++ Seq.fill(4)(BigInt(random.nextInt(32)))
        def hash(k: BigInt) = (0 until 64 by 5).map(i => (k >> i) & 31).reduce(_ ^ _).toInt
        case class Wait(hash: Int, since: Int, atOnce: Boolean, var answered: Boolean)
        val waits                = mutable.Map.empty[Int, Wait]
        val walks                = mutable.Map.empty[Int, Int]       // hash: when it is answered
        val sure                 = mutable.ArrayBuffer.empty[BigInt] // of a guard: not to be dropped
        var missed, asked        = 0
        var came, early, slowest = 0
        var paused, pauses       = 0                                 // cycles of this pause
        for (t <- 0 until 5000) {
          val stop    = t > 4500
          val pausing = !stop && (if (paused > 0) random.nextInt(25) != 0 else random.nextInt(250) == 0)
          if (pausing && paused == 0) pauses += 1
          paused = if (pausing) paused + 1 else 0
          misses.io.pausing.poke(pausing)
          // Others ask too.
          val foreign = random.nextInt(32)
          if (!stop && random.nextInt(12) == 0 && !walks.contains(foreign)) walks(foreign) = t + 1 + random.nextInt(40)
          val due = walks.find(_._2 <= t).map(_._1)
          misses.io.answer.valid.poke(due.isDefined)
          due.foreach { h =>
            misses.io.answer.bits.poke(h)
            walks.remove(h)
            waits.values.filter(_.hash == h).foreach(_.answered = true)
          }
          val free = (0 until p.slots).filterNot(waits.contains)
          val miss = !stop && free.nonEmpty && random.nextInt(3) == 0
          misses.io.miss.valid.poke(miss)
          if (miss) {
            val slot  = free(random.nextInt(free.size))
            val klass = klasses(random.nextInt(klasses.size))
            val torn  = random.nextInt(8) == 0
            val guard = !torn && random.nextInt(6) == 0
            misses.io.miss.bits.slot.poke(slot)
            misses.io.miss.bits.klass.poke(klass)
            misses.io.miss.bits.again.poke(torn)
            misses.io.guard.valid.poke(guard)
            misses.io.guard.bits.poke(slot)
            if (guard) sure += klass
            waits(slot) = Wait(hash(klass), t, torn || pausing || due.contains(hash(klass)), answered = false)
            missed += 1
          }
          misses.io.again.ready.poke(!pausing && random.nextInt(3) != 0)
          // The walker takes no question whose hash it looks up.
          val ask   = misses.io.ask
          val klass = ask.bits.klass.peek().litValue
          val mayGo = random.nextInt(3) != 0 && !walks.contains(hash(klass)) && !due.contains(hash(klass))
          ask.ready.poke(mayGo)
          assert(paused < 2 || !is(ask.valid), s"seed $seed: a question in a pause")
          assert(paused < 2 || miss || !is(misses.io.busy), s"seed $seed: busy in a pause")
          if (fires(ask)) {
            assert(ask.bits.hash.peek().litValue == hash(klass), s"seed $seed: hash of klass $klass")
            val wanted = waits.values.exists(_.hash == hash(klass))
            assert(wanted || sure.contains(klass), s"seed $seed: klass $klass is asked for, and nobody waits")
            walks(hash(klass)) = t + 2 + random.nextInt(40)
            if (!wanted) sure -= klass // one that was wanted may have been another question
            asked += 1
          }
          if (fires(misses.io.again)) {
            val slot = misses.io.again.bits.peek().litValue.toInt
            val wait = waits.remove(slot).getOrElse(fail(s"seed $seed: slot $slot comes again and did not miss"))
            // A full queue of questions is the only other reason.
            if (!wait.answered && !wait.atOnce) early += 1
            slowest = slowest.max(t - wait.since)
            came += 1
          }
          if (pausing) {
            waits.mapValuesInPlace((_, w) => w.copy(answered = true))
            sure.clear()
          }
          misses.clock.step()
          assert(
            is(misses.io.busy) || waits.values
              .forall(w => w.answered || w.atOnce) || misses.io.again.valid.peek().litToBoolean,
            s"seed $seed: not busy, and $waits wait"
          )
        }
        assert(waits.isEmpty && came == missed, s"seed $seed: slots $waits were forgotten")
        assert(!is(misses.io.busy), s"seed $seed: busy with nothing")
        assert(early * 50 < came, s"seed $seed: $early of $came slots came before their answer")
        assert(asked * 3 < missed * 2, s"seed $seed: $asked questions of $missed misses")
        assert(pauses > 5, s"seed $seed: $pauses pauses")
        assert(missed > 700 && slowest < 700, s"seed $seed: $missed misses, the slowest took $slowest cycles")
      }
    }
  }

  test("whoever guards its set looks next") {
    simulate(new ShapeMisses(p)) { misses =>
      misses.io.miss.valid.poke(false)
      misses.io.answer.valid.poke(false)
      misses.io.pausing.poke(false)
      misses.io.ask.ready.poke(true)
      restart(misses)
      for (guard <- Seq(p.slots - 1, p.slots / 2, 0)) {
        misses.io.guard.valid.poke(true)
        misses.io.guard.bits.poke(guard)
        def miss(slot: Int, klass: Int): Unit = {
          misses.io.miss.valid.poke(true)
          misses.io.miss.bits.slot.poke(slot)
          misses.io.miss.bits.klass.poke(klass)
          misses.io.miss.bits.again.poke(slot != guard)
          misses.clock.step()
          misses.io.miss.valid.poke(false)
        }
        // All others look in vain: as soon as one comes again, it has missed again.
        misses.io.again.ready.poke(false)
        (0 until p.slots).filter(_ != guard).foreach(miss(_, 1))
        miss(guard, 2)
        misses.io.answer.valid.poke(true)
        misses.io.answer.bits.poke(2)
        misses.io.again.ready.poke(true)
        var turns = 0
        var came  = false
        val ready = mutable.Queue.empty[Int]
        while (!came && turns < 4 * p.slots) {
          misses.io.miss.valid.poke(ready.nonEmpty)
          if (ready.nonEmpty) {
            misses.io.miss.bits.slot.poke(ready.dequeue())
            misses.io.miss.bits.klass.poke(1)
            misses.io.miss.bits.again.poke(true)
          }
          if (fires(misses.io.again)) {
            val slot = misses.io.again.bits.peek().litValue.toInt
            if (slot == guard) came = true else ready.enqueue(slot)
          }
          misses.clock.step()
          misses.io.answer.valid.poke(false)
          turns += 1
        }
        assert(came && turns < 5, s"slot $guard, whose shape has come, waits $turns cycles for its look")
        // The others end.
        misses.io.miss.valid.poke(false)
        misses.io.guard.valid.poke(false)
        misses.clock.step(2 * p.slots)
        assert(!is(misses.io.again.valid), s"slot $guard: somebody looks again and did not miss")
      }
    }
  }
}
