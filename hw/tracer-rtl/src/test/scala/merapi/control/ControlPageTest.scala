// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._

import merapi.BlockTest
import merapi.common.{Contract, Counters, PageLine}

import scala.util.Random

/** Lines of the control page: what stands in each, and that a host which sees a later one sees all before it. */
class ControlPageTest extends BlockTest {
  private val mask                         = (BigInt(1) << 512) - 1
  private def number(r: Random, bits: Int) = BigInt(bits, r)

  test("writes lines in their order") {
    import Contract._
    simulate(new ControlPage(p)) { page =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random, 1, 25)
        restart(page)
        page.io.write.valid.poke(false)
        page.io.restart.poke(false)
        var event = 0
        for (_ <- 0 until 40) {
          val s      = page.io.page
          val values = s.elements.map { case (name, field) => name -> number(random, field.getWidth) }
          for ((name, field) <- s.elements) if (name != "idle") field.asInstanceOf[UInt].poke(values(name))
          s.idle.poke(values("idle") == 1)
          val who = page.io.who.elements.map { case (name, field) => name -> number(random, field.getWidth) }
          for ((name, field) <- page.io.who.elements) field.asInstanceOf[UInt].poke(who(name))
          val windowBytes = number(random, 42)
          page.io.windowBytes.poke(windowBytes)
          val counters = page.io.counters.map { c =>
            val value = number(random, 512)
            c.poke(value)
            value
          }
          if (random.nextInt(10) == 0) {
            page.io.restart.poke(true)
            page.clock.step()
            page.io.restart.poke(false)
            event = 0
          }
          // By contract: offset and bytes of each field.
          def line(fields: (Int, Int, BigInt)*) = fields.map { case (at, bytes, v) =>
            (v & ((BigInt(1) << (8 * bytes)) - 1)) << (8 * at)
          }.sum & mask
          def index = line(
            (0, 8, values("generation")),
            (8, 8, values("consumed")),
            (16, 8, values("produced")),
            (24, 4, event),
            (32, 4, values("state"))
          )
          val capabilities = Seq(Cap.ScopeHeap, Cap.ClearBitmap, Cap.Doorbell).map(1 << _).sum
          def content(k: Int): (Int, BigInt) = k match {
            case PageLine.fault =>
              (
                0x500,
                line(
                  (0, 4, values("faultCode")),
                  (4, 4, values("faultCycle")),
                  (8, 8, values("faultAt")),
                  (16, 8, values("faultDetail"))
                )
              )
            case PageLine.identity =>
              (
                0x400,
                line(
                  (0, 4, DeviceMagic),
                  (4, 2, VersionMajor),
                  (6, 2, VersionMinor),
                  (8, 8, capabilities),
                  (16, 1, who("kind")),
                  (17, 1, who("coherence")),
                  (18, 2, p.lanes),
                  (20, 4, who("patienceUs")),
                  (24, 8, who("pid")),
                  (32, 8, windowBytes),
                  (40, 24, who("name"))
                )
              )
            case PageLine.index | PageLine.indexAgain => (0x440, index)
            case PageLine.idle =>
              (
                0x4c0,
                line(
                  (0, 4, values("idleCycle")),
                  (4, 4, values("idle")),
                  (8, 8, values("consumed")),
                  (16, 8, values("produced"))
                )
              )
            case PageLine.ack =>
              (0x480, line((0, 4, values("ackPause")), (4, 4, values("ackResume")), (8, 4, values("ackAbort"))))
            case i => (0x800 + 64 * i, counters(i))
          }
          val chosen = random.nextInt(4) match {
            case 0 => (1 << PageLine.count) - 1
            case 1 => 1 << random.nextInt(PageLine.count)
            case _ => random.nextInt(1 << PageLine.count)
          }
          page.io.write.valid.poke(true)
          page.io.write.bits.poke(chosen)
          assert(!is(page.io.busy), s"seed $seed: busy with nothing")
          var asked = List.empty[Int] // the last first
          var t     = 0
          var busy  = true
          while (busy) {
            val before = memory.busyWrite
            val open   = memory.outstanding(page.io.memory).nonEmpty
            memory.serve(page.io.memory)
            val request = page.io.memory.request.bits
            if (memory.busyWrite > before) {
              val k          = request.tag.peek().litValue.toInt
              val (at, want) = content(k)
              assert((chosen >> k & 1) == 1 && !asked.contains(k), s"seed $seed: line $k was not asked for")
              assert(request.line.peek().litValue == at / 64, s"seed $seed: place of line $k")
              assert(request.data.peek().litValue == want, s"seed $seed: line $k")
              if (k >= PageLine.index) {
                assert(!open, s"seed $seed: line $k before the one before was answered")
                event += 1
              }
              assert(asked.forall(_ < k), s"seed $seed: $k after $asked")
              asked = k :: asked
            }
            page.clock.step()
            memory.tick()
            page.io.write.valid.poke(false)
            busy = is(page.io.busy)
            if (!busy)
              assert(memory.outstanding(page.io.memory).isEmpty, s"seed $seed: not busy with a write under way")
            t += 1
            assert(t < 1000, s"seed $seed: no end")
          }
          page.io.memory.done.valid.poke(false)
          assert(asked.map(1 << _).sum == chosen, s"seed $seed: lines $asked of $chosen were written")
        }
      }
    }
  }

  test("counters add what happens") {
    import Contract.Counter._
    simulate(new Counters(p)) { counters =>
      for (seed <- seeds(2)) {
        val random = new Random(seed)
        restart(counters)
        val sums = Array.fill(Counters.count)(BigInt(0))
        counters.io.pauseMax.valid.poke(false)
        counters.io.rounds.poke(0)
        counters.io.events.add.foreach(_.poke(0))
        def check(): Unit = {
          val lines = counters.io.lines.map(_.peek().litValue)
          for (i <- 0 until 8 * Counters.lines) {
            val have = lines(i / 8) >> (64 * (i % 8)) & ((BigInt(1) << 64) - 1)
            assert(have == (if (i < Counters.count) sums(i) else BigInt(0)), s"seed $seed: counter $i")
          }
        }
        for (t <- 0 until 150) {
          // In the cycles before a reset nothing happens: events are counted a few cycles late.
          val resets  = t % 50 == 49
          val restart = t == 99
          val rests   = t % 50 > 44
          counters.io.clear.poke(resets && !restart)
          counters.io.restart.poke(resets && restart)
          for (i <- 0 until Counters.count) {
            val step =
              if (rests || random.nextBoolean()) BigInt(0)
              else number(random, if (i == LiveWords) Counters.stepBits else 10)
            counters.io.events.add(i).poke(step)
            if (i != PauseMax && i != Rounds) sums(i) += step
          }
          // Counted by the control unit.
          if (!rests) sums(Rounds) = number(random, 64)
          counters.io.rounds.poke(sums(Rounds))
          val pause = number(random, 64)
          counters.io.pauseMax.valid.poke(!rests && t % 7 == 0)
          counters.io.pauseMax.bits.poke(pause)
          if (!rests && t % 7 == 0) sums(PauseMax) = sums(PauseMax).max(pause)
          if (resets) check()
          counters.clock.step()
          if (resets) for (i <- sums.indices if i != Rounds) sums(i) = 0
        }
      }
    }
  }
}
