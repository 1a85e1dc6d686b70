// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._

import merapi.BlockTest
import merapi.common.{TraceConfig, TracerParameters}

import scala.collection.mutable
import scala.util.Random

/** Scanner and walk as they stand in a lane behind the evaluator. */
class ScannerHarness(p: TracerParameters) extends Module {
  private val scanner = Module(new LineScanner(p))
  private val walk    = Module(new SpanWalk(p))
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val job        = Flipped(chisel3.util.Decoupled(new WalkJob(p)))
    val slots      = Input(UInt(ScanJob.slots(p).W))
    val data       = Input(UInt(p.lineBits.W))
    val references = chiselTypeOf(scanner.io.references)
    val next       = chiselTypeOf(walk.io.next)
    val piece      = chiselTypeOf(walk.io.piece)
    val end        = chiselTypeOf(walk.io.end)
    val prefetch   = chiselTypeOf(walk.io.prefetch)
    val bad        = Output(Bool())
    val quiet      = Output(Bool())
  })
  scanner.io.config := io.config
  walk.io.config    := io.config
  private val ours = io.slots & Mux(io.config.wideOops, 0x5555.U, 0xffff.U)
  private val some = Mux(io.job.bits.bare, 0.U, ours & ScanJob.notNull(p, io.data, io.config.wideOops))
  scanner.io.in.valid     := io.job.valid && !io.job.bits.bare && walk.io.in.ready
  scanner.io.in.bits.obj  := io.job.bits.obj
  scanner.io.in.bits.data := io.data
  scanner.io.in.bits.left := some
  private val open = scanner.io.in.ready || io.job.bits.bare
  io.job.ready     := open && walk.io.in.ready
  walk.io.in.valid := io.job.valid && open
  walk.io.in.bits  := io.job.bits
  io.references <> scanner.io.references
  io.next := walk.io.next
  io.piece <> walk.io.piece
  io.end      := walk.io.end
  io.prefetch := walk.io.prefetch
  io.bad      := walk.io.bad
  io.quiet    := walk.io.quiet && !scanner.io.busy
}

/** Every reference of an object's blocks leaves once, nulls do not, whatever the blocks are and however an array is cut:
  * lines are followed from one to the next and to the end, pieces as objects of their own. Instances are not cut. Blocks come from a shape, or
  * from its extension, where what cannot be right is told.
  */
class LineScannerTest extends BlockTest {
  private val obj = 11

  /** A line to be read of the object in `slot`: with new spans, or those of the line before. */
  private case class Work(
      slot: Int,
      line: Int,
      slots: Int,
      spans: Option[Seq[(Int, Int)]],
      bare: Boolean,
      placed: Boolean
  )

  for (ports <- Seq(1, 2)) test(s"reads each reference of each block once, by $ports ports") {
    simulate(new ScannerHarness(p.copy(scanPorts = ports))) { scan =>
      val portOf = mutable.Map.empty[BigInt, Int]
      for (seed <- seeds(6)) {
        val random = new Random(seed)
        scan.reset.poke(true)
        scan.clock.step(2)
        scan.reset.poke(false)
        configure(scan.io.config, 64)
        val wide = random.nextBoolean()
        scan.io.config.wideOops.poke(wide)
        val step = if (wide) 2 else 1
        val size = 4000
        val heap = Array.fill(size)(if (random.nextInt(3) == 0) BigInt(0) else BigInt(random.nextInt(1 << 20) + 1))
        var pieces, longs, extended = 0

        /** All references of an object whose blocks come in groups of four at most; the first group with `line`. */
        def run(groups: Seq[Seq[(Int, Int)]], raw: Boolean, array: Boolean, line: Int, slots: Int, bare: Boolean)
            : Seq[BigInt] = {
          val found = mutable.ArrayBuffer.empty[BigInt]
          val queue = mutable.Queue((Work(1, line, slots, Some(groups.head), bare, placed = false), groups.tail))
          while (queue.nonEmpty) {
            var (now, later)       = queue.dequeue()
            var work: Option[Work] = Some(now)
            while (work.isDefined) {
              val w        = work.get
              val job      = scan.io.job.bits
              val instance = !array && !w.placed
              scan.io.job.valid.poke(true)
              job.slot.poke(w.slot)
              job.obj.poke(obj)
              job.line.poke(w.line)
              job.bare.poke(w.bare)
              job.stored.poke(w.spans.isEmpty)
              job.placed.poke(w.placed)
              job.raw.poke(raw && w.spans.isDefined)
              job.count.poke(w.spans.map(_.size).getOrElse(0))
              job.more.poke(later.nonEmpty)
              // Kept with the spans.
              job.again.poke(w.spans.isDefined == instance)
              job.size.poke(size)
              val base = if (w.placed) 0 else 2 * obj
              for ((span, i) <- w.spans.getOrElse(Nil).zipWithIndex) {
                val (start, end) = (span._1 - base, span._2 - base)
                job.blocks(i).start.poke(if (raw) 4 * start else start)
                job.blocks(i).end.poke(if (raw) (end - start) / step else end)
                if (i == 0) {
                  job.first.start.poke(start)
                  job.first.end.poke(end)
                }
              }
              var data = BigInt(0)
              for (i <- 15 to 0 by -1) data = (data << 32) | heap((w.line * 16 + i) % size)
              scan.io.data.poke(data)
              scan.io.slots.poke(w.slots)
              var taken, over = false
              work = None
              while (!(over && scan.io.quiet.peek().litToBoolean)) {
                scan.io.references.foreach(_.ready.poke(random.nextBoolean()))
                scan.io.piece.ready.poke(random.nextInt(3) == 0)
                if (taken) scan.io.job.valid.poke(false)
                if (scan.io.job.ready.peek().litToBoolean) taken = true
                for ((port, i) <- scan.io.references.zipWithIndex) {
                  if (port.valid.peek().litToBoolean && port.ready.peek().litToBoolean) {
                    val value = port.bits.value.peek().litValue
                    assert(portOf.getOrElseUpdate(value, i) == i, s"seed $seed: $value left by two ports")
                    found += value
                  }
                }
                assert(!scan.io.bad.peek().litToBoolean, s"seed $seed: a good block is bad")
                if (scan.io.next.valid.peek().litToBoolean) {
                  val o = scan.io.next.bits
                  assert(!over, s"seed $seed: an object goes on twice")
                  over = true
                  assert(o.again.peek().litToBoolean == instance, s"seed $seed: from the beginning")
                  if (o.extend.peek().litToBoolean) {
                    assert(later.nonEmpty, s"seed $seed: further blocks where there are none")
                    work = Some(Work(w.slot, 0, 0, Some(later.head), bare = true, placed = false))
                    later = later.tail
                    extended += 1
                  } else {
                    if (o.long.peek().litToBoolean) longs += 1
                    work = Some(
                      w.copy(
                        line = o.line.peek().litValue.toInt,
                        slots = o.slots.peek().litValue.toInt,
                        spans = None,
                        bare = false
                      )
                    )
                  }
                  val cut = scan.io.piece.valid.peek().litToBoolean
                  assert(!cut || !instance, s"seed $seed: an instance is cut")
                  if (cut && scan.io.piece.ready.peek().litToBoolean) {
                    val q = scan.io.piece.bits
                    val s = (q.span.start.peek().litValue.toInt, q.span.end.peek().litValue.toInt)
                    // To a slot of its own.
                    queue += ((Work(2 + pieces % 6, 0, 0, Some(Seq(s)), bare = true, placed = true), Nil))
                    assert(q.obj.peek().litValue == obj)
                    pieces += 1
                  }
                }
                if (scan.io.end.valid.peek().litToBoolean) over = true
                scan.clock.step()
              }
            }
          }
          found.toSeq
        }

        for (_ <- 0 until 40) {
          // Blocks ascend and do not overlap; some are empty.
          var at    = 32 + step * random.nextInt(40)
          val start = at
          val long  = random.nextInt(3) == 0
          val array = long && random.nextInt(3) != 0
          val raw   = !long && random.nextInt(3) == 0
          val all   = if (long) 1 else if (raw) 5 + random.nextInt(6) else 1 + random.nextInt(4)
          val spans = (0 until all).map { _ =>
            val count = if (long) random.nextInt(700) else if (random.nextInt(4) == 0) 0 else random.nextInt(12)
            val s     = (at, at + step * count)
            at += step * (count + random.nextInt(20))
            s
          }
          val want = spans
            .flatMap { case (s, e) =>
              (s until e by step).map(i => heap(i) + (if (wide) heap(i + 1) << 32 else BigInt(0)))
            }
            .filter(_ != 0)
          // The header's line holds the first references, or is of no use.
          val bare = raw || random.nextBoolean()
          val line = if (bare) 0 else (start - 3) / 16
          // What the evaluator finds in the header's line.
          val slots = (0 until 16).filter(i => spans.exists { case (s, e) => line * 16 + i >= s && line * 16 + i < e })
          val have  = run(spans.grouped(4).toSeq, raw, array, line, slots.map(1 << _).sum, bare)
          assert(have.sorted == want.sorted, s"seed $seed: blocks $spans")
        }
        assert(pieces > 0 && longs > 0, s"seed $seed: no array was cut")
        assert(extended > 0, s"seed $seed: no object with further blocks")
        assert(portOf.values.toSet.size == ports, s"seed $seed: a port had nothing to send")

        // Blocks that cannot be right: crooked, in the header, beyond the object's end by one reference.
        val unit = 4 * step
        val near = 8 * size - 3 * unit
        for (
          (offset, count, good) <-
            Seq((18, 1, false), (8, 1, false), (40, 3, true), (near, 3, true), (near, 4, false))
        ) {
          val job = scan.io.job.bits
          scan.io.job.valid.poke(true)
          job.raw.poke(true)
          job.stored.poke(false)
          job.bare.poke(true)
          job.count.poke(1)
          job.more.poke(false)
          job.blocks(0).start.poke(offset)
          job.blocks(0).end.poke(count)
          scan.io.piece.ready.poke(false)
          scan.clock.step()
          scan.io.job.valid.poke(false)
          var bad = false
          for (_ <- 0 until 8) {
            if (scan.io.bad.peek().litToBoolean) bad = true
            scan.clock.step()
          }
          assert(bad != good, s"seed $seed: a block of $count at $offset of an object of $size words")
        }
      }
    }
  }

  for (ports <- Seq(1, 2))
    test(s"lines that stand before it wait until the one before them has left, by $ports ports") {
      simulate(new LineScanner(p.copy(scanPorts = ports))) { scan =>
        for (seed <- seeds(6)) {
          val random = new Random(seed)
          restart(scan)
          configure(scan.io.config, 64)
          scan.io.config.wideOops.poke(false)
          // Values by their port: those that have an odd number of ones below bit 10 leave by the second.
          def portOf(value: Int): Int = if (ports == 1) 0 else Integer.bitCount(value & 0x3ff) % 2
          val lines = Seq.fill(200)(Seq.fill(16)(1 + random.nextInt(1 << 20)) -> random.nextInt(1 << 16))
          val want  = Seq.fill(ports)(mutable.Queue.empty[(Int, Int)])
          for (((words, left), number) <- lines.zipWithIndex; i <- 0 until 16 if (left >> i & 1) == 1)
            want(portOf(words(i))) += number -> words(i)
          var next, cycles = 0
          var offered      = false
          while (want.exists(_.nonEmpty) && cycles < 20000) {
            offered = next < lines.size && (offered || random.nextInt(4) != 0)
            scan.io.in.valid.poke(offered)
            if (offered) {
              val (words, left) = lines(next)
              scan.io.in.bits.obj.poke(next)
              scan.io.in.bits.data.poke(words.zipWithIndex.map { case (w, i) => BigInt(w) << (32 * i) }.sum)
              scan.io.in.bits.left.poke(left)
            }
            scan.io.references.foreach(_.ready.poke(random.nextInt(4) != 0))
            for ((port, i) <- scan.io.references.zipWithIndex if fires(port)) {
              val found = port.bits.source.peek().litValue.toInt -> port.bits.value.peek().litValue.toInt
              assert(want(i).nonEmpty && want(i).dequeue() == found, s"seed $seed: port $i sends $found")
            }
            if (offered && scan.io.in.ready.peek().litToBoolean) {
              next += 1
              offered = false
            }
            scan.clock.step()
            cycles += 1
          }
          assert(next == lines.size && want.forall(_.isEmpty), s"seed $seed: references are missing")
          assert(!scan.io.busy.peek().litToBoolean, s"seed $seed: busy with nothing")
        }
      }
    }
}
