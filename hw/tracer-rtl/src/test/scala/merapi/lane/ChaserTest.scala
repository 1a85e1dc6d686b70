// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._

import merapi.{BlockTest, Config}
import merapi.common.{ReadPort, TraceConfig, TracerParameters}
import merapi.mark.LimitLoader

import scala.collection.mutable
import scala.util.Random

/** A chaser with the loader of its limits. */
class ChaserHarness(p: TracerParameters) extends Module {
  private val chaser = Module(new Chaser(p))
  private val limits = Module(new LimitLoader(p, 1))
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val looked     = Input(chiselTypeOf(chaser.io.looked))
    val starved    = Input(Bool())
    val crowded    = Input(Bool())
    val hold       = Input(Bool())
    val invalidate = Input(Bool())
    val dropShapes = Input(Bool())
    val references = chiselTypeOf(chaser.io.references)
    val read       = new ReadPort(p)
    val limitRead  = new ReadPort(p)
    val sweeping   = Output(Bool())
    val quiet      = Output(Bool())
  })
  chaser.io.config     := io.config
  chaser.io.looked     := io.looked
  chaser.io.starved    := io.starved
  chaser.io.crowded    := io.crowded
  chaser.io.hold       := io.hold
  chaser.io.invalidate := io.invalidate
  chaser.io.dropShapes := io.dropShapes
  chaser.io.fill       := limits.io.fill
  io.references <> chaser.io.references
  io.read <> chaser.io.read
  limits.io.ask(0) <> chaser.io.ask
  limits.io.config     := io.config
  limits.io.powerUp    := reset.asBool
  limits.io.invalidate := io.invalidate
  limits.io.draining   := false.B
  io.limitRead <> limits.io.read
  io.sweeping := limits.io.fill.sweeping
  io.quiet    := chaser.io.quiet && limits.io.quiet
}

/** What is offered are links of elements that a lane could reach along the chain, each below its limit, in order; and it
  * comes to an end whatever the heap holds.
  */
class ChaserTest extends BlockTest {
  private val regions = 16
  private val klass   = 0x4321
  private val other   = 0x1111
  private val words   = regions * 8192

  private def begin(chaser: ChaserHarness): Unit = {
    restart(chaser)
    configure(chaser.io.config, regions)
    Seq(chaser.io.invalidate, chaser.io.dropShapes, chaser.io.hold, chaser.io.crowded).foreach(_.poke(false))
    chaser.io.looked.foreach(_.valid.poke(false))
    chaser.io.starved.poke(true)
  }

  /** Elements of three words, linked at `unit` of four bytes, in the heap of a memory: in order and `apart` words from each
    * other, or anyhow.
    */
  private class Chain(
      memory: BlockTest#Memory,
      random: Random,
      val unit: Int,
      length: Int,
      ring: Boolean,
      apart: Option[Int] = None
  ) {
    val places: Array[Int] = {
      val start = 16 + random.nextInt(4096)
      if (apart.nonEmpty) Array.tabulate(length)(i => start + apart.get.abs * (if (apart.get < 0) length - i else i))
      else if (random.nextBoolean()) Array.tabulate(length)(i => start + 3 * i)
      else if (random.nextBoolean()) Array.tabulate(length)(i => start + 3 * (length - i))
      else random.shuffle((0 until words / 4 - 1).toVector).take(length).map(_ * 4 + 1).toArray
    }
    def setUnit(obj: Int, unit: Int, value: BigInt): Unit = {
      val at                 = 2 * obj + unit
      val (line, word, half) = (Config.heap + at / 16, at / 2 % 8, at % 2)
      val mask               = ((BigInt(1) << 32) - 1) << (32 * half)
      val all                = (BigInt(1) << 64) - 1
      memory.setWord(line, word, (memory.word(line, word) & (all ^ mask)) | (value << (32 * half)))
    }
    def reference(obj: Int): BigInt = (Config.heapBase + BigInt(obj) * 8) >> 3
    for ((obj, i) <- places.zipWithIndex) {
      setUnit(obj, 2, klass)
      for (u <- 3 until 6)
        setUnit(obj, u, if (u == unit) BigInt(0) else reference(places(2 + random.nextInt(length - 2))))
      if (i + 1 < length) setUnit(obj, unit, reference(places(i + 1)))
      else if (ring) setUnit(obj, unit, reference(places(0)))
    }
  }

  test("runs along a chain, and no further") {
    simulate(new ChaserHarness(p)) { chaser =>
      for (seed <- seeds(24)) {
        val random = new Random(seed)
        val memory = new Memory(random)
        begin(chaser)
        val length = 40
        val chain  = new Chain(memory, random, 3 + random.nextInt(3), length, ring = seed % 4 == 0)
        // What ends it, somewhere on the way: another klass, a limit, or nothing.
        val breaks = 6 + random.nextInt(30)
        val limit  = Array.tabulate(regions)(r => (r + 1) * 65536)
        seed % 3 match {
          case 0 => chain.setUnit(chain.places(breaks), 2, other)
          case 1 => limit(chain.places(breaks) / 8192) = chain.places(breaks) * 8
          case _ =>
        }
        for (r <- 0 until regions) memory.setWord(Config.limits + r / 8, r % 8, limit(r))
        def isElement(i: Int) =
          !(seed % 3 == 0 && i == breaks) && chain.places(i) * 8 < limit(chain.places(i) / 8192)
        // Links of the elements that a lane has not looked at, up to the first that is none.
        val good = (2 until length).takeWhile(isElement).toSet

        val offered = mutable.ArrayBuffer.empty[BigInt]
        def cycle(): Unit = {
          memory.serve(chaser.io.read)
          memory.serve(chaser.io.limitRead)
          chaser.io.references.ready.poke(random.nextInt(4) != 0)
          if (fires(chaser.io.references)) {
            val bits = chaser.io.references.bits
            assert(is(bits.uncounted) && !is(bits.host))
            val holder = chain.places.indexOf(bits.source.peek().litValue.toInt)
            assert(good(holder), s"the link of element $holder, which is none or beyond the end ($breaks)")
            val to = if (holder + 1 < length) chain.places(holder + 1) else chain.places(0)
            assert(bits.value.peek().litValue == chain.reference(to), s"of element $holder")
            offered += holder
          }
          chaser.clock.step()
          memory.tick()
        }
        def look(i: Int): Unit = {
          chaser.io.looked(0).valid.poke(true)
          chaser.io.looked(0).bits.obj.poke(chain.places(i))
          chaser.io.looked(0).bits.klass.poke(klass)
          chaser.io.looked(0).bits.near.poke(0x38)
          cycle()
          chaser.io.looked(0).valid.poke(false)
        }
        def rest(): Unit = {
          var left = 4000
          while (!is(chaser.io.quiet) && left > 0) { cycle(); left -= 1 }
          assert(left > 0, "it does not end")
        }
        while (is(chaser.io.sweeping)) cycle()
        // Enough credits for any chain; then two neighbours, from which it learns.
        chaser.io.starved.poke(false)
        for (_ <- 0 until length) look(random.nextInt(length))
        rest()
        chaser.io.starved.poke(true)
        look(0)
        rest() // it may have looked for a link from the element before
        look(1)
        if (seed % 5 == 0) {
          for (_ <- 0 until random.nextInt(150)) cycle()
          chaser.io.hold.poke(true)
          rest()
          val before = offered.size
          for (_ <- 0 until 100) cycle()
          assert(offered.size == before, "it goes on while it is held")
          chaser.io.invalidate.poke(true)
          cycle()
          chaser.io.invalidate.poke(false)
          chaser.io.hold.poke(false)
          while (is(chaser.io.sweeping)) cycle()
        } else {
          rest()
          // As far as credits go, or to its end.
          val most = (2 * p.slots).min(good.size)
          assert(offered.size >= most - 2, s"${offered.size} of $most links, unit ${chain.unit}")
          assert(offered.toSet.size == offered.size || seed                  % 4 == 0, "a link twice")
          assert(offered.map(_.toInt) == offered.map(_.toInt).sorted || seed % 4 == 0, "out of order")
        }
      }
    }
  }

  test("goes on as long as lanes look at what it offers, several at a time") {
    val two = p.copy(lanes = 2)
    simulate(new ChaserHarness(two)) { chaser =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random)
        begin(chaser)
        chaser.io.references.ready.poke(true)
        val length = 400
        val chain  = new Chain(memory, random, 4, length, ring = false)
        for (r <- 0 until regions) memory.setWord(Config.limits + r / 8, r % 8, BigInt(r + 1) * 65536)
        val waiting = mutable.Queue.empty[Int]
        var offered = 0
        def cycle(): Unit = {
          memory.serve(chaser.io.read)
          memory.serve(chaser.io.limitRead)
          if (fires(chaser.io.references)) {
            waiting += chain.places.indexOf(chaser.io.references.bits.source.peek().litValue.toInt) + 1
            offered += 1
          }
          chaser.clock.step()
          memory.tick()
          chaser.io.looked.foreach(_.valid.poke(false))
        }
        def look(lane: Int, i: Int): Unit = {
          chaser.io.looked(lane).valid.poke(true)
          chaser.io.looked(lane).bits.obj.poke(chain.places(i))
          chaser.io.looked(lane).bits.klass.poke(klass)
          chaser.io.looked(lane).bits.near.poke(0x38)
        }
        while (is(chaser.io.sweeping)) cycle()
        for (i <- 0 until 2) {
          look(0, i)
          cycle()
          for (_ <- 0 until 200) cycle()
        }
        // Both lanes in one cycle, each at one of what was offered.
        var idle = 0
        while (idle < 1000) {
          if (waiting.size >= 2) for (lane <- 0 until 2) look(lane, waiting.dequeue())
          val before = offered
          cycle()
          idle = if (offered == before) idle + 1 else 0
        }
        assert(offered >= length - 4, s"$offered of $length links: it ended on the way")
      }
    }
  }

  test("takes two cycles an element whose line is asked for ahead") {
    val many = p.copy(chaseLines = 16)
    simulate(new ChaserHarness(many)) { chaser =>
      // Three in a line; one in a line; in every other, now and then or always.
      for (apart <- Seq(3, -3, 8, -8, 9, -9, 12, -12, 16, -16)) {
        val random = new Random(apart)
        val memory = new Memory(random, 4, 6)
        begin(chaser)
        chaser.io.references.ready.poke(true)
        val length = 300
        val chain  = new Chain(memory, random, 4, length, ring = false, Some(apart))
        for (r <- 0 until regions) memory.setWord(Config.limits + r / 8, r % 8, BigInt(r + 1) * 65536)
        val offered = mutable.ArrayBuffer.empty[Int] // cycles
        var now     = 0
        def cycle(): Unit = {
          memory.serve(chaser.io.read)
          memory.serve(chaser.io.limitRead)
          if (fires(chaser.io.references)) {
            assert(chain.places(offered.size + 2) == chaser.io.references.bits.source.peek().litValue.toInt)
            offered += now
          }
          chaser.clock.step()
          memory.tick()
          now += 1
        }
        while (is(chaser.io.sweeping)) cycle()
        val looked = chaser.io.looked(0)
        looked.bits.near.poke(0x38)
        for (i <- 0 until 2) {
          looked.valid.poke(true)
          looked.bits.obj.poke(chain.places(i))
          looked.bits.klass.poke(klass)
          cycle()
          looked.valid.poke(false)
          if (i == 0) for (_ <- 0 until 200) cycle() // it may have looked for a link from the element before
        }
        // Credits in every cycle, and nothing that could lead on.
        looked.bits.klass.poke(other)
        looked.valid.poke(true)
        val links = length - 3 // the last has none, and of the first two lanes send them
        while (offered.size < links && now < 20 * length) cycle()
        looked.valid.poke(false)
        assert(offered.length == links, s"$apart words apart: ${offered.length} of $links links")
        val took = (offered.last - offered(50)).toDouble / (links - 51)
        // It asks in every other cycle at most, and the memory takes that in three of four.
        assert(took < (2.5 * apart.abs / 8).max(2.05), s"$apart words apart: $took cycles an element")
      }
    }
  }
}
