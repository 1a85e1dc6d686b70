// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._

import merapi.BlockTest
import merapi.common.Contract

import scala.collection.mutable
import scala.util.Random

/** Objects of every kind at every place of a line, as their lines come: words are counted once, klasses and deferred
  * objects are told, and where it goes from here is what the contract's sizes and blocks say, byte by byte; whatever is
  * ready when, and whatever has left when a pause comes. From one pause to the next one object or line of references gets on, if any comes.
  */
class ObjectEvaluatorTest extends BlockTest {
  import Contract.{ShapeKind => K}
  private val half = (BigInt(1) << 32) - 1

  /** A line in hand and what must follow from it. */
  private case class Job(
      slot: Int,
      phase: Int, // 0: klass word's line, 1: a word that sizes it, 2: references, 3: blocks of the extension
      obj: BigInt,
      count: Boolean,
      klass: BigInt,
      raw: Option[RawShape],
      report: Boolean,
      extra: BigInt,
      known: Boolean,
      data: BigInt,
      slots: Int,    // 2
      line: BigInt,  // 2
      position: Int, // 3
      left: Int,     // 3
      words: Int     // 3
  )

  test("sizes, counts, tells and scans") {
    simulate(new ObjectEvaluator(p)) { evaluate =>
      for (seed <- seeds(4)) {
        val random    = new Random(seed)
        val oop       = if (random.nextBoolean()) 8 else 4
        val fields    = if (random.nextBoolean()) 16 else 12
        val alignment = 3 + random.nextInt(4)
        val regions   = 1 << 14
        val heapBytes = BigInt(regions) << 16
        val mirrorAt  = fields - fields % 8 + 8 + 4 * random.nextInt(4)
        configure(evaluate.io.config, regions)
        evaluate.io.config.wideOops.poke(oop == 8)
        evaluate.io.config.wideKlass.poke(fields == 16)
        evaluate.io.config.alignmentLog2.poke(alignment)
        evaluate.io.config.mirrorOffset.poke(mirrorAt)
        evaluate.io.hold.poke(false)
        evaluate.io.pausing.poke(false)
        evaluate.io.resumed.poke(false)
        evaluate.io.in.valid.poke(false)
        evaluate.io.offered.poke(false)
        restart(evaluate)

        def size(j: Job): BigInt = j.raw match {
          case None => 0
          case Some(r) if r.isArray =>
            val bytes = r.header + (j.extra << r.element)
            (bytes + (1 << alignment) - 1 >> alignment << alignment) / 8
          case Some(r) if r.kind == K.Mirror => j.extra
          case Some(r)                       => r.size
        }
        def sizing(j: Job) = j.phase < 2
        def needs(j: Job)  = j.phase == 0 && j.raw.exists(r => (r.isArray && !j.known) || r.kind == K.Mirror)
        def sized(j: Job)  = sizing(j) && !needs(j)
        def lineOf(j: Job) = if (sizing(j)) (j.obj * 8 + 8) / 64 else j.line
        def hasRefs(j: Job) =
          j.raw.exists(r => (r.kind == K.Instance && r.blockCount > 0) || (r.kind == K.ObjArray && j.extra > 0))
        def extended(j: Job) = j.raw.exists(r => r.kind == K.Instance && r.blockCount > 4)
        def defers(j: Job)   = j.raw.forall(r => r.kind >= K.Reference)
        def blocks(j: Job) = j.raw.get match {
          case r if r.kind == K.ObjArray => Seq((r.header, j.extra.toLong))
          case r                         => r.inline
        }
        // Slots of the line in which a reference of the object begins.
        def slots(j: Job): Int =
          if (j.phase == 2) j.slots & (if (oop == 8) 0x5555 else 0xffff)
          else {
            (0 until 16)
              .filter { s =>
                val at = lineOf(j) * 64 + 4 * s - j.obj * 8
                blocks(j).exists { case (o, n) => at >= o && at < o + n * oop && (at - o) % oop == 0 }
              }
              .map(1 << _)
              .sum
          }
        def notNull(data: BigInt): Int =
          (0 until 16)
            .filter { s =>
              ((data >> (32 * s)) & half) != 0 || (oop == 8 && s % 2 == 0 && ((data >> (32 * s + 32)) & half) != 0)
            }
            .map(1 << _)
            .sum
        // Nothing but its words is to be told, and nothing is in another line.
        def settled(j: Job) = j.phase == 0 && !j.report && j.raw.exists { r =>
          (r.kind == K.Instance && !extended(j) && isAll(j)) || (r.kind == K.PrimArray && j.known)
        }
        // Nothing behind this line.
        def isAll(j: Job) = j.phase == 0 && j.raw.get.kind != K.ObjArray &&
          !blocks(j).exists { case (o, n) => j.obj * 8 + o + n * oop > (lineOf(j) + 1) * 64 }
        def bad(j: Job) = sizing(j) && j.raw.exists { r =>
          if (needs(j)) j.obj * 8 + (if (r.kind == K.Mirror) mirrorAt else 16) + 4 > heapBytes
          else (r.isArray && j.extra >> 31 != 0) || size(j) == 0 || j.obj * 8 + size(j) * 8 > heapBytes
        } || sizing(j) && j.raw.isEmpty && j.klass == 0

        def make(): Job = {
          val raw = Iterator
            .continually(RawShape.random(random, oop, fields, 256))
            .find(r => r.good(oop, fields, mirrorAt, 256) && !r.large)
            .get
          val some = if (random.nextInt(8) == 0) None else Some(raw)
          val phase = random.nextInt(8) match {
            case 0 if raw.isArray || raw.kind == K.Mirror => 1; case 1 => 2; case 2 => 3; case _ => 0
          }
          val near = random.nextInt(40) == 0 // the heap's end
          val obj =
            if (near) heapBytes / 8 - ((1 + random.nextInt(8)) << (alignment - 3))
            else BigInt(37 - 8, random) % (heapBytes / 8) >> (alignment - 3) << (alignment - 3)
          val data =
            (0 until 16).map(i => (if (random.nextInt(3) == 0) BigInt(0) else BigInt(32, random)) << (32 * i)).sum
          val extra = random.nextInt(5) match {
            case 0 => BigInt(0); case 1 if random.nextInt(12) == 0 => BigInt(32, random);
            case 2 => BigInt(random.nextInt(2000)); case _         => BigInt(random.nextInt(20))
          }
          Job(
            random.nextInt(p.slots),
            phase,
            obj,
            random.nextBoolean(),
            if (some.isEmpty && phase == 0 && random.nextInt(8) == 0) 0 else BigInt(40, random),
            if (phase == 1) Some(raw) else some,
            some.isDefined && random.nextBoolean(),
            extra,
            phase == 1 || random.nextInt(6) != 0,
            data,
            random.nextInt(1 << 16),
            BigInt(30, random),
            random.nextInt(1 << 20),
            1 + random.nextInt(9),
            2 + random.nextInt(100)
          )
        }
        // Slots of jobs that are inside differ: what they have beside their line is asked for by slot.
        val inside             = mutable.Queue.empty[Job]
        var offered, came      = Option.empty[Job]
        var live, seen, sent   = false
        var gotOn              = false // since the last pause
        var returned, trusting = 0
        // Looked their shape up before it was forgotten that their klass was reported.
        val doubted                    = mutable.Set.empty[Job]
        var forgotten                  = 2 // cycles since
        var scans, walks, ends, onward = 0
        var back, read, nulls, freed   = 0
        var putBack                    = 0
        var wantRead, wantNull         = 0
        val badOnes, badTold           = mutable.Set.empty[BigInt]
        var jobs                       = 0
        for (t <- 0 until 2500) {
          val stop = t > 2400
          if (offered.isEmpty && !stop && random.nextInt(4) != 0) {
            offered = Some(make()).filterNot(j => inside.exists(_.slot == j.slot))
            for (j <- offered) poke(evaluate.io.in.bits, j, oop, notNull(j.data))
          }
          // Held, a lane takes up nothing new; what it asked for comes.
          val held    = t               % 100 > 70
          val pausing = held && t / 100 % 3 != 0
          evaluate.io.hold.poke(held)
          evaluate.io.pausing.poke(pausing)
          // As soon as something got on, or when there was little time for that.
          val resumed = t % 100 == 0 || t % 100 == 65
          evaluate.io.resumed.poke(resumed)
          // It is said early that a line may come, with a place for it.
          val mayCome = offered.isDefined && inside.size < p.lineQueue
          evaluate.io.offered.poke(mayCome)
          evaluate.io.in.valid.poke(mayCome && random.nextInt(4) != 0)
          for (
            out <- Seq(
              evaluate.io.live,
              evaluate.io.seen,
              evaluate.io.deferred,
              evaluate.io.scan,
              evaluate.io.walk,
              evaluate.io.continue
            )
          ) {
            out.ready.poke(random.nextInt(if (held) 4 else 2) == 0 || stop)
          }
          val slot = evaluate.io.slot.peek().litValue.toInt
          val now  = inside.headOption.filter(_.slot == slot)
          for (j <- now) {
            evaluate.io.slots.poke(j.slots)
            evaluate.io.line.poke(j.line)
            evaluate.io.extension.position.poke(j.position)
            evaluate.io.extension.left.poke(j.left)
            evaluate.io.extension.size.poke(j.words)
          }
          if (is(evaluate.io.fault.valid)) badTold += evaluate.io.fault.bits.address.peek().litValue

          // At a pause none is evaluated of those that have not begun, but for the first since the one before.
          val hadFirst       = pausing && gotOn
          def trusts(j: Job) = doubted(j) && j.raw.exists(!_.quiet) && !j.report
          val returns =
            now.filter(j => sizing(j) && (trusts(j) || j.phase == 0 && hadFirst) && !live && !seen && !sent)
          for (j <- returns) assert(is(evaluate.io.giveBack.valid), s"seed $seed: not given back: $j")
          val puts = now.filter(_.phase == 2 && hadFirst)
          def head(what: String): Job = {
            assert(returns.isEmpty || what == "a grey" || what == "an end", s"seed $seed: $what at a pause of $now")
            assert(puts.isEmpty || what == "a further line", s"seed $seed: $what at a pause of $now")
            now.getOrElse(fail(s"seed $seed: $what of nobody"))
          }
          def same(what: String, field: UInt, want: BigInt): Unit =
            assert(field.peek().litValue == want, s"seed $seed: $what of ${now.get}")
          if (fires(evaluate.io.live)) {
            val j = head("words")
            assert(sized(j) && j.count && j.raw.isDefined && !live, s"seed $seed: words of $j")
            same("region", evaluate.io.live.bits.region, j.obj * 8 >> 16)
            same("words", evaluate.io.live.bits.words, size(j) & ((BigInt(1) << (p.objectBits + 1)) - 1))
            live = true
          }
          if (fires(evaluate.io.seen)) {
            val j = head("a klass")
            assert(sized(j) && j.report && !seen, s"seed $seed: a klass of $j")
            same("klass", evaluate.io.seen.bits, j.klass)
            seen = true
          }
          if (fires(evaluate.io.deferred)) {
            val j = head("an object for the host")
            assert(sized(j) && defers(j) && !sent, s"seed $seed: for the host: $j")
            same("object", evaluate.io.deferred.bits.obj, j.obj)
            assert(is(evaluate.io.deferred.bits.unsized) == (j.raw.isEmpty && j.count))
            sent = true
          }
          def told(j: Job) =
            !sized(j) || ((live || !j.count || j.raw.isEmpty) && (seen || !j.report) && (sent || !defers(j)))
          var over = false
          val end  = is(evaluate.io.end.valid)
          if (end) {
            same("slot", evaluate.io.end.bits, head("an end").slot)
            assert(is(evaluate.io.slotless) == settled(head("an end")), s"seed $seed: slot of ${now.get}")
          }
          // Of what came in the cycle before.
          assert(
            is(evaluate.io.settled.valid) == came.exists(settled),
            s"seed $seed: expected a free slot: ${came.exists(settled)}, after $came"
          )
          if (came.exists(settled)) {
            assert(evaluate.io.settled.bits.peek().litValue == came.get.slot, s"seed $seed: slot of $came")
            freed += 1
          }
          came = None
          if (is(evaluate.io.giveBack.valid)) {
            val j     = head("a grey")
            val stuck = held && sized(j) && !told(j) && !settled(j)
            assert(end && (stuck || returns.isDefined), s"seed $seed: given back: $j")
            returned += returns.size
            trusting += returns.count(trusts)
            same("object", evaluate.io.giveBack.bits.obj, j.obj)
            // What was counted, here or as an unsized object by the host, is not counted again.
            val again = j.count && !live && !(j.raw.isEmpty && sent)
            assert(is(evaluate.io.giveBack.bits.count) == again, s"seed $seed: count of $j")
            assert(is(evaluate.io.unsaid) == (j.report && !needs(j) && !seen), s"seed $seed: klass of $j")
            back += 1
            over = true
            if (is(evaluate.io.unsaid)) {
              doubted ++= inside.tail
              forgotten = 0
            }
          } else {
            assert(!is(evaluate.io.unsaid), s"seed $seed: a klass is not told, and nothing given back")
            val scanned = fires(evaluate.io.scan)
            val walked  = fires(evaluate.io.walk)
            if (scanned) {
              val j = head("references")
              assert(
                told(j) && j.phase != 1 && j.phase != 3 && (j.phase == 2 || (hasRefs(j) && !extended(j))),
                s"seed $seed: references of $j"
              )
              same("object", evaluate.io.scan.bits.obj, j.obj)
              same("slots", evaluate.io.scan.bits.left, slots(j) & notNull(j.data))
              same("line", evaluate.io.scan.bits.data, j.data)
              assert(walked != (j.phase == 0 && isAll(j)), s"seed $seed: on from $j")
              wantRead += Integer.bitCount(slots(j))
              wantNull += Integer.bitCount(slots(j) & ~notNull(j.data))
              scans += 1
              over = true
            }
            if (walked) {
              val j = head("a walk")
              val w = evaluate.io.walk.bits
              assert(told(j) && scanned == (j.phase == 0 || j.phase == 2), s"seed $seed: a walk of $j")
              same("slot", w.slot, j.slot)
              same("object", w.obj, j.obj)
              assert(
                is(w.bare) == (j.phase % 2 == 1) && is(w.stored) == (j.phase == 2) && is(
                  w.raw
                ) == (j.phase == 3) && !is(w.placed)
              )
              // Of what goes on, an instance alone begins again when shapes are replaced.
              if (j.phase != 2) assert(is(w.again) == (j.phase == 3 || j.raw.get.kind == K.Instance))
              if (j.phase % 2 == 0) same("line", w.line, lineOf(j))
              if (sizing(j)) {
                assert(hasRefs(j) && !extended(j))
                same("blocks", w.count, blocks(j).size)
                for (((o, n), i) <- blocks(j).zipWithIndex) {
                  val (start, stop) = if (i == 0) (w.first.start, w.first.end) else (w.blocks(i).start, w.blocks(i).end)
                  same("start", start, o / 4)
                  same("end", stop, (o + n * oop) / 4)
                }
                assert(!is(w.more))
              }
              if (j.phase == 3) {
                same("blocks", w.count, j.left.min(4))
                assert(is(w.more) == j.left > 4)
                same("words", w.size, j.words)
                for (i <- 0 until j.left.min(4)) {
                  same("start", w.blocks(i).start, (j.data >> (256 * (j.position % 2) + 64 * i)) & half)
                  same("count", w.blocks(i).end, (j.data >> (256 * (j.position   % 2) + 64 * i + 32)) & half)
                }
                assert(is(evaluate.io.extend.valid))
                if (j.left > 4) {
                  same("position", evaluate.io.extend.bits.position, j.position + 1)
                  same("left", evaluate.io.extend.bits.left, j.left - 4)
                  same("words", evaluate.io.extend.bits.size, j.words)
                }
              }
              walks += 1
              over = true
            }
            if (fires(evaluate.io.continue)) {
              val j = head("a further line")
              val c = evaluate.io.continue.bits
              assert(
                told(j) && (needs(j) || (sizing(j) && extended(j)) || puts.nonEmpty) && !end,
                s"seed $seed: on from $j"
              )
              same("slot", c.slot, j.slot)
              assert(is(c.same) == puts.nonEmpty)
              if (puts.nonEmpty) {
                assert(!is(evaluate.io.extend.valid), s"seed $seed: blocks of $j")
                putBack += 1
              } else if (needs(j)) {
                val at = j.obj * 8 + (if (j.raw.get.kind == K.Mirror) mirrorAt else 16)
                c.phase.expect(Phase.Size)
                same("line", c.line, at / 64)
                same("word", c.word, at % 64 / 4)
                same("klass", c.klass, j.klass)
              } else {
                c.phase.expect(Phase.Extension)
                same("line", c.line, j.raw.get.extension / 64)
                assert(is(evaluate.io.extend.valid))
                same("position", evaluate.io.extend.bits.position, j.raw.get.extension / 32)
                same("left", evaluate.io.extend.bits.left, j.raw.get.blockCount)
                same("words", evaluate.io.extend.bits.size, j.raw.get.size)
              }
              onward += 1
              over = true
            }
            if (end) {
              val j = head("an end")
              assert(told(j) && sized(j) && (!hasRefs(j) || (scanned && isAll(j))), s"seed $seed: an end of $j")
              ends += 1
              over = true
            }
          }
          read += Integer.bitCount(evaluate.io.slotsRead.peek().litValue.toInt)
          nulls += Integer.bitCount(evaluate.io.slotsNull.peek().litValue.toInt)
          gotOn = !resumed &&
            (gotOn || (over && now.get.phase % 2 == 0 && !is(evaluate.io.giveBack.valid) && puts.isEmpty))
          if (over) {
            doubted -= inside.dequeue()
            live = false
            seen = false
            sent = false
          }
          if (is(evaluate.io.in.valid)) {
            inside.enqueue(offered.get)
            came = offered
            if (forgotten < 2) doubted += offered.get
            if (bad(offered.get)) badOnes += offered.get.obj * 8
            offered = None
            jobs += 1
          }
          forgotten += 1
          evaluate.clock.step()
        }
        assert(inside.isEmpty && is(evaluate.io.quiet), s"seed $seed: $inside do not end")
        assert(
          read == wantRead && nulls == wantNull,
          s"seed $seed: $read slots read and $nulls null, not $wantRead and $wantNull"
        )
        assert(
          badTold == badOnes,
          s"seed $seed: wrong are ${badOnes.diff(badTold)}, which was not told, and not ${badTold.diff(badOnes)}"
        )
        assert(
          jobs > 250 && scans > 30 && walks > 30 && ends > 50 && onward > 20 && back > 2 + returned && returned > 50 && trusting > 2 && putBack > 5 && freed > 20 && badOnes.nonEmpty,
          s"seed $seed: $jobs jobs, $scans scans, $walks walks, $ends ends, $onward further lines, $back given back, $returned unseen, $trusting of a klass that was not told, $putBack lines put back, $freed settled"
        )
      }
    }
  }

  private def poke(x: EvaluateJob, j: Job, oop: Int, notNull: Int): Unit = {
    x.slot.poke(j.slot)
    x.data.poke(j.data)
    x.phase.poke(Seq(Phase.Header, Phase.Size, Phase.References, Phase.Extension)(j.phase))
    x.obj.poke(j.obj)
    x.region.poke(j.obj * 8 >> 16)
    x.count.poke(j.count)
    x.klass.poke(j.klass)
    x.found.poke(j.raw.isDefined)
    x.report.poke(j.report)
    x.extra.poke(j.extra)
    x.extraSome.poke(j.extra != 0)
    x.filled.poke((0 until 16).filter(i => j.extra * oop > 4 * i).map(1 << _).sum)
    x.extraKnown.poke(j.known)
    x.notNull.poke(notNull)
    for (r <- j.raw) {
      val s = x.shape
      s.kind.poke(r.kind)
      s.quiet.poke(r.quiet)
      s.elementLog2.poke(r.element & 3)
      s.size.poke(r.kept)
      s.hasBlocks.poke(r.blockCount != 0)
      s.extended.poke(r.blockCount > 4)
      s.blockCount.poke(r.blockCount & 0xffffff)
      s.extension.poke(r.extension / 64 & ((BigInt(1) << p.lineAddress) - 1))
      for ((b, i) <- s.blocks.zipWithIndex) {
        val (o, n) = r.inline.lift(i).getOrElse((0L, 0L))
        b.start.poke(o / 4)
        b.end.poke((o + n * oop) / 4)
      }
      s.near.poke(r.near(oop))
      s.beyond.poke(r.beyond(oop))
    }
  }
}
