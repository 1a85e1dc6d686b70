// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util.Valid

import merapi.{BlockTest, Config}
import merapi.common.{Contract, FaultReport, ReadPort, TraceConfig, TracerParameters}

import scala.collection.mutable
import scala.util.Random

/** Two checkers and the loader that both ask. */
class LimitsHarness(p: TracerParameters) extends Module {
  private val clear  = WireDefault(false.B)
  private val killed = reset.asBool || clear
  private val loader = withReset(killed)(Module(new LimitLoader(p, 2)))
  val first          = withReset(killed)(Module(new LimitCheck(p, UInt(16.W), ahead = true)))
  val second         = withReset(killed)(Module(new LimitCheck(p, UInt(16.W), ahead = false)))
  val io = IO(new Bundle {
    val clear      = Input(Bool()) // the core's reset
    val config     = Input(new TraceConfig(p))
    val invalidate = Input(Bool())
    val draining   = Input(Bool())
    val in         = Vec(2, chiselTypeOf(first.io.in))
    val out        = Vec(2, chiselTypeOf(first.io.out))
    val fault      = Vec(2, Valid(new FaultReport))
    val busy       = Output(Vec(2, Bool()))
    val quiet      = Output(Bool())
    val sweeping   = Output(Bool())
    val read       = new ReadPort(p)
  })
  clear                := io.clear
  loader.io.config     := io.config
  loader.io.powerUp    := reset.asBool
  loader.io.invalidate := io.invalidate
  loader.io.draining   := io.draining
  io.quiet             := loader.io.quiet
  io.sweeping          := loader.io.fill.sweeping
  io.read <> loader.io.read
  for ((c, i) <- Seq(first, second).zipWithIndex) {
    c.io.in <> io.in(i)
    c.io.region := io.config.region(io.in(i).bits.obj)
    io.out(i) <> c.io.out
    io.fault(i).valid := c.io.fault.valid
    io.fault(i).bits  := c.io.fault.bits.report(io.config)
    io.busy(i)        := c.io.busy
    c.io.fill         := loader.io.fill
    loader.io.ask(i) <> c.io.ask
  }
}

/** Objects against the limits of their regions, at two checkers that push each other's limits out: each comes out once,
  * in order, and is below exactly when the table says so; an impossible limit is told, where it stands.
  */
class LimitsTest extends BlockTest {
  private val regions = 1200 // more than a checker holds

  /** Nobody asks, and nothing is dropped. */
  private def rest(limits: LimitsHarness): Unit = {
    limits.io.clear.poke(false)
    limits.io.invalidate.poke(false)
    limits.io.draining.poke(false)
    limits.io.in.foreach(_.valid.poke(false))
  }

  // With eight lanes the loader asks for a line every other cycle, here for two at a time.
  for ((lanes, together) <- Seq(p.lanes -> 1, p.lanes -> 2, p.lanes -> 4, 8 -> 2))
    test(s"compares with the table's limits, which come together: $together, lanes: $lanes") {
      simulate(
        new LimitsHarness(
          p.copy(
            lanes = lanes,
            limitsTogether = together,
            limitReads = if (lanes == 8) 2 else p.limitReads,
            loneLimits = lanes == 8
          )
        )
      ) { limits =>
        for (seed <- seeds(4)) {
          val random        = new Random(seed)
          val memory        = new Memory(random, 2, 20)
          val regionLog2    = 16 + random.nextInt(7)
          val alignmentLog2 = 3 + random.nextInt(6)
          rest(limits)
          configure(limits.io.config, regions)
          limits.io.config.regionLog2.poke(regionLog2)
          limits.io.config.alignmentLog2.poke(alignmentLog2)
          restart(limits)
          val region = BigInt(1) << regionLog2
          val step   = BigInt(1) << alignmentLog2
          val table  = Array.fill(regions)(BigInt(0))
          def good(r: Int) =
            table(r) >= r * region && table(r) <= (r + 1) * region && (table(r) - r * region) % step == 0
          def fill(): Unit = for (r <- 0 until regions) {
            table(r) = r * region + (random.nextInt(40) match {
              case 0 => BigInt(0)
              case 1 => region
              case 2 => region + step
              case 3 => step / 2
              case 4 => if (r == 0) BigInt(3) else -step
              case 5 => (BigInt(1) << 63) - r * region
              case _ => BigInt(regionLog2 - alignmentLog2, random) * step
            })
            memory.setWord(Config.limits + r / 8, r % 8, table(r))
          }
          val waiting     = Seq.fill(2)(mutable.Queue.empty[(BigInt, Int, BigInt)]) // region, payload, offset
          val left        = Array.fill(2)(Option.empty[Int])                        // region of what left a cycle ago
          var came, wrong = 0
          var payload     = 0
          def cycle(offers: Boolean, near: Int): Unit = {
            if (random.nextInt(50) == 0) limits.io.draining.poke(random.nextBoolean())
            for (i <- 0 until 2) {
              val offer = offers && random.nextInt(5) != 0
              val r = if (random.nextInt(16) != 0) (near + random.nextInt(12)) % regions else random.nextInt(regions)
              // At the limit itself and around it as often as anywhere.
              val inRegion = random.nextInt(3) match {
                case 0 if good(r) => (table(r) - r * region + step * (random.nextInt(3) - 1)).max(0).min(region - step)
                case _            => BigInt(regionLog2 - alignmentLog2, random) * step
              }
              val offset = r * region + inRegion
              payload = (payload + 1) % 65536
              limits.io.in(i).valid.poke(offer)
              limits.io.in(i).bits.obj.poke(offset >> 3)
              limits.io.in(i).bits.data.poke(payload)
              limits.io.out(i).ready.poke(random.nextInt(4) != 0)
              if (offer && is(limits.io.in(i).ready)) waiting(i) += ((BigInt(r), payload, offset))
            }
            memory.serve(limits.io.read)
            for (i <- 0 until 2) {
              // A fault a cycle after its object, of an impossible limit and of no other.
              val fault = limits.io.fault(i)
              val bad   = left(i).filterNot(good)
              assert(is(fault.valid) == bad.isDefined, s"seed $seed: a fault of region ${left(i)}")
              for (r <- bad) {
                fault.bits.code.expect(Contract.Fault.BadConfig)
                fault.bits.address.expect(BigInt(Config.limits) * 64 + 8 * r)
                wrong += 1
              }
              left(i) = None
              if (fires(limits.io.out(i))) {
                val out               = limits.io.out(i).bits
                val (r, data, offset) = waiting(i).dequeue()
                assert(out.data.peek().litValue == data && out.obj.peek().litValue == offset >> 3, s"seed $seed: order")
                val below = good(r.toInt) && offset < table(r.toInt)
                assert(is(out.below) == below, s"seed $seed: offset $offset of region $r, limit ${table(r.toInt)}")
                left(i) = Some(r.toInt)
                came += 1
              }
            }
            limits.clock.step()
            memory.tick()
          }
          for (round <- 0 until 4) {
            fill()
            var t = 0
            while (is(limits.io.sweeping)) {
              limits.clock.step()
              t += 1
              assert(t < 400, s"seed $seed: no end of the sweep")
            }
            for (t <- 0 until 600) cycle(offers = true, 150 * round + t / 10)
            t = 0
            while (limits.io.busy.exists(is) || waiting.exists(_.nonEmpty) || !is(limits.io.quiet)) {
              cycle(offers = false, 0)
              t += 1
              assert(t < 500, s"seed $seed: $waiting do not come out")
            }
            cycle(offers = false, 0)
            // A pause: the host changes limits.
            limits.io.invalidate.poke(true)
            limits.clock.step()
            limits.io.invalidate.poke(false)
          }
          assert(came > 500 && wrong > 20, s"seed $seed: $came objects, $wrong of impossible limits")
        }
      }
    }

  for (together <- Seq(1, 4)) test(s"no limit is taken for one of an epoch before, together: $together") {
    simulate(new LimitsHarness(p.copy(limitsTogether = together))) { limits =>
      val memory = new Memory(new Random(1), 2, 4)
      rest(limits)
      limits.io.out.foreach(_.ready.poke(true))
      configure(limits.io.config, regions)
      restart(limits)
      def cycle(): Unit = {
        limits.clock.step()
        memory.tick()
      }
      for (round <- 0 until epochRounds) {
        for (row <- epochRows(round)) {
          val r      = 8 * row // of another line each
          val below  = (round >> row) % 2 == 0
          val offset = BigInt(r) * 65536 + 4096
          memory.setWord(Config.limits + row, 0, offset + (if (below) 8 else 0))
          limits.io.in(0).valid.poke(true)
          limits.io.in(0).bits.obj.poke(offset >> 3)
          var found: Option[Boolean] = None
          var left                   = 500
          while (found.isEmpty) {
            memory.serve(limits.io.read)
            if (fires(limits.io.out(0))) found = Some(is(limits.io.out(0).bits.below))
            val taken = fires(limits.io.in(0))
            cycle()
            if (taken) limits.io.in(0).valid.poke(false)
            left -= 1
            assert(left > 0, s"round $round: the object of row $row does not come out")
          }
          assert(found.contains(below), s"round $round: row $row is compared with a limit of before")
        }
        while (limits.io.busy.exists(is) || !is(limits.io.quiet)) {
          memory.serve(limits.io.read)
          cycle()
        }
        limits.io.invalidate.poke(true)
        cycle()
        limits.io.invalidate.poke(false)
      }
    }
  }

  for (bits <- Seq(32, 36)) test(s"one region is all that $bits bits address") {
    simulate(new LimitsHarness(p.copy(heapAddressBits = bits, windowAddressBits = bits + 1))) { limits =>
      val memory = new Memory(new Random(1), 2, 4)
      rest(limits)
      limits.io.out.foreach(_.ready.poke(true))
      configure(limits.io.config, 1)
      limits.io.config.regionLog2.poke(bits)
      val most = BigInt(1) << bits
      for (limit <- Seq(BigInt(0), BigInt(8), most / 2, most - 8, most, most + 8)) {
        memory.setWord(Config.limits, 0, limit)
        restart(limits)
        while (is(limits.io.sweeping)) limits.clock.step()
        for (offset <- Seq(limit - 8, limit) if offset >= 0 && offset < most) {
          limits.io.in(0).valid.poke(true)
          limits.io.in(0).bits.obj.poke(offset >> 3)
          var found, wrong = Option.empty[Boolean]
          for (_ <- 0 until 100 if found.isEmpty || wrong.isEmpty) {
            memory.serve(limits.io.read)
            if (found.isDefined) wrong = Some(is(limits.io.fault(0).valid)) // a cycle after its object
            if (fires(limits.io.out(0))) found = Some(is(limits.io.out(0).bits.below))
            val taken = fires(limits.io.in(0))
            limits.clock.step()
            memory.tick()
            if (taken) limits.io.in(0).valid.poke(false)
          }
          assert(wrong.contains(limit > most), s"limit $limit: a fault")
          assert(found.contains(limit <= most && offset < limit), s"limit $limit, object at $offset")
        }
      }
    }
  }

  test("the core's reset leaves no row out of a sweep") {
    simulate(new LimitsHarness(p)) { limits =>
      val memory = new Memory(new Random(1), 2, 4)
      rest(limits)
      limits.io.out.foreach(_.ready.poke(true))
      configure(limits.io.config, regions)
      def cycle(): Unit = {
        memory.serve(limits.io.read)
        limits.clock.step()
        memory.tick()
      }
      def below(row: Int): Boolean = {
        limits.io.in(0).valid.poke(true)
        limits.io.in(0).bits.obj.poke((BigInt(row) * 65536 + 4096) >> 3)
        var found: Option[Boolean] = None
        for (_ <- 0 until 200 if found.isEmpty) {
          if (fires(limits.io.out(0))) found = Some(is(limits.io.out(0).bits.below))
          val taken = fires(limits.io.in(0))
          cycle()
          if (taken) limits.io.in(0).valid.poke(false)
        }
        found.getOrElse(fail(s"the object of row $row does not come out"))
      }
      def limitOf(row: Int, above: Boolean): Unit =
        memory.setWord(Config.limits + row / 8, row % 8, BigInt(row) * 65536 + 4096 + (if (above) 8 else 0))
      def pulse(what: Bool): Unit = {
        what.poke(true)
        cycle()
        what.poke(false)
      }
      def swept(): Unit = while (is(limits.io.sweeping)) cycle()
      for (at <- 96 until 104) {
        restart(limits)
        swept()
        // Read in the second epoch; the reset in the sweep, when epochs are used up, begins the second again.
        pulse(limits.io.invalidate)
        limitOf(100, above = true)
        assert(below(100), s"reset at $at: below")
        while (limits.io.busy.exists(is) || !is(limits.io.quiet)) cycle()
        for (_ <- 2 to 255) pulse(limits.io.invalidate)
        assert(is(limits.io.sweeping), "epochs are not used up")
        for (_ <- 0 until at) cycle()
        pulse(limits.io.clear)
        swept()
        limitOf(100, above = false)
        assert(!below(100), s"reset at $at: row 100 is compared with a limit of before")
        while (limits.io.busy.exists(is) || !is(limits.io.quiet)) cycle()
      }
    }
  }

  for (together <- Seq(1, 2))
    test(s"of a line that is asked for while the core drains a row comes alone, together: $together") {
      val q = p.copy(limitsTogether = together, loneLimits = true)
      simulate(new LimitLoader(q, 3)) { loader =>
        for (seed <- seeds(4)) {
          val random = new Random(seed)
          val memory = new Memory(random)
          loader.io.powerUp.poke(true)
          loader.io.invalidate.poke(false)
          loader.io.draining.poke(false)
          loader.io.ask.foreach(_.valid.poke(false))
          configure(loader.io.config, regions)
          restart(loader)
          loader.io.powerUp.poke(false)
          while (is(loader.io.fill.sweeping)) loader.clock.step()
          loader.clock.step(2)

          /** Each of these rows once, of three who ask; what comes. */
          def rowsOf(asked: Seq[Int]): Seq[Int] = {
            val waiting = mutable.Queue.from(asked)
            val asks    = Array.fill(3)(Option.empty[Int])
            val came    = mutable.ArrayBuffer.empty[Int]
            var t       = 0
            do {
              for ((ask, i) <- loader.io.ask.zipWithIndex) {
                if (asks(i).isEmpty && waiting.nonEmpty && random.nextBoolean()) asks(i) = Some(waiting.dequeue())
                ask.valid.poke(asks(i).isDefined)
                ask.bits.poke(asks(i).getOrElse(0))
              }
              memory.serve(loader.io.read) // whose request leaves decides who is heard
              for ((ask, i) <- loader.io.ask.zipWithIndex if fires(ask)) asks(i) = None
              if (is(loader.io.fill.write)) came += loader.io.fill.region.peek().litValue.toInt / together
              loader.clock.step()
              memory.tick()
              t += 1
              assert(t < 5000, s"seed $seed: rows of $asked do not come")
            } while (waiting.nonEmpty || asks.exists(_.isDefined) || !is(loader.io.quiet))
            for (_ <- 0 until 4) {
              if (is(loader.io.fill.write)) came += loader.io.fill.region.peek().litValue.toInt / together
              loader.clock.step()
            }
            came.toSeq
          }
          val inLine = 8 / together
          // Of a line of its own each; then many of two lines, of which none is missing.
          val apart = random.shuffle((0 until regions / 8).toList).take(40).map(_ * inLine + random.nextInt(inLine))
          val whole = rowsOf(apart)
          assert(
            whole.sorted == apart.flatMap(r => r / inLine * inLine until r / inLine * inLine + inLine).sorted,
            s"seed $seed"
          )
          loader.io.draining.poke(true)
          assert(rowsOf(apart).sorted == apart.sorted, s"seed $seed")
          val near = Seq.fill(60)(random.nextInt(2 * inLine))
          assert(rowsOf(near).toSet == near.toSet, s"seed $seed")
          // Whole again.
          loader.io.draining.poke(false)
          assert(
            rowsOf(near).toSet == (near.min / inLine * inLine until (near.max / inLine + 1) * inLine).toSet,
            s"seed $seed"
          )
        }
      }
    }
}
