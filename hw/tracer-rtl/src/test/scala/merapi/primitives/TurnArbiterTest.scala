// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._

import merapi.BlockTest

import scala.collection.mutable
import scala.util.Random

/** Every request that was taken comes out once, in order, with its client's number; nobody who asks waits for ever;
  * requests may be withdrawn before they are taken.
  */
class TurnArbiterTest extends BlockTest {
  private val clients = 7
  for (gather <- Seq(false, true)) test(s"takes turns and serves one alone in every cycle, gather: $gather") {
    simulate(new TurnArbiter(UInt(16.W), clients, gather)) { turns =>
      for (seed <- seeds(6)) {
        val random = new Random(seed)
        turns.reset.poke(true)
        turns.clock.step(2)
        turns.reset.poke(false)
        val taken               = mutable.Queue.empty[(Int, Int)]
        val offered             = Array.fill(clients)(-1)
        val since               = Array.fill(clients)(0)
        var next, came, longest = 0
        for (t <- 0 until 3000) {
          val busy = if (t / 500 % 2 == 0) 2 else 8 // sometimes nearly all ask at once
          for (i <- 0 until clients) {
            if (offered(i) >= 0 && random.nextInt(40) == 0) { offered(i) = -1; since(i) = 0 }
            else if (offered(i) < 0 && random.nextInt(10) < busy) { offered(i) = next; next = (next + 1) % 65536 }
            turns.io.in(i).valid.poke(offered(i) >= 0)
            if (offered(i) >= 0) turns.io.in(i).bits.poke(offered(i))
          }
          turns.io.out.ready.poke(random.nextInt(4) != 0)
          val fired = (0 until clients).filter(i => offered(i) >= 0 && turns.io.in(i).ready.peek().litToBoolean)
          assert(fired.size <= 1, s"seed $seed: two requests taken at once")
          assert(turns.io.taken.peek().litToBoolean == fired.nonEmpty)
          if (turns.io.out.valid.peek().litToBoolean && turns.io.out.ready.peek().litToBoolean) {
            val have = (turns.io.client.peek().litValue.toInt, turns.io.out.bits.peek().litValue.toInt)
            assert(taken.nonEmpty && have == taken.dequeue(), s"seed $seed: $have came out")
            came += 1
          }
          for (i <- 0 until clients) {
            if (fired.contains(i)) {
              taken += ((i, offered(i)))
              offered(i) = -1
              since(i) = 0
            } else if (offered(i) >= 0) since(i) += 1
            longest = longest max since(i)
          }
          turns.clock.step()
        }
        assert(came > 1200, s"seed $seed: $came requests in 3000 cycles")
        assert(longest < 60, s"seed $seed: a client waited for $longest cycles")
      }

      restart(turns)
      turns.io.in.foreach(_.valid.poke(false))
      turns.clock.step(4)
      turns.io.out.ready.poke(true)
      turns.io.in(3).valid.poke(true)
      turns.io.in(3).bits.poke(5)
      turns.clock.step(4)
      for (_ <- 0 until 20) {
        assert(turns.io.out.valid.peek().litToBoolean)
        turns.clock.step()
      }
    }
  }
}
