// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._

import merapi.BlockTest

import scala.util.Random

/** In every cycle in which somebody asks and there is room one request is taken, of who asks and as it stands there;
  * of those that ask nobody waits for another to be taken twice.
  */
class RoundArbiterTest extends BlockTest {
  private val clients = 7
  test("takes one of many in turn, without a cycle between") {
    simulate(new RoundArbiter(UInt(16.W), clients)) { arbiter =>
      for (seed <- seeds(6)) {
        val random = new Random(seed)
        restart(arbiter)
        val offered = Array.fill(clients)(-1)
        val passed  = Array.fill(clients)(Set.empty[Int]) // who was taken while this one asked
        var taken   = 0
        for (t <- 0 until 2000) {
          val busy = if (t / 500 % 2 == 0) 2 else 9
          for (i <- 0 until clients) {
            if (offered(i) < 0 && random.nextInt(10) < busy) offered(i) = random.nextInt(65536)
            arbiter.io.in(i).valid.poke(offered(i) >= 0)
            if (offered(i) >= 0) arbiter.io.in(i).bits.poke(offered(i))
          }
          val room = random.nextInt(4) != 0
          arbiter.io.out.ready.poke(room)
          val asks  = (0 until clients).filter(offered(_) >= 0)
          val ready = (0 until clients).filter(i => is(arbiter.io.in(i).ready))
          assert(is(arbiter.io.out.valid) == asks.nonEmpty)
          assert(ready.size == (if (room && asks.nonEmpty) 1 else 0), s"seed $seed: $ready are taken at once")
          for (i <- ready) {
            assert(asks.contains(i), s"seed $seed: $i does not ask")
            assert(arbiter.io.out.bits.peek().litValue.toInt == offered(i), s"seed $seed: another came out")
            for (other <- asks if other != i) {
              assert(!passed(other)(i), s"seed $seed: $i was taken twice while $other waits")
              passed(other) += i
            }
            offered(i) = -1
            passed(i) = Set.empty
            taken += 1
          }
          arbiter.clock.step()
        }
        assert(taken > 1200, s"seed $seed: $taken requests in 2000 cycles")
      }
    }
  }
}
