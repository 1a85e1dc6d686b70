// SPDX-License-Identifier: Apache-2.0
package merapi.memory

import chisel3._

import merapi.BlockTest

import scala.collection.mutable
import scala.util.Random

/** Every request leaves once, in order, and one in every cycle in which it may; apart, one in every other. */
class RequestStageTest extends BlockTest {
  for ((apart, often) <- Seq(false -> "", true -> " other")) test(s"passes one in every$often cycle") {
    simulate(new RequestStage(UInt(16.W), apart)) { stage =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        restart(stage)
        val inside     = mutable.Queue.empty[Int]
        var next, came = 0
        for (t <- 0 until 2000) {
          val always = t / 500 % 2 == 0 // nobody makes it wait
          val offer  = always || random.nextInt(3) != 0
          val ready  = always || random.nextInt(3) != 0
          stage.io.in.valid.poke(offer)
          stage.io.in.bits.poke(next)
          stage.io.out.ready.poke(ready)
          assert(is(stage.io.out.valid) == inside.nonEmpty)
          assert(is(stage.io.in.ready) == (inside.isEmpty || ready && !apart), s"seed $seed: no place, or one too many")
          if (fires(stage.io.out)) {
            assert(stage.io.out.bits.peek().litValue.toInt == inside.dequeue(), s"seed $seed: another came out")
            came += 1
          }
          if (fires(stage.io.in)) { inside += next; next = (next + 1) % 65536 }
          stage.clock.step()
        }
        val least = if (apart) 800 else 1400
        assert(came > least, s"seed $seed: $came requests in 2000 cycles")
      }
    }
  }
}
