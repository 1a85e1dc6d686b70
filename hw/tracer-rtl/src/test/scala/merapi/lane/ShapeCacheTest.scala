// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.{BlockTest, Config}
import merapi.common.{Contract, ReadPort, TraceConfig, TracerParameters}

import scala.collection.mutable
import scala.util.Random

/** Cache, what waits and the walker as they stand in a core with two lanes; the second lane's questions are the test's. */
class ShapeHarness(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val look       = Flipped(Valid(new ShapeMiss(p))) // slot and klass
    val done       = Valid(new ShapeMiss(p))          // a cycle later
    val found      = Output(Bool())
    val seen       = Output(Bool())                   // the klass's shape was found before: its report has left
    val size       = Output(UInt(ShapeLimits.bits.W))
    val again      = Decoupled(UInt(log2Ceil(p.slots).W))
    val invalidate = Input(Bool())
    val pausing    = Input(Bool())
    val other      = Flipped(Decoupled(UInt(64.W)))
    val quiet      = Output(Bool())
    val fault      = Output(Bool())
    val read       = new ReadPort(p)
  })
  private val cache  = Module(new ShapeCache(p))
  private val misses = Module(new ShapeMisses(p))
  private val walker = Module(new ShapeWalker(p))
  private val valid  = RegNext(io.look.valid, false.B)
  private val look   = RegNext(io.look.bits)
  cache.io.powerUp    := reset.asBool
  cache.io.next       := io.look.bits.klass
  cache.io.klass      := look.klass
  cache.io.accept     := valid && cache.io.hit
  cache.io.setSeen    := RegNext(cache.io.found)
  cache.io.forgetSeen := false.B
  cache.io.invalidate := io.invalidate
  cache.io.answer     := walker.io.lanes(0).answer
  private val miss = Wire(Valid(new ShapeMiss(p)))
  miss.valid        := RegNext(valid && !cache.io.hit, false.B)
  miss.bits         := RegNext(look)
  miss.bits.again   := RegNext(cache.io.torn)
  cache.io.miss     := miss
  misses.io.miss    := miss
  misses.io.guard   := cache.io.guard
  misses.io.pausing := io.pausing
  cache.io.gone.foreach { g =>
    g.valid := RegNext(cache.io.accept, false.B)
    g.bits  := RegNext(look.slot)
  }
  misses.io.answer.valid := walker.io.lanes(0).answer.valid
  misses.io.answer.bits  := walker.io.lanes(0).answer.bits.hash
  walker.io.config       := io.config
  walker.io.lanes(0).klass <> misses.io.ask
  walker.io.lanes(1).klass.valid      := io.other.valid
  walker.io.lanes(1).klass.bits.klass := io.other.bits
  walker.io.lanes(1).klass.bits.hash  := ShapeHash(io.other.bits)
  io.other.ready                      := walker.io.lanes(1).klass.ready
  io.done.valid                       := cache.io.accept
  io.done.bits                        := look
  io.found                            := cache.io.found
  io.seen                             := cache.io.seen
  io.size                             := cache.io.shape.size
  io.again <> misses.io.again
  io.quiet := walker.io.quiet && !misses.io.busy && !valid
  io.fault := walker.io.fault.valid
  io.read <> walker.io.read
}

/** Shapes for many slots with far more klasses than entries: every slot gets its own klass's shape, or none if there is
  * none, whatever others ask for; those that find theirs pass those that wait.
  */
class ShapeCacheTest extends BlockTest {
  private val two  = p.copy(lanes = 2)
  private val log2 = 6

  private def put(memory: Memory, klass: BigInt, size: Int): Unit = {
    import Contract.{ShapeLayout => L}
    val mask         = (BigInt(1) << 32) - 1
    val folded       = (klass ^ (klass >> 32)) & mask
    var slot         = ((folded * Contract.ShapeHashMultiplier) & mask).toInt >>> (32 - log2)
    def line(i: Int) = Config.shapes + (i & ((1 << log2) - 1))
    while (memory.word(line(slot), 0) != 0 && memory.word(line(slot), 0) != klass) slot += 1
    memory.setWord(line(slot), 0, klass)
    memory.setWord(line(slot), L.Kind / 8, Contract.ShapeKind.Instance)
    memory.setWord(line(slot), L.SizeWords / 8, BigInt(size))
  }

  test("every slot finds its shape") {
    simulate(new ShapeHarness(two)) { shapes =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        val memory = new Memory(random, 5, 60)
        configure(shapes.io.config, 64)
        shapes.io.config.shapesLog2.poke(log2)
        shapes.io.look.valid.poke(false)
        shapes.io.invalidate.poke(false)
        shapes.io.pausing.poke(false)
        shapes.io.other.valid.poke(false)
        shapes.io.again.ready.poke(false)
        shapes.reset.poke(true)
        shapes.clock.step(2)
        shapes.reset.poke(false)
        // Two in seven have no shape; half of them fall into one set, several share a hash.
        val klasses = (0 until 48).map(i => if (i < 24) BigInt(0x800 + 8 * i) else BigInt(0x800) + (BigInt(i) << 36))
        def has(klass: BigInt): Boolean = klasses.indexOf(klass) % 7 < 5
        val reported                    = mutable.Set.empty[BigInt]
        var version                     = 0
        def size(klass: BigInt): Int    = klasses.indexOf(klass) * 10 + 1 + version
        def fill(): Unit                = klasses.filter(has).foreach(k => put(memory, k, size(k)))
        fill()
        val wanted                         = mutable.Map.empty[Int, (BigInt, Int)] // slot: klass, since when
        val ready                          = mutable.Queue.empty[Int]              // slots to look, or to look again
        var served, passed, slowest, known = 0
        var pausing                        = false
        for (t <- 0 until 12000) {
          val stop = t % 4000 >= 3000 // then everything ends
          val free = (0 until two.slots).filterNot(wanted.contains)
          if (!stop && free.nonEmpty && random.nextInt(3) == 0) {
            val slot = free(random.nextInt(free.size))
            // Mostly what is in use now.
            val near = if (random.nextInt(4) != 0) t / 300 % 48 else random.nextInt(48)
            wanted(slot) = (klasses(near), t)
            ready.enqueue(slot)
          }
          val looks = ready.nonEmpty && random.nextInt(3) != 0
          shapes.io.look.valid.poke(looks)
          if (looks) {
            val slot = ready.dequeue()
            shapes.io.look.bits.slot.poke(slot)
            shapes.io.look.bits.klass.poke(wanted(slot)._1)
          }
          if (random.nextInt(4) == 0) {
            shapes.io.other.valid.poke(!stop && random.nextBoolean())
            shapes.io.other.bits.poke(klasses(random.nextInt(48)))
          }
          if (stop) shapes.io.other.valid.poke(false)
          pausing = !stop && random.nextInt(if (pausing) 30 else 300) < (if (pausing) 29 else 1)
          shapes.io.pausing.poke(pausing)
          val again = !pausing && random.nextInt(3) != 0
          shapes.io.again.ready.poke(again)
          if (again && shapes.io.again.valid.peek().litToBoolean) {
            ready.enqueue(shapes.io.again.bits.peek().litValue.toInt)
          }
          memory.serve(shapes.io.read)
          if (shapes.io.done.valid.peek().litToBoolean) {
            val slot           = shapes.io.done.bits.slot.peek().litValue.toInt
            val (klass, since) = wanted.remove(slot).getOrElse(fail(s"seed $seed: slot $slot was served twice"))
            val found          = shapes.io.found.peek().litToBoolean
            assert(found == has(klass), s"seed $seed: klass ${klass.toString(16)}, shape found: $found")
            if (found) {
              assert(shapes.io.size.peek().litValue == size(klass), s"seed $seed: another klass's shape, or an old one")
            }
            // A klass that is taken for reported without being so is never reported.
            val seen = found && shapes.io.seen.peek().litToBoolean
            assert(!seen || reported(klass), s"klass ${klass.toString(16)} was not found before")
            if (seen) known += 1
            if (found) reported += klass
            served += 1
            if (wanted.values.exists(_._2 < since)) passed += 1
            slowest = slowest.max(t - since)
          }
          assert(!shapes.io.fault.peek().litToBoolean)
          shapes.clock.step()
          memory.tick()
          if (t % 4000 == 3999) {
            assert(wanted.isEmpty, s"seed $seed: slots ${wanted.keys} were forgotten")
            assert(shapes.io.quiet.peek().litToBoolean, s"seed $seed: nothing waits, and it is not quiet")
            // Shapes change, and what was kept is dropped.
            version += 1
            reported.clear()
            fill()
            shapes.io.invalidate.poke(true)
            shapes.clock.step()
            shapes.io.invalidate.poke(false)
          }
        }
        assert(served > 600, s"seed $seed: $served")
        assert(known > 300, s"$known of $served were known as reported")
        assert(passed > 100, s"seed $seed: $passed of $served slots passed one that waited")
        assert(slowest < 1500, s"seed $seed: a slot waited for $slowest cycles")
      }
    }
  }

  private def start(shapes: ShapeHarness): Memory = {
    configure(shapes.io.config, 64)
    shapes.io.config.shapesLog2.poke(log2)
    shapes.io.look.valid.poke(false)
    shapes.io.invalidate.poke(false)
    shapes.io.pausing.poke(false)
    shapes.io.other.valid.poke(false)
    shapes.io.again.ready.poke(true)
    restart(shapes)
    new Memory(new Random(1), 2, 4)
  }

  /** One slot looks until it has an answer: the size of its shape, or that there is none. `before`: the klass word of its
    * first look.
    */
  private def look(
      shapes: ShapeHarness,
      memory: Memory,
      klass: BigInt,
      before: Option[BigInt] = None
  ): Option[BigInt] = {
    var out: Option[Option[BigInt]] = None
    var looks                       = true
    var word                        = before.getOrElse(klass)
    var left                        = 500
    while (out.isEmpty) {
      shapes.io.look.valid.poke(looks)
      shapes.io.look.bits.slot.poke(0)
      shapes.io.look.bits.klass.poke(word)
      memory.serve(shapes.io.read)
      if (is(shapes.io.done.valid)) {
        out = Some(if (is(shapes.io.found)) Some(shapes.io.size.peek().litValue) else None)
      }
      looks = fires(shapes.io.again)
      if (looks) word = klass
      shapes.clock.step()
      memory.tick()
      left -= 1
      assert(left > 0, s"klass ${klass.toString(16)} does not come")
    }
    shapes.io.look.valid.poke(false)
    out.get
  }

  test("a shape that the host publishes is found soon, and from then on") {
    simulate(new ShapeHarness(two)) { shapes =>
      // The absent klass has an entry still when its shape comes; or it was looked for once and not again.
      for (looks <- Seq(true, false)) {
        val memory = start(shapes)
        val klass  = BigInt(0x800)
        assert(look(shapes, memory, klass).isEmpty, "a shape that nobody published")
        put(memory, klass, 7)
        for (_ <- 0 until 20) {
          shapes.clock.step(if (looks) 211 else 421)
          if (looks) look(shapes, memory, klass)
        }
        for (t <- 0 until 40) {
          assert(look(shapes, memory, klass).contains(BigInt(7)), s"$t: klass that has a shape was found to have none")
          shapes.clock.step(211)
        }
      }
    }
  }

  test("a slot that guards its set for one klass word finds another") {
    simulate(new ShapeHarness(two)) { shapes =>
      val memory = start(shapes)
      val before = BigInt(0x800)
      val klass  = before + (BigInt(1) << 36) + (BigInt(1) << 48) // of the same set
      put(memory, before, 7)
      put(memory, klass, 9)
      assert(look(shapes, memory, klass, Some(before)).contains(BigInt(9)), "not the shape of the last look's klass")
    }
  }

  test("what a guard waits for stays until its slot has found it") {
    simulate(new ShapeCache(p)) { cache =>
      // All of one set, which has two ways.
      val klasses = (1 to 5).map(i => BigInt(8 | i << 9 | i << 18))
      val io      = cache.io
      for (b <- Seq(io.accept, io.setSeen, io.forgetSeen, io.invalidate, io.miss.valid, io.answer.valid)) b.poke(false)
      for (g <- io.gone) g.valid.poke(false)
      io.next.poke(0)
      io.klass.poke(0)
      io.powerUp.poke(true)
      restart(cache)
      io.powerUp.poke(false)
      cache.clock.step(2 * p.shapeSets)
      def answer(klass: BigInt): Unit = {
        io.answer.bits.klass.poke(klass)
        io.answer.bits.found.poke(true)
        io.answer.valid.poke(true)
        cache.clock.step()
        io.answer.valid.poke(false)
      }
      def hits(klass: BigInt): Boolean = {
        io.next.poke(klass)
        cache.clock.step()
        io.klass.poke(klass)
        is(io.hit)
      }
      def misses(slot: Int, klass: BigInt): Unit = {
        io.miss.bits.slot.poke(slot)
        io.miss.bits.klass.poke(klass)
        io.miss.valid.poke(true)
        cache.clock.step()
        io.miss.valid.poke(false)
        cache.clock.step()
      }
      assert(!hits(klasses(0)))
      misses(3, klasses(0))
      misses(5, klasses(1)) // comes too late to guard
      assert(is(io.guard.valid) && io.guard.bits.peek().litValue == 3)
      for (k <- klasses) answer(k)
      assert(hits(klasses(0)), "what the guard waits for was pushed out")
      for (g <- io.gone) {
        g.bits.poke(3)
        g.valid.poke(true)
      }
      cache.clock.step()
      for (g <- io.gone) g.valid.poke(false)
      assert(!is(io.guard.valid))
      for (k <- klasses) answer(k)
      assert(!hits(klasses(0)) && hits(klasses(4)), "a set that nobody guards keeps what came first")
    }
  }

  test("no shape is taken for one of an epoch before") {
    simulate(new ShapeHarness(two)) { shapes =>
      val memory = start(shapes)
      def cycle(): Unit = {
        shapes.clock.step()
        memory.tick()
      }
      for (round <- 0 until epochRounds) {
        for (row <- epochRows(round)) {
          val klass = BigInt(0x800 + 8 * row)
          val size  = 1 + round
          put(memory, klass, size)
          val found = look(shapes, memory, klass)
          assert(found.contains(BigInt(size)), s"round $round: klass $row has no shape, or one of before")
        }
        while (!is(shapes.io.quiet)) {
          memory.serve(shapes.io.read)
          cycle()
        }
        shapes.io.invalidate.poke(true)
        cycle()
        shapes.io.invalidate.poke(false)
      }
    }
  }
}
