// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import scala.util.Random

import merapi.BlockTest
import merapi.common.Contract

/** Verdicts over random entries against the contract's sections 6 and 4, written down a second time. */
class CommandCheckTest extends BlockTest {
  test("judges every entry as the contract does") {
    simulate(new CommandCheck(p)) { check =>
      import Contract.Op
      val random        = new Random(1)
      def small(n: Int) = BigInt(random.nextInt(n))
      var verdicts      = Map.empty[String, Int].withDefaultValue(0)
      for (_ <- 0 until 9000) {
        val opcode   = small(9)
        val count    = small(9)
        val argument = if (random.nextInt(9) == 0) BigInt(random.nextInt()) & 0xffffffffL else small(4)
        val first    = if (random.nextInt(9) == 0) BigInt(64, random) else small(18)
        val second   = if (random.nextInt(3) == 0) small(18) else BigInt(0)
        val regions  = small(17)
        val inCycle  = random.nextBoolean()
        val cycle    = small(3) + 1
        val dropped  = small(3)
        val bitmap   = small(2)
        val of       = small(4)
        val index    = if (random.nextInt(5) == 0) BigInt("ffffffff", 16) else small(5)
        val sequence = if (random.nextInt(9) == 0) small(5) else (index + 1) & 0xffffffffL
        val c        = check.io.command
        c.opcode.poke(opcode)
        c.count.poke(count)
        c.argument.poke(argument)
        for (i <- 0 until 6) c.payload(i).poke(if (i == 0) first else if (i == 1) second else BigInt(0))
        c.sequence.poke(sequence)
        c.cycle.poke(of)
        check.io.index.poke(index)
        check.io.inCycle.poke(inCycle)
        check.io.cycle.poke(cycle)
        check.io.dropped.poke(dropped)
        check.io.bitmap.poke(bitmap)
        check.io.regions.poke(regions)

        val mine = inCycle && of == cycle
        val late = !mine && (inCycle || (dropped != 0 && of == dropped))
        val want =
          if (sequence != ((index + 1) & 0xffffffffL)) Verdict.BadSequence
          else if (opcode == Op.Nop) Verdict.Nothing
          else if (opcode == Op.BeginCycle) if (argument <= 1 && of != 0) Verdict.Begin else Verdict.BadCommand
          else if (opcode == Op.TraceRegion) {
            if (late) Verdict.Nothing
            else if (mine && first > 0 && argument + first <= regions && second == 0) Verdict.Trace
            else Verdict.BadCommand
          } else if (opcode == Op.Grey) {
            if (late || (mine && count == 0)) Verdict.Nothing
            else if (mine && count <= 6) Verdict.Grey
            else Verdict.BadCommand
          } else if (opcode == Op.ClearBitmap) if (argument <= 1) Verdict.Clear else Verdict.BadCommand
          else if (opcode == Op.Fence) Verdict.Fence
          else if (opcode == Op.InvalidateShapes) Verdict.DropShapes
          else Verdict.BadCommand
        check.io.verdict.expect(want)
        val clear = second > 0 && first + second <= regions && !(inCycle && (argument & 1) == bitmap)
        check.io.clearGood.expect(clear.B)
        verdicts += want.toString -> (verdicts(want.toString) + 1)
      }
      assert(verdicts.size == 9 && verdicts.values.forall(_ > 5), s"not every verdict was reached: $verdicts")
    }
  }
}
