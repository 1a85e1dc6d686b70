// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util.{PopCount, Valid}

import merapi.{BlockTest, Config}
import merapi.common.{Contract, FaultReport, ReadPort, TraceConfig, TracerParameters}

import scala.collection.mutable
import scala.util.Random

/** A filter with the loader of its limits. */
class FilterHarness(p: TracerParameters) extends Module {
  private val filter = Module(new ReferenceFilter(p, p.recentReferences))
  private val limits = Module(new LimitLoader(p, 1))
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val invalidate = Input(Bool())
    val in         = chiselTypeOf(filter.io.in)
    val out        = chiselTypeOf(filter.io.out)
    val bank       = Output(UInt(p.lanes.W))
    val ended      = Output(UInt(2.W))
    val quiet      = Output(Bool())
    val fault      = Valid(new FaultReport)
    val read       = new ReadPort(p)
  })
  filter.io.config     := io.config
  filter.io.invalidate := io.invalidate
  filter.io.in <> io.in
  io.out <> filter.io.out
  io.bank        := filter.io.bank
  filter.io.fill := limits.io.fill
  limits.io.ask(0) <> filter.io.ask
  limits.io.config     := io.config
  limits.io.powerUp    := reset.asBool
  limits.io.invalidate := io.invalidate
  limits.io.draining   := false.B
  io.ended             := PopCount(filter.io.ended)
  io.quiet             := filter.io.quiet && limits.io.quiet
  private val crooked = Wire(Valid(new FaultReport))
  crooked.valid := filter.io.crooked.valid
  crooked.bits  := filter.io.crooked.bits.report(io.config)
  private val limit = Wire(Valid(new FaultReport))
  limit.valid := filter.io.fault.valid
  limit.bits  := filter.io.fault.bits.report(io.config)
  io.fault    := FaultReport.first(Seq(crooked, limit))
  io.read <> limits.io.read
}

/** Which references go on and to which bank: inside the heap, below their region's limit, not tested lately; limits read
  * from the table once per line and again after a pause.
  */
class ReferenceFilterTest extends BlockTest {
  private val regions = 40
  for (lanes <- Seq(1, 4, 8)) test(s"lets pass what is below its limit, lanes: $lanes") {
    val wide = p.copy(lanes = lanes)
    // Groups of as many bits of a line's number as a bank's number has.
    def bankOf(bit: BigInt): Int = (0 until 5).map(i => ((bit >> (9 + i * wide.laneLog2)) % lanes).toInt).reduce(_ ^ _)
    simulate(new FilterHarness(wide)) { filter =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random)
        filter.reset.poke(true)
        filter.clock.step(2)
        filter.reset.poke(false)
        filter.io.invalidate.poke(false)
        configure(filter.io.config, regions)
        filter.io.in.valid.poke(false)
        filter.clock.step() // the configuration is older than what comes
        val limits = Array.fill(regions)(BigInt(0))
        def setLimits(): Unit = for (r <- 0 until regions) {
          limits(r) = BigInt(r) * 65536 + (if (random.nextInt(4) == 0) 0 else random.nextInt(8193) * 8)
          memory.setWord(Config.limits + r / 8, r % 8, limits(r))
        }
        setLimits()
        val expected            = mutable.Queue.empty[BigInt]
        val tested              = mutable.Set.empty[BigInt]
        var sent, passed, ended = 0
        def cycle(): Unit = {
          memory.serve(filter.io.read)
          assert(!filter.io.fault.valid.peek().litToBoolean, s"seed $seed: a fault")
          val bank =
            if (is(filter.io.out.valid)) BigInt(1) << bankOf(filter.io.out.bits.bit.peek().litValue) else BigInt(0)
          assert(filter.io.bank.peek().litValue == bank, s"seed $seed: another bank")
          if (filter.io.out.valid.peek().litToBoolean && filter.io.out.ready.peek().litToBoolean) {
            val obj = filter.io.out.bits.bit.peek().litValue
            // In order; what is missing in between was tested since the last time that everything was forgotten.
            while (expected.nonEmpty && expected.head != obj) {
              assert(tested(expected.head), s"seed $seed: object ${expected.head} did not pass and was not tested")
              expected.dequeue()
            }
            assert(expected.nonEmpty, s"seed $seed: object $obj passed and should not have")
            expected.dequeue()
            tested += obj
            passed += 1
          }
          ended += filter.io.ended.peek().litValue.toInt
          filter.clock.step()
          memory.tick()
        }
        for (round <- 0 until 3) {
          for (_ <- 0 until 800) {
            val offer  = random.nextInt(5) != 0
            val offset = BigInt(random.nextInt(if (random.nextBoolean()) 512 else regions * 8192 + 4000)) * 8
            val host   = random.nextInt(10) == 0
            val value  = if (host) Config.heapBase + offset else (Config.heapBase + offset) >> 3
            filter.io.in.valid.poke(offer)
            filter.io.in.bits.value.poke(value)
            filter.io.in.bits.source.poke(0)
            filter.io.in.bits.host.poke(host)
            filter.io.out.ready.poke(random.nextInt(4) != 0)
            if (offer && filter.io.in.ready.peek().litToBoolean) {
              sent += 1
              val region = (offset >> 16).toInt
              if (region < regions && offset < limits(region)) {
                expected += offset >> 3
              }
            }
            cycle()
          }
          filter.io.in.valid.poke(false)
          filter.io.out.ready.poke(true)
          var left = 2000
          while (!filter.io.quiet.peek().litToBoolean && left > 0) { cycle(); left -= 1 }
          assert(left > 0, s"seed $seed: no end")
          cycle() // what ended is told a cycle later
          assert(passed + ended == sent, s"seed $seed: $sent references, $passed passed and $ended ended")
          expected.foreach(obj => assert(tested(obj), s"seed $seed: object $obj did not pass and was not tested"))
          expected.clear()
          tested.clear()
          setLimits()
          filter.io.invalidate.poke(true)
          cycle()
          filter.io.invalidate.poke(false)
        }
        assert(passed > 300 && ended > 300)
      }
    }
  }

  test("names what is wrong with a reference or a limit") {
    simulate(new FilterHarness(p)) { filter =>
      val memory = new Memory(new Random(1))
      for (
        (value, limit, code, address, detail) <- Seq(
          (Config.heapBase + 0x104, BigInt(65536), Contract.Fault.BadReference, Config.heapBase + 0x104, BigInt(0)),
          (Config.heapBase + 0x108, BigInt(65544), Contract.Fault.BadConfig, BigInt(Config.limits) * 64, BigInt(65544)),
          (Config.heapBase + 0x108, BigInt(12), Contract.Fault.BadConfig, BigInt(Config.limits) * 64, BigInt(8))
        )
      ) {
        filter.reset.poke(true)
        filter.clock.step(2)
        filter.reset.poke(false)
        filter.io.invalidate.poke(false)
        configure(filter.io.config, regions)
        filter.io.in.valid.poke(false)
        filter.clock.step() // the configuration is older than what comes
        memory.setWord(Config.limits, 0, limit)
        filter.io.out.ready.poke(true)
        filter.io.in.bits.value.poke(value)
        filter.io.in.bits.host.poke(true)
        filter.io.in.valid.poke(true)
        var fault: Option[(BigInt, BigInt, BigInt)] = None
        for (_ <- 0 until 500) {
          memory.serve(filter.io.read)
          if (fault.isEmpty && filter.io.fault.valid.peek().litToBoolean) {
            val f = filter.io.fault.bits
            fault = Some((f.code.peek().litValue, f.address.peek().litValue, f.detail.peek().litValue))
          }
          val taken = filter.io.in.ready.peek().litToBoolean
          filter.clock.step()
          memory.tick()
          if (taken) filter.io.in.valid.poke(false)
        }
        assert(fault.contains((BigInt(code), address, detail)), s"expected fault $code at $address, found $fault")
      }
    }
  }

  test("stops what follows its equal at once, but for the host's") {
    simulate(new FilterHarness(p)) { filter =>
      val memory = new Memory(new Random(1))
      // Objects 2 and 67 share an entry; what passes of each row, one behind the other.
      val (lane, host) = (false, true)
      for (
        (row, passes) <- Seq(
          Seq(2 -> lane, 2 -> lane, 2 -> lane)              -> Seq(2),
          Seq(2 -> lane, 3 -> lane, 2 -> lane, 3 -> lane)   -> Seq(2, 3),
          Seq(2 -> lane, 67 -> lane, 2 -> lane, 67 -> lane) -> Seq(2, 67, 2, 67),
          Seq(2 -> host, 2 -> lane, 2 -> lane)              -> Seq(2, 2),
          Seq(2 -> lane, 2 -> host, 2 -> lane)              -> Seq(2, 2)
        )
      ) {
        restart(filter)
        filter.io.invalidate.poke(false)
        configure(filter.io.config, regions)
        filter.io.in.valid.poke(false)
        filter.io.in.bits.source.poke(0)
        filter.io.out.ready.poke(true)
        memory.setWord(Config.limits, 0, 65536)
        val passed = mutable.ArrayBuffer.empty[Int]
        def cycle(): Unit = {
          memory.serve(filter.io.read)
          if (fires(filter.io.out)) passed += filter.io.out.bits.bit.peek().litValue.toInt
          filter.clock.step()
          memory.tick()
        }
        // Its entries are emptied, and the limit is here: references outside of what is tested go first.
        def send(obj: Int, of: Boolean): Unit = {
          val address = Config.heapBase + obj * 8
          filter.io.in.bits.value.poke(if (of) address else address >> 3)
          filter.io.in.bits.host.poke(of)
          filter.io.in.valid.poke(true)
          while (!is(filter.io.in.ready)) cycle()
          cycle()
          filter.io.in.valid.poke(false)
        }
        for (_ <- 0 until p.recentReferences) cycle()
        send(100, host)
        for (_ <- 0 until 100) cycle()
        passed.clear()
        for ((obj, of) <- row) send(obj, of)
        for (_         <- 0 until 100) cycle()
        assert(passed == passes, s"of $row")
      }
    }
  }
}
