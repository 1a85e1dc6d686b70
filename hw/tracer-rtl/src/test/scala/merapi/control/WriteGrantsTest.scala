// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._

import merapi.BlockTest
import merapi.common.Contract

import scala.util.Random

/** What may be written in each phase, by the contract's table of owners, at both borders of every area; and which lines a
  * command clears.
  */
class WriteGrantsTest extends BlockTest {
  import Contract.{Area => A}

  test("grants what the phase allows and nothing else") {
    simulate(new WriteGrants(p)) { guard =>
      for (seed <- seeds(3)) {
        val random = new Random(seed)
        restart(guard)
        var allowed, denied = 0
        for (_ <- 0 until 40) {
          val regionLog2    = 16 + random.nextInt(6)
          val alignmentLog2 = 3 + random.nextInt(6).min(regionLog2 - 12)
          val regions       = 1 + random.nextInt(3000)
          configure(guard.io.config, regions)
          guard.io.config.regionLog2.poke(regionLog2)
          guard.io.config.alignmentLog2.poke(alignmentLog2)
          // Areas one after the other, some beside each other, anywhere in the window.
          var at = 64 + BigInt(p.lineAddress - 1, random)
          val areas = random
            .shuffle((0 until Contract.AreaCount.toInt).toList)
            .map { i =>
              val count = 64 * (1 + random.nextInt(100))
              at += 64 * random.nextInt(2)
              val area = i -> (at, BigInt(count))
              at += count
              area
            }
            .toMap
          for ((i, (first, count)) <- areas) {
            guard.io.areas(i).first.poke(first)
            guard.io.areas(i).count.poke(count)
          }
          val bitmap                      = random.nextInt(2)
          val Seq(rings, cycle, clearing) = Seq.fill(3)(random.nextBoolean())
          val target                      = random.nextInt(2)
          def bitmapOf(i: Int)            = if (i == 0) A.Bitmap0 else A.Bitmap1
          guard.io.ring.first.poke(areas(A.Completion)._1)
          guard.io.ring.count.poke(areas(A.Completion)._2)
          guard.io.config.live.poke(areas(A.Live)._1)
          guard.io.config.spill.poke(areas(A.Spill)._1)
          guard.io.config.bitmap.poke(areas(bitmapOf(bitmap))._1)
          guard.io.bitmap.poke(bitmap)
          guard.io.ringsGood.poke(rings)
          guard.io.inCycle.poke(cycle)
          guard.io.clearing.poke(clearing)
          val first = random.nextInt(regions)
          val count = 1 + random.nextInt(regions - first)
          val begin = random.nextInt(3) == 0
          guard.io.command.opcode.poke(if (begin) Contract.Op.BeginCycle else Contract.Op.ClearBitmap)
          guard.io.command.argument.poke(target)
          guard.io.command.payload(0).poke(first)
          guard.io.command.payload(1).poke(count)
          // A u64 for each region, or a bit for each unit of alignment.
          val (clearAt, clears) =
            if (begin) (areas(A.Live)._1, BigInt((regions * 8 + 63) / 64))
            else {
              val bytes = (BigInt(1) << (regionLog2 - alignmentLog2)) / 8
              (areas(bitmapOf(target))._1 + first * bytes / 64, count * bytes / 64)
            }
          if (!begin || regions > 0) {
            guard.io.range.first.expect(clearAt)
            guard.io.range.count.expect(clears)
          }
          guard.clock.step()

          val grants = guard.io.grants.map(g => (is(g.valid), g.first.peek().litValue, g.end.peek().litValue))
          def covered(line: BigInt) = grants.exists { case (valid, first, end) => valid && line >= first && line < end }
          val open = Seq(
            A.Completion     -> rings,
            A.Live           -> cycle,
            A.Spill          -> cycle,
            bitmapOf(bitmap) -> cycle,
            bitmapOf(target) -> clearing
          ).collect { case (area, true) => area }.toSet
          for ((i, (first, count)) <- areas) {
            for (line <- Seq(first - 1, first, first + random.nextInt(count.toInt), first + count - 1, first + count)) {
              val owner = areas.collectFirst { case (k, (f, n)) if line >= f && line < f + n => k }
              val want  = owner.exists(open.contains)
              assert(covered(line) == want, s"seed $seed: line $line at area $i, of $owner, open are $open")
              if (want) allowed += 1 else denied += 1
            }
          }
          // Of the control page the device's lines, and never the host's.
          for (line <- 0 until 64) {
            val device = line >= 0x400 / 64 && line < 0xc00 / 64
            assert(covered(line) == device, s"seed $seed: line $line of the control page")
          }
        }
        assert(allowed > 200 && denied > 500, s"seed $seed: $allowed allowed, $denied denied")
      }
    }
  }
}
