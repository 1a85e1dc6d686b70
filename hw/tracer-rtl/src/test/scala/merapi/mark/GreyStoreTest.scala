// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._

import merapi.{BlockTest, Config}

import scala.collection.mutable
import scala.util.Random

/** The grey store as a bag: what goes in comes out, once, however full it gets and whatever spills. */
class GreyStoreTest extends BlockTest {
  test("keeps every grey through overflow and refill") {
    simulate(new GreyStore(p)) { store =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random)
        val spill  = random.nextInt(5) // lines: none at all as well
        store.reset.poke(true)
        store.clock.step(2)
        store.reset.poke(false)
        store.io.spillFirst.poke(Config.spill)
        store.io.spillLines.poke(spill)
        store.io.hold.poke(false)
        store.io.giveBack.valid.poke(false)
        val inside                        = mutable.Map.empty[BigInt, Boolean]
        var next                          = BigInt(1)
        var in, out, spilled, fulls, most = 0
        for (phase <- 0 until 12) {
          // Alternately more goes in and more comes out; at the end nothing goes in.
          val filling  = phase % 2 == 0 && phase < 10
          val draining = phase >= 10
          for (_ <- 0 until 600) {
            val sources = Seq(store.io.mark, store.io.sweep)
            for (s <- sources) {
              s.valid.poke(!draining && random.nextInt(10) < (if (filling) 7 else 2))
              s.bits.obj.poke(next + (if (s eq store.io.sweep) 1 else 0))
              s.bits.count.poke(s eq store.io.mark)
            }
            store.io.take.ready.poke(random.nextInt(10) < (if (filling) 2 else 8))
            memory.serve(store.io.read)
            memory.serve(store.io.write)
            for (s <- sources if s.valid.peek().litToBoolean && s.ready.peek().litToBoolean) {
              val obj = s.bits.obj.peek().litValue
              assert(inside.put(obj, s eq store.io.mark).isEmpty)
              in += 1
            }
            next += 2
            if (store.io.take.valid.peek().litToBoolean && store.io.take.ready.peek().litToBoolean) {
              val obj = store.io.take.bits.obj.peek().litValue
              assert(
                inside.remove(obj).contains(store.io.take.bits.count.peek().litToBoolean),
                s"seed $seed: $obj came out twice, changed, or was never put in"
              )
              out += 1
            }
            if (store.io.full.peek().litToBoolean) {
              fulls += 1
              assert(!store.io.mark.ready.peek().litToBoolean, s"seed $seed: full, and takes marks")
            }
            if (store.io.spilled.peek().litToBoolean) spilled += 1
            most = most.max(inside.size)
            store.clock.step()
            memory.tick()
          }
          store.io.mark.valid.poke(false)
          store.io.sweep.valid.poke(false)
          assert(
            store.io.empty.peek().litToBoolean == inside.isEmpty,
            s"seed $seed: empty with ${inside.size} inside after phase $phase"
          )
        }
        assert(inside.isEmpty, s"seed $seed: ${inside.size} greys lost")
        assert(in == out && in > 1000)
        assert((spilled > 0) == (spill > 0), s"seed $seed: $spilled lines spilled with room for $spill")
        assert(fulls > 0, s"seed $seed: never full")
      }
    }
  }

  test("has a place for every object that a lane gives back") {
    simulate(new GreyStore(p)) { store =>
      val random = new Random(1)
      val memory = new Memory(random)
      store.reset.poke(true)
      store.clock.step(2)
      store.reset.poke(false)
      store.io.spillFirst.poke(Config.spill)
      store.io.spillLines.poke(0)
      store.io.take.ready.poke(false)
      store.io.sweep.valid.poke(false)
      store.io.hold.poke(true)
      store.io.mark.valid.poke(true)
      store.io.mark.bits.obj.poke(7)
      store.io.mark.bits.count.poke(true)
      store.io.giveBack.valid.poke(false)
      for (_ <- 0 until 3 * p.greyDepth) {
        memory.serve(store.io.read)
        memory.serve(store.io.write)
        store.clock.step()
      }
      assert(store.io.full.peek().litToBoolean)
      store.io.mark.valid.poke(false)
      store.io.giveBack.valid.poke(true)
      store.io.giveBack.bits.obj.poke(9)
      store.io.giveBack.bits.count.poke(false)
      // An assertion of the block's queue holds it to a place for each.
      store.clock.step(p.slots + p.lineQueue)
    }
  }
}
