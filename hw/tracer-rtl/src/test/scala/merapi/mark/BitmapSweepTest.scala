// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._

import merapi.{BlockTest, Config}
import merapi.common.{Contract, ReadPort, TraceConfig, TracerParameters}

import scala.collection.mutable
import scala.util.Random

/** The sweep with the loader of its limits, which somebody else asks, too. */
class SweepHarness(p: TracerParameters) extends Module {
  private val sweep  = Module(new BitmapSweep(p))
  private val limits = Module(new LimitLoader(p, 2))
  val io = IO(new Bundle {
    val config   = Input(new TraceConfig(p))
    val slice    = chiselTypeOf(sweep.io.slice)
    val hold     = Input(Bool())
    val resumed  = Input(Bool())
    val greys    = chiselTypeOf(sweep.io.greys)
    val busy     = Output(Bool())
    val quiet    = Output(Bool())
    val sweeping = Output(Bool())
    val fault    = chiselTypeOf(sweep.io.fault)
    val lines    = new ReadPort(p)
    val table    = new ReadPort(p)
    val other    = chiselTypeOf(limits.io.ask(1))
  })
  sweep.io.config  := io.config
  sweep.io.slice   := io.slice
  sweep.io.hold    := io.hold
  sweep.io.resumed := io.resumed
  io.greys <> sweep.io.greys
  io.busy       := sweep.io.busy
  io.quiet      := sweep.io.quiet && limits.io.quiet
  io.fault      := sweep.io.fault
  io.sweeping   := limits.io.fill.sweeping
  sweep.io.fill := limits.io.fill
  limits.io.ask(0) <> sweep.io.ask
  limits.io.ask(1) <> io.other
  limits.io.config     := io.config
  limits.io.powerUp    := reset.asBool
  limits.io.invalidate := io.resumed
  limits.io.draining   := false.B
  io.lines <> sweep.io.read
  io.table <> limits.io.read
}

/** Slices of a bitmap: every bit below its region's limit becomes a grey, once, in order, at the store of its bank, and
  * no other; of regions that have no limit no line is read, those among them that the host freed in a pause, whoever has
  * asked for that limit before; while it is held and quiet nothing is on its way.
  */
class BitmapSweepTest extends BlockTest {
  for ((lanes, together) <- Seq(2 -> 1, 8 -> 4))
    test(s"finds the greys of a slice and tells of a limit that cannot be, lanes: $lanes, limits together: $together") {
      simulate(new SweepHarness(p.copy(lanes = lanes, limitsTogether = together))) { sweep =>
        sweep.io.other.valid.poke(false)
        greys(sweep)
        wrongLimits(sweep)
      }
    }

  for (together <- Seq(1, 2))
    test(s"no limit that came before a pause is used after it, limits together: $together") {
      simulate(new SweepHarness(p.copy(limitsTogether = together)))(stale)
    }

  /** Somebody else's limits pass while the sweep begins to wait for those of the same line; it is held before it can ask
    * for them, and in the pause the host frees the region.
    */
  private def stale(sweep: SweepHarness): Unit = {
    val memory = new Memory(new Random(1), 4, 4)
    configure(sweep.io.config, 24)
    sweep.io.greys.foreach(_.ready.poke(true))
    sweep.io.resumed.poke(false)
    var came = 0
    for (region <- 8 until 16; at <- 0 until 32) {
      sweep.io.hold.poke(false)
      sweep.io.slice.valid.poke(false)
      sweep.io.other.valid.poke(false)
      restart(sweep)
      def cycle(): Unit = {
        memory.serve(sweep.io.lines)
        memory.serve(sweep.io.table)
        sweep.clock.step()
        memory.tick()
        sweep.io.lines.response.valid.poke(false)
        sweep.io.table.response.valid.poke(false)
      }
      while (is(sweep.io.sweeping)) cycle()
      for (r <- 0 until 24) memory.setWord(Config.limits + r / 8, r % 8, BigInt(r + 1) * 65536)
      sweep.io.other.valid.poke(true)
      sweep.io.other.bits.poke(1)
      for (t <- 0 until 32) {
        if (is(sweep.io.other.ready)) came += 1
        val asked = is(sweep.io.other.valid) && is(sweep.io.other.ready)
        sweep.io.slice.valid.poke(t == at)
        sweep.io.slice.bits.first.poke(region)
        sweep.io.slice.bits.count.poke(1)
        sweep.io.hold.poke(t >= at)
        cycle()
        if (asked) sweep.io.other.valid.poke(false)
      }
      sweep.io.slice.valid.poke(false)
      for (_ <- 0 until 40) cycle()
      assert(is(sweep.io.quiet), s"region $region, $at cycles: held for long and not quiet")
      sweep.io.resumed.poke(true)
      memory.setWord(Config.limits + region / 8, region % 8, BigInt(region) * 65536)
      cycle()
      sweep.io.resumed.poke(false)
      sweep.io.hold.poke(false)
      for (_ <- 0 until 100) {
        cycle()
        assert(
          memory.outstanding(sweep.io.lines).isEmpty,
          s"region $region, $at cycles: marks of a freed region are read"
        )
      }
      assert(!is(sweep.io.busy), s"region $region, $at cycles: no end")
    }
    assert(came > 0, "nobody else's limits came")
  }

  private def greys(sweep: SweepHarness): Unit =
    for (seed <- seeds(if (sweep.io.greys.size > 2) 2 else 6)) {
      val random        = new Random(seed)
      val memory        = new Memory(random, 2, 30)
      val regionLog2    = 16 + random.nextInt(2)
      val alignmentLog2 = (3 + random.nextInt(6)).min(regionLog2 - 9) max 3
      val regions       = 24
      configure(sweep.io.config, regions)
      sweep.io.config.regionLog2.poke(regionLog2)
      sweep.io.config.alignmentLog2.poke(alignmentLog2)
      sweep.io.slice.valid.poke(false)
      sweep.io.hold.poke(false)
      restart(sweep)
      val perRegion = 1 << (regionLog2 - alignmentLog2) // bits
      val limits = Array.tabulate(regions) { r =>
        val inRegion = random.nextInt(4) match {
          case 0 => 0
          case 1 => perRegion
          case _ => random.nextInt(perRegion + 1)
        }
        r * perRegion + inRegion
      }
      // Marks in clusters; lines at and around the limits above all.
      val marks = mutable.BitSet.empty
      for (r <- 0 until regions) {
        for (_ <- 0 until random.nextInt(4)) {
          val at = r * perRegion + random.nextInt(perRegion)
          for (i <- 0 until 40 if random.nextInt(2) == 0) marks += (at + i).min(regions * perRegion - 1)
        }
        for (i <- -2 to 2) marks += (limits(r) + i).max(0).min(regions * perRegion - 1)
        marks ++= Seq(r * perRegion, (r + 1) * perRegion - 1)
      }
      for (r <- 0 until regions) {
        memory.setWord(Config.limits + r / 8, r % 8, BigInt(limits(r)) << alignmentLog2)
      }
      for (m <- marks) {
        val line = Config.bitmap + m / 512
        memory.lines(line) = memory.lines(line) | (BigInt(1) << (m % 512))
      }
      var came, freed = 0
      for (_ <- 0 until 8) {
        val first = random.nextInt(regions)
        val count = if (random.nextInt(4) == 0) 1 else random.nextInt(regions - first + 1)
        val want  = Seq.fill(sweep.io.greys.size)(mutable.Queue.empty[BigInt])
        for (r <- first until first + count; m <- marks.range(r * perRegion, limits(r))) {
          val line = m / 512
          val bits = sweep.io.greys.size match { case 2 => 1; case 8 => 3 }
          val bank = (0 until 5).map(i => (line >> (i * bits)) & (sweep.io.greys.size - 1)).reduce(_ ^ _)
          want(bank) += BigInt(m) << (alignmentLog2 - 3)
        }
        var wanted = (first until first + count).flatMap(r => (r * perRegion until limits(r)).map(_ / 512)).toSet
        sweep.io.slice.valid.poke(true)
        sweep.io.slice.bits.first.poke(first)
        sweep.io.slice.bits.count.poke(count)
        val late  = mutable.Set.empty[BigInt]
        var t     = 0
        var taken = false
        var over  = false
        var held  = 0 // cycles
        var rests = 0 // cycles in which it was held and quiet
        var done  = false
        while (!over) {
          if (held > 0) held -= 1 else if (random.nextInt(50) == 0) held = 80
          if (held == 0) done = false
          if (held == 0 && is(sweep.io.sweeping)) held = 1 // nothing goes on before limits can be read
          sweep.io.hold.poke(held > 0)
          // Soon after it is quiet, or late.
          val pause = taken && held >= 5 && rests >= 3 && !done && (held == 5 || random.nextInt(3) == 0)
          done ||= pause
          sweep.io.resumed.poke(pause)
          if (pause) {
            assert(is(sweep.io.quiet), s"seed $seed: held for long and not quiet")
            // Of the region that is being swept, or of one to come.
            val region = first + random.nextInt(count)
            if (limits(region) > region * perRegion) freed += 1
            limits(region) = region * perRegion
            memory.setWord(Config.limits + region / 8, region % 8, BigInt(limits(region)) << alignmentLog2)
            wanted --= (region * perRegion until (region + 1) * perRegion by 512).map(_ / 512)
            // What was found before may still come.
            want.foreach { w =>
              w.dequeueAll(obj => (obj << 3 >> alignmentLog2) / perRegion == region).foreach(late += _)
            }
          }
          sweep.io.greys.foreach(_.ready.poke(random.nextInt(3) != 0))
          val asked = memory.outstanding(sweep.io.lines)
          memory.serve(sweep.io.lines)
          memory.serve(sweep.io.table)
          for (line <- memory.outstanding(sweep.io.lines).diff(asked)) {
            assert(wanted((line - Config.bitmap).toInt), s"seed $seed: line $line is not of the slice below its limits")
          }
          for ((g, bank) <- sweep.io.greys.zipWithIndex if fires(g)) {
            assert(held == 0, s"seed $seed: a grey while held")
            val obj = g.bits.obj.peek().litValue
            if (!late.remove(obj))
              assert(want(bank).nonEmpty && obj == want(bank).dequeue(), s"seed $seed: object $obj at bank $bank")
            assert(!is(g.bits.count))
            came += 1
          }
          assert(!is(sweep.io.fault.valid), s"seed $seed: a fault")
          taken = true
          sweep.clock.step()
          memory.tick()
          sweep.io.lines.response.valid.poke(false)
          sweep.io.table.response.valid.poke(false)
          if (taken) sweep.io.slice.valid.poke(false)
          if (held > 1 && is(sweep.io.quiet)) {
            val under = memory.outstanding(sweep.io.lines) ++ memory.outstanding(sweep.io.table)
            assert(under.isEmpty, s"seed $seed: quiet with lines under way")
          }
          rests = if (held > 1 && is(sweep.io.quiet)) rests + 1 else 0
          if (held == 1) assert(is(sweep.io.quiet), s"seed $seed: held for long and not quiet")
          over = taken && !is(sweep.io.busy)
          t += 1
          assert(t < 60000, s"seed $seed: no end")
        }
        assert(want.forall(_.isEmpty), s"seed $seed: greys $want of $count regions from $first did not come")
      }
      assert(came > 60 && freed > 1, s"seed $seed: $came greys, $freed regions freed")
    }

  private def wrongLimits(sweep: SweepHarness): Unit =
    for (seed <- seeds(3)) {
      val random = new Random(seed)
      val memory = new Memory(random)
      configure(sweep.io.config, 24)
      sweep.io.hold.poke(false)
      sweep.io.resumed.poke(false)
      sweep.io.greys.foreach(_.ready.poke(true))
      restart(sweep)
      val wrong = random.nextInt(24)
      val value = BigInt(wrong) * 65536 + Seq(65544, 12, -8)(seed % 3)
      for (r <- 0 until 24) {
        memory.setWord(
          Config.limits + r / 8,
          r % 8,
          if (r == wrong) value & ((BigInt(1) << 64) - 1) else BigInt(r) * 65536
        )
      }
      sweep.io.slice.valid.poke(true)
      sweep.io.slice.bits.first.poke(0)
      sweep.io.slice.bits.count.poke(24)
      var told = Option.empty[(BigInt, BigInt)]
      for (_ <- 0 until 1500) {
        memory.serve(sweep.io.lines)
        memory.serve(sweep.io.table)
        assert(memory.outstanding(sweep.io.lines).isEmpty, s"seed $seed: a line is read, and nothing is below a limit")
        if (is(sweep.io.fault.valid)) {
          assert(told.isEmpty, s"seed $seed: told twice")
          sweep.io.fault.bits.code.expect(Contract.Fault.BadConfig)
          told = Some((sweep.io.fault.bits.address.peek().litValue, sweep.io.fault.bits.detail.peek().litValue))
        }
        sweep.clock.step()
        sweep.io.slice.valid.poke(false)
        memory.tick()
      }
      val place = BigInt(Config.limits) * 64 + 8 * wrong
      assert(
        told.contains((place, value & ((BigInt(1) << 64) - 1))),
        s"seed $seed: expected $place, $value, found $told"
      )
    }
}
