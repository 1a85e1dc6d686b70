// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._

import merapi.BlockTest
import merapi.common.{Contract, Region, TraceConfig}

import scala.collection.mutable
import scala.util.Random

/** Configurations and directories, good ones and such with one thing wrong: the latch finds wrong what the contract says
  * is wrong, names one of the fields that are, and of a good one keeps what a cycle uses.
  */
class ConfigLatchTest extends BlockTest {
  import Contract.{Area => A, ConfigLayout => C, DirectoryLayout => D}
  private val mapped = Set(A.Heap, A.Bitmap0, A.Bitmap1)
  private val two    = p.copy(lanes = 2)
  private val page   = BigInt(4096)
  private val huge   = BigInt(1) << 21

  /** A control page as numbers. */
  private case class Page(
      heapBase: BigInt,
      narrowBase: BigInt,
      shift: Int,
      oop: Int,
      klass: Int,
      alignment: Int,
      region: Int,
      coherence: Int,
      reserved: BigInt, // bytes 22 and 23
      mirror: BigInt,
      regions: BigInt,
      zero: Seq[BigInt], // bytes 32 to 63
      areas: Seq[(BigInt, BigInt)]
  ) {
    def fields: Seq[(Int, Int, BigInt)] = Seq(
      (C.HeapBase, 8, heapBase),
      (C.NarrowOopBase, 8, narrowBase),
      (C.NarrowOopShift, 1, BigInt(shift)),
      (C.OopBytes, 1, BigInt(oop)),
      (C.KlassBytes, 1, BigInt(klass)),
      (C.AlignmentLog2, 1, BigInt(alignment)),
      (C.RegionLog2, 1, BigInt(region)),
      (C.Coherence, 1, BigInt(coherence)),
      (22, 2, reserved),
      (C.MirrorSizeOffset, 4, mirror),
      (C.RegionCount, 4, regions)
    ) ++ zero.zipWithIndex.map { case (z, i) => (32 + 8 * i, 8, z) }
    def heapBytes: BigInt = regions << region

    /** Places of fields that are wrong, in the control page. */
    def wrong(window: BigInt, expected: Int, rings: Seq[(BigInt, BigInt)]): Set[BigInt] = {
      val out                                = mutable.Set.empty[BigInt]
      def bad(at: Int, isBad: Boolean): Unit = if (isBad) out += C.At + at
      bad(C.NarrowOopShift, shift > 8)
      bad(C.OopBytes, oop != 4 && oop != 8)
      bad(C.KlassBytes, klass != 4 && klass != 8)
      bad(C.AlignmentLog2, alignment < 3 || alignment > 8)
      bad(C.RegionLog2, region < 16 || region > 36 || region < alignment + 9)
      bad(C.Coherence, coherence != expected)
      bad(22, reserved != 0)
      bad(C.MirrorSizeOffset, mirror % 4 != 0)
      for ((z, i) <- zero.zipWithIndex) bad(if (i < 3) 32 else 56, z != 0)
      bad(C.RegionCount, regions == 0 || heapBytes > (BigInt(1) << p.heapAddressBits))
      bad(C.HeapBase, heapBase % (BigInt(1) << alignment.min(20)) != 0 || heapBase + heapBytes > (BigInt(1) << 64))
      if (out.nonEmpty) return out.toSet
      def offsetAt(i: Int) = BigInt(D.At + 16 * i)
      def sizeAt(i: Int)   = offsetAt(i) + 8
      val here             = areas.map { case (o, s) => if (o == 0) (o, BigInt(0)) else (o, s) }
      val needs = Map(
        A.Shapes  -> BigInt(64),
        A.Limits  -> 8 * regions,
        A.Live    -> 8 * regions,
        A.Heap    -> heapBytes,
        A.Bitmap0 -> (heapBytes >> (alignment + 3)),
        A.Bitmap1 -> (heapBytes >> (alignment + 3))
      )
      for (((o, s), i) <- here.zipWithIndex) {
        if (o != 0) {
          if (o           % (if (mapped(i)) huge else page) != 0 || o >= window) out += offsetAt(i)
          if (s == 0 || s % page != 0 || o + s > window) out += sizeAt(i)
          for (((q, r), k) <- here.zipWithIndex if k != i && q != 0 && o < q + r && q < o + s) out += offsetAt(i.max(k))
        }
        for (n <- needs.get(i)) if (o == 0) out += offsetAt(i) else if (s < n) out += sizeAt(i)
      }
      val shapes = here(A.Shapes)._2
      if ((shapes & (shapes - 1)) != 0 || shapes > Contract.TableEntriesMax * Contract.LineBytes)
        out += sizeAt(A.Shapes)
      for (i <- 0 until 2 if here(i) != rings(i)) out += offsetAt(i)
      out.toSet
    }
  }

  private def random(r: Random): (Page, BigInt) = {
    val region                    = 16 + r.nextInt(15)
    val alignment                 = (3 + r.nextInt(6)) min (region - 9)
    val regions                   = BigInt(1 + r.nextInt(1 << (24 min (40 - region))))
    val heapBytes                 = regions << region
    def up(x: BigInt, to: BigInt) = (x + to - 1) / to * to
    var at                        = page * (1 + r.nextInt(3))
    val order                     = r.shuffle((0 until 16).filterNot(mapped).toList) ++ r.shuffle(mapped.toList)
    val areas = order.map { i =>
      val size = i match {
        case A.Submission | A.Completion => page << r.nextInt(4)
        case A.Shapes                    => page << r.nextInt(6)
        case A.Limits | A.Live           => up(regions * 8, page)
        case A.Heap                      => up(heapBytes, huge)
        case A.Bitmap0 | A.Bitmap1       => up((heapBytes >> (alignment + 3)).max(1), page)
        case _                           => page * (1 + r.nextInt(20))
      }
      at = up(at + page * r.nextInt(2), if (mapped(i)) huge else page)
      val area = if (i > 9 && r.nextBoolean()) (BigInt(0), BigInt(0)) else (at, size)
      if (area._1 != 0) at += size
      i -> area
    }.toMap
    val base = (BigInt(63, r) << 8) % ((BigInt(1) << 64) - heapBytes)
    val good = Page(
      (base >> 8) << 8,
      BigInt(64, r),
      r.nextInt(9),
      4 << r.nextInt(2),
      4 << r.nextInt(2),
      alignment,
      region,
      1,
      0,
      4 * BigInt(30, r),
      regions,
      Seq.fill(4)(BigInt(0)),
      (0 until 16).map(areas)
    )
    (good, up(at, page))
  }

  /** One thing changed, as a rule to what is wrong. */
  private def spoil(g: Page, r: Random): Page = {
    val i                                  = r.nextInt(16)
    val (o, s)                             = g.areas(i)
    def area(offset: BigInt, size: BigInt) = g.copy(areas = g.areas.updated(i, (offset, size)))
    val other                              = g.areas(r.nextInt(16))
    r.nextInt(20) match {
      case 0  => g.copy(shift = 8 + r.nextInt(20))
      case 1  => g.copy(oop = r.nextInt(12))
      case 2  => g.copy(klass = r.nextInt(12))
      case 3  => g.copy(alignment = Seq(0, 2, 9, 19)(r.nextInt(4)))
      case 4  => g.copy(region = Seq(0, 15, 37, 200)(r.nextInt(4)))
      case 5  => g.copy(coherence = r.nextInt(4))
      case 6  => g.copy(reserved = BigInt(1) << r.nextInt(16))
      case 7  => g.copy(mirror = g.mirror + r.nextInt(4))
      case 8  => g.copy(regions = if (r.nextBoolean()) 0 else (BigInt(1) << (40 - g.region)) + r.nextInt(2))
      case 9  => g.copy(zero = g.zero.updated(r.nextInt(4), BigInt(1) << r.nextInt(64)))
      case 10 => g.copy(heapBase = g.heapBase + (1 << r.nextInt(8)))
      case 11 => g.copy(heapBase = (BigInt(1) << 64) - g.heapBytes + 256 * (r.nextInt(2)))
      case 12 => area(o + (BigInt(1) << r.nextInt(12)), s)
      case 13 => area(o, s + (BigInt(1) << r.nextInt(13)))
      case 14 => area(o, 0)
      case 15 => area(0, if (r.nextBoolean()) s else 0)
      case 16 => area(other._1, s)
      case 17 => area(o, s - page)
      case 18 => area(o, s + page)
      case _  => area(o + (BigInt(1) << (12 + r.nextInt(52))), s)
    }
  }

  test("keeps good configurations and names what is wrong with others") {
    simulate(new ConfigLatch(two)) { latch =>
      for (seed <- seeds(3)) {
        val random_ = new Random(seed)
        restart(latch)
        latch.io.start.poke(false)
        latch.io.stop.poke(false)
        latch.io.coherence.poke(1)
        var good, bad = 0
        for (round <- 0 until 45) {
          val memory       = new Memory(random_, 1, 8)
          val (page, edge) = random(random_)
          val window       = edge + Contract.AreaAlignment * (if (round % 3 == 0) 0 else random_.nextInt(3))
          latch.io.windowLines.poke(window / 64)
          latch.io.bitmap.poke(round & 1)

          def run(of: Page, rings: Boolean): Option[(BigInt, BigInt)] = {
            memory.lines(C.At / 64) = of.fields.map { case (at, _, value) => value << (8 * at) }.sum
            for ((area, i) <- of.areas.zipWithIndex) {
              memory.setWord(D.At / 64 + i / 4, 2 * (i % 4), area._1 & ((BigInt(1) << 64) - 1))
              memory.setWord(D.At / 64 + i / 4, 2 * (i % 4) + 1, area._2 & ((BigInt(1) << 64) - 1))
            }
            latch.io.rings.poke(rings)
            latch.io.start.poke(true)
            var out = Option.empty[Option[(BigInt, BigInt)]]
            var t   = 0
            while (out.isEmpty) {
              memory.serve(latch.io.read)
              if (is(latch.io.done)) {
                val f = latch.io.fault
                out =
                  Some(if (is(f.valid)) Some((f.bits.address.peek().litValue, f.bits.detail.peek().litValue)) else None)
                if (is(f.valid)) f.bits.code.expect(Contract.Fault.BadConfig)
              }
              latch.clock.step()
              memory.tick()
              latch.io.start.poke(false)
              t += 1
              assert(t < 800, s"seed $seed: no end")
            }
            latch.io.read.response.valid.poke(false)
            out.get
          }
          // One that was started, and given up at any time: nothing of it is told, then or later.
          def giveUp(): Unit = {
            val start = random_.nextInt(3)
            val stop  = start + 1 + random_.nextInt(400)
            latch.io.rings.poke(false)
            for (t <- 0 until stop + 15) {
              latch.io.start.poke(t == start)
              latch.io.stop.poke(t >= stop)
              memory.serve(latch.io.read)
              assert(t <= stop || !is(latch.io.done), s"seed $seed: an end after it was given up")
              latch.clock.step()
              memory.tick()
            }
            latch.io.stop.poke(false)
            latch.io.read.response.valid.poke(false)
          }
          val ringsAreas = page.areas.take(2)
          assert(run(page, rings = true).isEmpty, s"seed $seed: good rings in round $round")
          for ((a, i) <- latch.io.ringAreas.zipWithIndex) {
            a.first.expect(ringsAreas(i)._1 / 64)
            a.count.expect(ringsAreas(i)._2 / 64)
          }
          val tried = if (round % 3 == 0) page else spoil(page, random_)
          val wrong = tried.wrong(window, 1, ringsAreas)
          if (random_.nextBoolean()) giveUp()
          val have = run(tried, rings = false)
          assert(
            have.isDefined == wrong.nonEmpty,
            s"seed $seed, round $round: expected one of $wrong, found $have of $tried"
          )
          for ((address, detail) <- have) {
            assert(
              wrong(address),
              s"seed $seed, round $round: expected one of $wrong, found $address ($detail) of $tried"
            )
            bad += 1
          }
          if (have.isEmpty) {
            latch.clock.step(2)
            keeps(latch.io.config, latch.io.areas, tried, round & 1, s"seed $seed, round $round: $tried")
            good += 1
          }
          // Tables as large as they may be, and larger, where nothing else is.
          if (round % 9 == 0) {
            val most = Contract.TableEntriesMax * Contract.LineBytes
            latch.io.windowLines.poke((edge + 4 * most) / 64)
            for (i <- Seq(A.Shapes, A.Submission, A.Completion); log2 <- 0 to 2) {
              val large = page.copy(areas = page.areas.updated(i, (edge, most << log2)))
              val want  = if (log2 == 0) None else Some((BigInt(D.At + 16 * i + 8), most << log2))
              assert(
                run(large, rings = i != A.Shapes) == want,
                s"seed $seed, round $round: table $i of ${most << log2}"
              )
            }
          }
        }
        assert(good > 12 && bad > 12, s"seed $seed: $good good ones, $bad bad ones")
      }
    }
  }

  private def keeps(c: TraceConfig, areas: Vec[Area], of: Page, bitmap: Int, what: String): Unit = {
    def same(field: UInt, want: BigInt, name: String): Unit = {
      val have = field.peek().litValue
      assert(have == (want & ((BigInt(1) << field.getWidth) - 1)), s"$what: $name is $have")
    }
    def line(i: Int)  = of.areas(i)._1 / 64
    def lines(i: Int) = if (line(i) == 0) BigInt(0) else of.areas(i)._2 / 64
    for (i <- 0 until 16) {
      same(areas(i).first, line(i), s"place of area $i")
      same(areas(i).count, lines(i), s"lines of area $i")
    }
    same(c.heapBase, of.heapBase, "heap base")
    same(c.fromNarrow, of.narrowBase - of.heapBase, "from narrow")
    same(c.fromWide, -of.heapBase, "from wide")
    assert(is(c.wideOops) == (of.oop == 8) && is(c.wideKlass) == (of.klass == 8), what)
    same(c.alignmentLog2, of.alignment, "alignment")
    same(c.regionLog2, of.region, "region")
    same(c.regionCount, of.regions, "regions")
    same(c.mirrorOffset, of.mirror, "mirror offset")
    same(c.heapBytes, of.heapBytes, "heap's bytes")
    // Every region has a flag, and no coarser one than there must be.
    val shift = c.flagShift.peek().litValue.toInt
    assert((of.regions - 1) >> shift < p.rescanFlags, s"$what: flag shift $shift")
    assert(shift == 0 || (of.regions - 1) >> (shift - 1) >= p.rescanFlags, s"$what: flag shift $shift")
    same(c.flagUnits, of.region - Region.unitLog2 + shift, "units of a flag")
    same(c.heap, line(A.Heap), "heap")
    same(c.limits, line(A.Limits), "limits")
    same(c.live, line(A.Live), "live")
    same(c.bitmap, line(if (bitmap == 1) A.Bitmap1 else A.Bitmap0), "bitmap")
    same(c.shapes, line(A.Shapes), "shapes")
    assert(BigInt(1) << c.shapesLog2.peek().litValue.toInt == lines(A.Shapes), s"$what: slots of the shape table")
    same(c.extension, line(A.ShapeExtension), "extension")
    same(c.extensionLines, lines(A.ShapeExtension), "lines of the extension")
    same(c.spill, line(A.Spill), "spill")
    same(c.spillPerLane, lines(A.Spill) / 2, "spill per lane")
  }
}
