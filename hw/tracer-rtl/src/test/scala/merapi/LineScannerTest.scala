// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._

import scala.collection.mutable
import scala.util.Random

/** Scanner, walk and array cutting as they stand in a lane behind the evaluator. */
class ScannerHarness(p: TracerParameters) extends Module {
  private val scanner = Module(new LineScanner(p))
  private val walk    = Module(new SpanWalk(p))
  private val share   = Module(new ArrayShare(p))
  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val job        = Flipped(chisel3.util.Decoupled(new WalkJob(p)))
    val data       = Input(UInt(p.lineBits.W))
    val references = chiselTypeOf(scanner.io.references)
    val out        = chiselTypeOf(share.io.out)
    val piece      = chiselTypeOf(share.io.piece)
    val end        = chiselTypeOf(walk.io.end)
    val prefetch   = chiselTypeOf(walk.io.prefetch)
    val quiet      = Output(Bool())
  })
  scanner.io.config := io.config
  walk.io.config    := io.config
  private val ours = io.job.bits.work.slots & Mux(io.config.wideOops, 0x5555.U, 0xffff.U)
  private val some = Mux(io.job.bits.bare, 0.U, ours & ScanJob.notNull(p, io.data, io.config.wideOops))
  scanner.io.in.valid     := io.job.valid && !io.job.bits.bare
  scanner.io.in.bits.obj  := io.job.bits.obj
  scanner.io.in.bits.data := io.data
  scanner.io.in.bits.left := some
  io.job.ready      := scanner.io.in.ready || io.job.bits.bare
  walk.io.in.valid  := io.job.fire
  walk.io.in.bits   := io.job.bits
  io.references <> scanner.io.references
  share.io.in  := walk.io.continue
  share.io.obj := walk.io.obj
  io.out       := share.io.out
  io.piece <> share.io.piece
  io.end      := walk.io.end
  io.prefetch := walk.io.prefetch
  io.quiet    := walk.io.quiet && !scanner.io.busy
}

/** Every reference of an object's spans leaves once, nulls do not, whatever the spans are and however an array is cut:
  * lines are followed from continuation to end, pieces as objects of their own.
  */
class LineScannerTest extends BlockTest {
  private case class Work(line: Int, slots: Int, spans: Seq[(Int, Int)], bare: Boolean)

  test("reads each reference of each span once") {
    simulate(new ScannerHarness(p)) { scan =>
      for (seed <- seeds(6)) {
        val random = new Random(seed)
        scan.reset.poke(true)
        scan.clock.step(2)
        scan.reset.poke(false)
        configure(scan.io.config, 64)
        val wide = random.nextBoolean()
        scan.io.config.wideOops.poke(wide)
        val size = 4000
        val heap = Array.fill(size)(if (random.nextInt(3) == 0) BigInt(0) else BigInt(random.nextInt(1 << 20) + 1))
        var pieces, objects = 0

        def run(first: Work): Seq[BigInt] = {
          val found = mutable.ArrayBuffer.empty[BigInt]
          val queue = mutable.Queue(first)
          while (queue.nonEmpty) {
            var work: Option[Work] = Some(queue.dequeue())
            while (work.isDefined) {
              val w = work.get
              scan.io.job.valid.poke(true)
              val job = scan.io.job.bits
              job.slot.poke(1)
              job.base.poke(0)
              job.obj.poke(99)
              job.line.poke(w.line)
              job.bare.poke(w.bare)
              var data = BigInt(0)
              for (i <- 15 to 0 by -1) data = (data << 32) | heap((w.line * 16 + i) % size)
              scan.io.data.poke(data)
              job.work.phase.poke(Phase.References)
              job.work.line.poke(w.line)
              job.work.slots.poke(w.slots)
              job.work.extensionLeft.poke(0)
              for (i <- 0 until 4) {
                job.work.spans(i).start.poke(w.spans(i)._1)
                job.work.spans(i).end.poke(w.spans(i)._2)
              }
              var taken, over = false
              work = None
              while (!(over && scan.io.quiet.peek().litToBoolean)) {
                scan.io.references.ready.poke(random.nextBoolean())
                scan.io.piece.ready.poke(random.nextInt(3) == 0)
                if (taken) scan.io.job.valid.poke(false)
                if (scan.io.job.ready.peek().litToBoolean) taken = true
                if (scan.io.references.valid.peek().litToBoolean && scan.io.references.ready.peek().litToBoolean) {
                  found += scan.io.references.bits.value.peek().litValue
                }
                def spansOf(w: SlotWork) =
                  (0 until 4).map(i => (w.spans(i).start.peek().litValue.toInt, w.spans(i).end.peek().litValue.toInt))
                if (scan.io.out.valid.peek().litToBoolean) {
                  val o = scan.io.out.bits.work
                  assert(!over, s"seed $seed: an object goes on twice")
                  work = Some(Work(o.line.peek().litValue.toInt, o.slots.peek().litValue.toInt, spansOf(o), bare = false))
                  over = true
                  if (scan.io.piece.valid.peek().litToBoolean && scan.io.piece.ready.peek().litToBoolean) {
                    val q = scan.io.piece.bits.work
                    queue += Work(q.line.peek().litValue.toInt, q.slots.peek().litValue.toInt, spansOf(q), bare = false)
                    assert(scan.io.piece.bits.obj.peek().litValue == 99)
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
          val step = if (wide) 2 else 1
          // Blocks ascend and do not overlap; unused ones are empty.
          var at    = 32 + step * random.nextInt(40)
          val start = at
          val long  = random.nextInt(3) == 0
          val spans = (0 until 4).map { i =>
            val short = if (random.nextInt(4) == 0) 0 else random.nextInt(12)
            val count = if (!long) short else if (i == 0) random.nextInt(700) else 0
            val s     = (at, at + step * count)
            at += step * (count + random.nextInt(20))
            s
          }
          val want = spans.flatMap { case (s, e) =>
            (s until e by step).map(i => heap(i) + (if (wide) heap(i + 1) << 32 else BigInt(0)))
          }.filter(_ != 0)
          // The header's line holds the first references, or is of no use.
          val bare = random.nextBoolean()
          val line = if (bare) 0 else (start - 3) / 16
          // What the evaluator finds in the header's line.
          val slots = (0 until 16).filter(i => spans.exists { case (s, e) => line * 16 + i >= s && line * 16 + i < e })
          val have  = run(Work(line, slots.map(1 << _).sum, spans, bare))
          assert(have.sorted == want.sorted, s"seed $seed: spans $spans")
          objects += 1
        }
        assert(pieces > 0, s"seed $seed: no array was cut")
      }
    }
  }
}
