// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._

import merapi.{BlockTest, Config}
import merapi.common.{ReadPort, TracerParameters}

import scala.collection.mutable
import scala.util.Random

/** Line fetch with the places for its lines as they stand in a lane. */
class FetchHarness(p: TracerParameters) extends Module {
  val fetch  = Module(new LineFetch(p))
  val places = Module(new chisel3.util.Queue(chiselTypeOf(fetch.io.line.bits), 4))
  val io = IO(new Bundle {
    val request    = chiselTypeOf(fetch.io.request)
    val prefetch   = chiselTypeOf(fetch.io.prefetch)
    val line       = chiselTypeOf(fetch.io.line)
    val invalidate = Input(Bool())
    val quiet      = Output(Bool())
    val read       = new ReadPort(p)
  })
  fetch.io.powerUp := reset.asBool
  fetch.io.request <> io.request
  fetch.io.rest       := !io.request.valid
  fetch.io.prefetch   := io.prefetch
  fetch.io.room       := places.io.count <= (if (p.foundRegister) 1.U else 2.U)
  fetch.io.invalidate := io.invalidate
  places.io.enq <> fetch.io.line
  if (p.foundRegister) {
    fetch.io.line.ready := places.io.count <= 2.U
    assert(places.io.enq.ready || !fetch.io.line.valid, "a line without a place")
  }
  io.line <> places.io.deq
  io.quiet := fetch.io.quiet && !places.io.deq.valid
  io.read <> fetch.io.read
}

/** Heap lines for many slots: every request is answered once, with the line it asked for; lines that are here or on
  * their way are not asked for again.
  */
class LineFetchTest extends BlockTest {
  private val many = p.copy(slots = 48, greyDepth = 512)
  // Its lines lie so that two sets differ in nothing but a bit that `torn` does not compare.
  private val roomy = p.copy(heapLines = 2048, bitmapLines = 2048, askQueue = 4)
  private val found = p.copy(askQueue = 4, foundRegister = true)
  for (
    (p, count, apart, what) <- Seq(
      (p, 4, 1, "8 slots"),
      (many, 2, 1, "48 slots"),
      (roomy, 4, 1024, "8 slots of a large cache"),
      (found, 4, 1, "8 slots with a register for what is found"),
      (roomy.copy(foundRegister = true), 4, 1024, "8 slots of a large cache with such a register"),
      (many.copy(foundRegister = true), 2, 1, "48 slots with a register for what is found")
    )
  ) test(s"answers each of $what with its line") {
    simulate(new FetchHarness(p)) { fetch =>
      for (seed <- seeds(count)) {
        val random = new Random(seed)
        val memory = new Memory(random, 5, 40)
        fetch.reset.poke(true)
        fetch.clock.step(2)
        fetch.reset.poke(false)
        fetch.io.invalidate.poke(false)
        val waiting      = mutable.Map.empty[Int, Int] // slot: line
        var version      = 1
        def fill(): Unit = for (l <- 0 until 200) memory.lines(Config.heap + l * apart) = BigInt(l) * 1000 + version
        fill()
        var served, hot = 0
        for (t <- 0 until 6000) {
          val stop = t % 2000 > 1800 // then everything ends
          val free = (0 until p.slots).filterNot(waiting.contains)
          val ask  = !stop && free.nonEmpty && random.nextInt(4) != 0
          fetch.io.request.valid.poke(ask)
          // Neighbours most of the time, so that slots wait for each other's lines.
          val line = if (random.nextInt(3) != 0) t / 40 % 190 + random.nextInt(4) else random.nextInt(200)
          val slot = if (free.nonEmpty) free(random.nextInt(free.size)) else 0
          fetch.io.request.bits.slot.poke(slot)
          fetch.io.request.bits.line.poke(Config.heap + line * apart)
          fetch.io.prefetch.valid.poke(!stop && random.nextInt(10) == 0)
          fetch.io.prefetch.bits.poke(Config.heap + (line + 4) % 200 * apart)
          fetch.io.line.ready.poke(random.nextInt(3) != 0)
          memory.serve(fetch.io.read)
          if (ask && fetch.io.request.ready.peek().litToBoolean) waiting(slot) = line
          if (fetch.io.line.valid.peek().litToBoolean && fetch.io.line.ready.peek().litToBoolean) {
            val slot = fetch.io.line.bits.slot.peek().litValue.toInt
            val want = waiting.remove(slot)
            assert(want.isDefined, s"seed $seed: slot $slot answered without a request")
            assert(
              fetch.io.line.bits.data.peek().litValue == BigInt(want.get) * 1000 + version,
              s"seed $seed: slot $slot has another line, or an old one"
            )
            served += 1
          }
          fetch.clock.step()
          memory.tick()
          if (t % 2000 == 1999) {
            assert(waiting.isEmpty, s"seed $seed: slots ${waiting.keys} were forgotten")
            assert(fetch.io.quiet.peek().litToBoolean)
            // A pause: lines change, and what was kept is dropped.
            fetch.io.invalidate.poke(true)
            fetch.clock.step()
            fetch.io.invalidate.poke(false)
            version += 1
            fill()
          }
        }
        assert(served > 1500)
        assert(memory.busyRead < served, s"seed $seed: ${memory.busyRead} lines fetched for $served requests")
      }
    }
  }

  test("lines that the memory brought pass looks that find none") {
    simulate(new FetchHarness(found)) { fetch =>
      val memory = new Memory(new Random(1), 2, 4) // takes a request in three of four cycles
      restart(fetch)
      fetch.io.invalidate.poke(false)
      fetch.io.prefetch.valid.poke(false)
      fetch.io.line.ready.poke(true)
      fetch.io.request.valid.poke(true)
      val lines                 = 1000
      val free                  = mutable.Queue.from(0 until found.slots)
      var (asked, came, cycles) = (0, 0, 0)
      while (came < lines) {
        fetch.io.request.valid.poke(free.nonEmpty && asked < lines)
        fetch.io.request.bits.slot.poke(free.headOption.getOrElse(0))
        fetch.io.request.bits.line.poke(Config.heap + asked)
        memory.serve(fetch.io.read)
        if (fires(fetch.io.request)) {
          free.dequeue()
          asked += 1
        }
        if (fires(fetch.io.line)) {
          free.enqueue(fetch.io.line.bits.slot.peek().litValue.toInt)
          came += 1
        }
        fetch.clock.step()
        memory.tick()
        cycles += 1
        assert(cycles < 1700, s"$came of $lines lines in $cycles cycles")
      }
    }
  }

  test("no line is taken for one of an epoch before") {
    simulate(new FetchHarness(p)) { fetch =>
      val memory = new Memory(new Random(1), 2, 4)
      restart(fetch)
      fetch.io.invalidate.poke(false)
      fetch.io.prefetch.valid.poke(false)
      fetch.io.line.ready.poke(true)
      fetch.io.request.valid.poke(false)
      fetch.io.request.bits.slot.poke(0)
      def cycle(): Unit = {
        fetch.clock.step()
        memory.tick()
      }
      for (round <- 0 until epochRounds) {
        for (row <- epochRows(round)) {
          memory.lines(Config.heap + row) = BigInt(round)
          fetch.io.request.valid.poke(true)
          fetch.io.request.bits.line.poke(Config.heap + row)
          var found: Option[BigInt] = None
          var left                  = 500
          while (found.isEmpty) {
            memory.serve(fetch.io.read)
            if (fires(fetch.io.line)) found = Some(fetch.io.line.bits.data.peek().litValue)
            val taken = fires(fetch.io.request)
            cycle()
            if (taken) fetch.io.request.valid.poke(false)
            left -= 1
            assert(left > 0, s"round $round: line $row does not come")
          }
          assert(found.contains(BigInt(round)), s"round $round: line $row is one of before")
        }
        while (!is(fetch.io.quiet)) {
          memory.serve(fetch.io.read)
          cycle()
        }
        fetch.io.invalidate.poke(true)
        cycle()
        fetch.io.invalidate.poke(false)
      }
    }
  }
}
