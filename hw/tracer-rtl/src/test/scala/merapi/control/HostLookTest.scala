// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._

import merapi.BlockTest
import merapi.common.Contract

import scala.util.Random

/** What the host says, as its two lines stand when they are read; an index that cannot be is told and not believed. */
class HostLookTest extends BlockTest {
  private val word           = (BigInt(1) << 64) - 1
  private def line(at: Int)  = at / 64
  private def low(x: BigInt) = x & ((BigInt(1) << 32) - 1)
  private def any(r: Random) = BigInt(64, r)

  test("sees what the host wrote") {
    import Contract.{HostIndexLayout => I, HostRequestLayout => R}
    simulate(new HostLook(p)) { look =>
      for (seed <- seeds(3)) {
        val random = new Random(seed)
        val memory = new Memory(random, 1, 9)
        restart(look)
        look.io.start.poke(false)
        look.io.restart.poke(true)
        look.clock.step()
        look.io.restart.poke(false)
        var taken                      = BigInt(0)
        var overruns, believed, unused = 0
        for (_ <- 0 until 150) {
          val generation = BigInt(2 * random.nextInt(3))
          val host       = if (random.nextInt(3) == 0) any(random) else generation
          val attached   = random.nextInt(4) != 0
          val produced   = (taken + random.nextInt(5)).min(word)
          val consumed = random.nextInt(6) match {
            case 0 => any(random)
            case 1 => (taken - 1) & word
            case 2 => (produced + 1) & word
            case 3 => BigInt(0)
            case _ => taken + random.nextInt((produced - taken).toInt + 1)
          }
          val submitted                 = if (random.nextInt(2) == 0) BigInt(0) else any(random)
          val Seq(pause, resume, abort) = Seq.fill(3)(low(any(random)))
          memory.setWord(line(I.At), I.Generation / 8, host)
          memory.setWord(line(I.At), I.SubmissionProduced / 8, submitted)
          memory.setWord(line(I.At), I.CompletionConsumed / 8, consumed)
          memory.setWord(line(R.At), R.Pause / 8, pause | (resume << 32))
          memory.setWord(line(R.At), R.Abort / 8, abort | (low(any(random)) << 32))
          look.io.generation.poke(generation)
          look.io.attached.poke(attached)
          look.io.produced.poke(produced)
          look.io.start.poke(true)
          var done     = false
          var overrun  = Option.empty[BigInt]
          var t        = 0
          val requests = memory.busyRead
          while (!done) {
            memory.serve(look.io.read)
            if (is(look.io.overrun.valid)) overrun = Some(look.io.overrun.bits.peek().litValue)
            done = is(look.io.done)
            look.clock.step()
            memory.tick()
            look.io.start.poke(false)
            assert(is(look.io.busy) != done, s"seed $seed: busy")
            t += 1
            assert(t < 100, s"seed $seed: no end")
          }
          look.io.read.response.valid.poke(false)
          val ours = attached && host == generation
          val bad  = ours && (consumed < taken || consumed > produced)
          assert(overrun == (if (bad) Some(consumed) else None), s"seed $seed: $consumed of $produced, $taken before")
          if (!bad && ours) taken = consumed
          if (!bad) believed += 1 else overruns += 1
          // Of a host that is not ours the index is not looked at.
          if (random.nextInt(16) == 0) {
            look.io.restart.poke(true)
            look.clock.step()
            look.io.restart.poke(false)
            taken = 0
          }
          look.io.taken.expect(taken)
          look.io.hostGeneration.expect(host)
          look.io.submitted.expect(submitted)
          look.io.used.expect(submitted != 0 || consumed != 0)
          if (submitted == 0 && consumed == 0) unused += 1
          look.io.pause.expect(pause)
          look.io.resume.expect(resume)
          look.io.abort.expect(abort)
          assert(memory.busyRead == requests + 2, s"seed $seed: a look reads two lines")
        }
        assert(overruns > 20 && believed > 50 && unused > 5, s"seed $seed: $overruns overruns, $unused unused")
      }
    }
  }

  test("accepts a window of its contract, with good rings") {
    import Contract.{Fault, IdentityLayout => L}
    simulate(new Handshake(p)) { shake =>
      for (seed <- seeds(3)) {
        val random = new Random(seed)
        val memory = new Memory(random, 1, 9)
        restart(shake)
        var accepted = 0
        for (_ <- 0 until 100) {
          val magic = if (random.nextInt(4) != 0) Contract.Magic else Contract.Magic ^ (BigInt(1) << random.nextInt(64))
          val major = if (random.nextInt(4) != 0) Contract.VersionMajor else random.nextInt(1 << 16)
          val minor = if (random.nextInt(4) != 0) random.nextInt(Contract.VersionMinor + 1) else random.nextInt(1 << 16)
          val rings = random.nextInt(3) != 0
          val delay = random.nextInt(20)
          memory.setWord(line(L.At), L.Magic / 8, magic)
          memory.setWord(
            line(L.At),
            L.VersionMajor / 8,
            BigInt(major) | (BigInt(minor) << 16) | (low(any(random)) << 32)
          )
          val want =
            if (magic != Contract.Magic) Some((Fault.BadMagic, magic, BigInt(0)))
            else if (major != Contract.VersionMajor || minor > Contract.VersionMinor)
              Some((Fault.BadVersion, BigInt(L.At + L.VersionMajor), BigInt(major) << 16 | minor))
            else if (!rings) Some((Fault.BadConfig, BigInt(0x88), BigInt(12345)))
            else None
          var asked = -1 // the latch, since when
          var have  = Option.empty[Option[(Int, BigInt, BigInt)]]
          var t     = 0
          shake.io.start.poke(true)
          while (have.isEmpty) {
            val latched = asked >= 0 && t == asked + 1 + delay
            shake.io.latchDone.poke(latched)
            shake.io.latchFault.valid.poke(latched && !rings)
            shake.io.latchFault.bits.code.poke(Fault.BadConfig)
            shake.io.latchFault.bits.address.poke(0x88)
            shake.io.latchFault.bits.detail.poke(12345)
            memory.serve(shake.io.read)
            if (is(shake.io.latchStart)) {
              assert(asked < 0, s"seed $seed: the latch is asked twice")
              asked = t
            }
            if (is(shake.io.done)) {
              val f = shake.io.fault
              have = Some(
                if (!is(f.valid)) None
                else
                  Some(
                    (f.bits.code.peek().litValue.toInt, f.bits.address.peek().litValue, f.bits.detail.peek().litValue)
                  )
              )
            }
            shake.clock.step()
            memory.tick()
            shake.io.start.poke(false)
            t += 1
            assert(t < 100, s"seed $seed: no end")
          }
          shake.io.latchDone.poke(false)
          shake.io.read.response.valid.poke(false)
          assert(have.contains(want), s"seed $seed: expected $want, found $have")
          if (want.isEmpty) accepted += 1
        }
        assert(accepted > 10, s"seed $seed: $accepted accepted")
      }
    }
  }
}
