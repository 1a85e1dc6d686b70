// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._

import merapi.BlockTest

import scala.collection.mutable
import scala.util.Random

/** What goes in comes out once, in order; there is room for as much as was said and no more, in each cycle by what the
  * queue held at its begin.
  */
class FifoTest extends BlockTest {
  for (depth <- Seq(2, 3, 4, 48)) test(s"keeps $depth entries") {
    simulate(new Fifo(UInt(16.W), depth, clears = true)) { fifo =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        restart(fifo)
        val inside    = mutable.Queue.empty[Int]
        var next      = 0
        var full, out = 0
        for (t <- 0 until 4000) {
          val offers = random.nextInt(8) < (if (t / 200 % 2 == 0) 6 else 2)
          val takes  = random.nextInt(8) < (if (t / 300 % 2 == 0) 2 else 6)
          val clear  = random.nextInt(500) == 0
          fifo.io.enq.valid.poke(offers)
          fifo.io.enq.bits.poke(next)
          fifo.io.deq.ready.poke(takes)
          fifo.io.clear.get.poke(clear)
          assert(is(fifo.io.enq.ready) == inside.size < depth, s"seed $seed: room with ${inside.size} inside")
          assert(is(fifo.io.deq.valid) == inside.nonEmpty, s"seed $seed: ${inside.size} inside")
          assert(fifo.io.count.peek().litValue == inside.size, s"seed $seed: count")
          if (inside.size == depth) full += 1
          val enters = fires(fifo.io.enq)
          if (fires(fifo.io.deq)) {
            assert(fifo.io.deq.bits.peek().litValue == inside.dequeue(), s"seed $seed: another came out")
            out += 1
          }
          if (enters) { inside += next; next = (next + 1) % 65536 }
          if (clear) inside.clear()
          fifo.clock.step()
        }
        assert(full > 20 && out > 1000, s"seed $seed: full in $full cycles, $out came out")
      }
    }
  }

  for (depth <- Seq(2, 4, 48)) test(s"has a place for each of $depth") {
    simulate(new SureFifo(UInt(16.W), depth)) { fifo =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        restart(fifo)
        val inside = mutable.Queue.empty[Int]
        var next   = 0
        var full   = 0
        for (t <- 0 until 4000) {
          val puts  = inside.size < depth && random.nextInt(8) < (if (t / 200 % 2 == 0) 6 else 2)
          val takes = random.nextInt(8) < (if (t / 300 % 2 == 0) 2 else 6)
          fifo.io.put.valid.poke(puts)
          fifo.io.put.bits.poke(next)
          fifo.io.deq.ready.poke(takes)
          assert(is(fifo.io.room) == inside.size < depth, s"seed $seed: room with ${inside.size} inside")
          assert(is(fifo.io.deq.valid) == inside.nonEmpty, s"seed $seed: ${inside.size} inside")
          assert(fifo.io.count.peek().litValue == inside.size, s"seed $seed: count")
          if (inside.size == depth) full += 1
          if (fires(fifo.io.deq))
            assert(fifo.io.deq.bits.peek().litValue == inside.dequeue(), s"seed $seed: another came out")
          if (puts) { inside += next; next = (next + 1) % 65536 }
          fifo.clock.step()
        }
        assert(full > 20, s"seed $seed: full in $full cycles")
      }
    }
  }

  test("an entry without a place ends the simulation") {
    val told = intercept[Exception] {
      simulate(new SureFifo(UInt(16.W), 2)) { fifo =>
        restart(fifo)
        fifo.io.put.valid.poke(true)
        fifo.clock.step(4)
      }
    }
    assert(told.toString.contains("without a place") || told.toString.contains("Assertion"), told.toString)
  }
}
