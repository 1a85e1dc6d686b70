// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._

import merapi.{BlockTest, Config}
import merapi.common.Contract

import scala.collection.mutable
import scala.util.Random

/** A shape as it stands in the window's table, and what the contract says of it, written down a second time. */
case class RawShape(
    kind: Int,
    flags: Int,
    element: Int,
    header: Long,
    size: Long,
    blockCount: Long,
    extension: BigInt,
    blocks: Seq[(Long, Long)]
) {
  import Contract.{ShapeKind => K, ShapeLayout => L}
  def quiet: Boolean = (flags >> Contract.ShapeFlag.Quiet & 1) == 1
  def line(klass: BigInt): BigInt = {
    val fields = Seq(
      L.KlassWord   -> klass,
      L.Kind        -> BigInt(kind),
      L.Flags       -> BigInt(flags),
      L.ElementLog2 -> BigInt(element),
      L.HeaderBytes -> BigInt(header),
      L.SizeWords   -> BigInt(size),
      L.BlockCount  -> BigInt(blockCount),
      L.Extension   -> extension
    ) ++ blocks.zipWithIndex.flatMap { case ((offset, count), i) =>
      Seq(L.Block + 8 * i -> BigInt(offset), L.Block + 8 * i + 4 -> BigInt(count))
    }
    fields.map { case (at, value) => value << (8 * at) }.sum
  }

  /** Its fields do not contradict each other. */
  def good(oop: Int, fields: Int, mirror: Int, extensionBytes: Int): Boolean = kind match {
    case K.Instance =>
      blockCount <= 8 * size / oop && (
        if (blockCount <= 4) {
          blocks.take(blockCount.toInt).forall { case (offset, count) =>
            offset % oop == 0 && offset >= fields && offset + count * oop <= 8 * size
          }
        } else extension % 64 == 0 && extension + 8 * blockCount <= extensionBytes
      )
    case K.ObjArray  => header >= fields + 4 && header % oop == 0 && element == (if (oop == 8) 3 else 2)
    case K.PrimArray => header >= fields + 4 && element <= 3
    case K.Mirror    => mirror >= fields
    case K.Reference | K.Loader | K.Host => true
    case _                               => false
  }

  /** What lanes have of its size; a mirror's is its object's to say. */
  def kept: BigInt = BigInt(if (isArray) header else size) & ((BigInt(1) << 24) - 1)

  /** Beyond what the tracer has bits for in a field that its kind has: its objects are the host's. */
  def large: Boolean =
    if (isArray) (header >> 24) != 0
    else kind != K.Mirror && (size >> (if (kind == K.Instance) 21 else 24)) != 0

  def isArray: Boolean = kind == K.ObjArray || kind == K.PrimArray

  /** Blocks that are in line. */
  def inline: Seq[(Long, Long)] = if (blockCount <= 4) blocks.take(blockCount.toInt) else Nil

  /** Units of four bytes that are references. */
  def covers(oop: Int, unit: Int): Boolean =
    inline.exists { case (o, n) => 4 * unit >= o && 4 * unit < o + n * oop }

  /** The first units that are references; of an array of them, where the first is. */
  def near(oop: Int): BigInt = (0 until Shape.near)
    .filter(unit => if (kind == Contract.ShapeKind.ObjArray) unit == header / 4 else covers(oop, unit))
    .map(BigInt(1) << _)
    .sum

  /** By the place at which an object begins in its line, in words: references behind its klass word's line. */
  def beyond(oop: Int): BigInt = (0 until 8)
    .filter { place =>
      val line = (8 * place + 8) / 64
      inline.exists { case (o, n) => 8 * place + o + n * oop > 64 * (line + 1) }
    }
    .map(BigInt(1) << _)
    .sum
}

object RawShape {
  def random(r: Random, oop: Int, fields: Int, extensionBytes: Int): RawShape = {
    import Contract.{ShapeKind => K}
    val size  = 2L + r.nextInt(if (r.nextBoolean()) 12 else 200)
    val count = if (r.nextInt(6) == 0) 5 + r.nextInt(12) else r.nextInt(5)
    var at    = (fields + oop - 1) / oop * oop
    val blocks = Seq.fill(4) {
      at += oop * r.nextInt(3)
      val room = ((8 * size - at) / oop).max(0)
      val n    = r.nextInt(4).toLong.min(room)
      val b    = (at.toLong, n)
      at += (oop * n).toInt
      b
    }
    val good = RawShape(
      kind = 1 + r.nextInt(7),
      flags = r.nextInt(4),
      element = if (r.nextInt(3) != 0) (if (oop == 8) 3 else 2) else r.nextInt(4),
      header = oop * ((fields + 4 + oop - 1) / oop + r.nextInt(3)),
      size = size,
      blockCount = count,
      extension = 64 * r.nextInt(2),
      blocks = blocks
    )
    val at4          = r.nextInt(4)
    val (start, num) = good.blocks(at4)
    r.nextInt(26) match {
      case 0 => good.copy(kind = r.nextInt(256))
      case 1 => good.copy(kind = K.Instance, size = 8 * size, blockCount = 8 * size * 8 / oop + r.nextInt(2))
      case 2 => good.copy(kind = K.Instance, blocks = good.blocks.updated(at4, (start + 1 + r.nextInt(oop - 1), num)))
      case 3 => good.copy(kind = K.Instance, blocks = good.blocks.updated(at4, (fields - 4L + r.nextInt(8), num)))
      case 4 =>
        good.copy(
          kind = K.Instance,
          blocks = good.blocks.updated(at4, (start, (8 * size - start) / oop + r.nextInt(2)))
        )
      case 5 => good.copy(kind = K.Instance, blocks = good.blocks.updated(at4, (start, (1L << 32) - 1 - r.nextInt(9))))
      case 6 =>
        good.copy(kind = K.Instance, blockCount = 5 + r.nextInt(3), extension = good.extension + (1 << r.nextInt(6)))
      case 7 =>
        good.copy(
          kind = K.Instance,
          size = 40,
          blockCount = 5 + r.nextInt(3),
          extension = extensionBytes - 64 + 64 * r.nextInt(2)
        )
      case 8  => good.copy(kind = K.Instance, size = 40, blockCount = 7 + r.nextInt(4), extension = extensionBytes - 64)
      case 9  => good.copy(kind = K.ObjArray, header = good.header + 2)
      case 10 => good.copy(kind = K.ObjArray, header = (fields + r.nextInt(9)).toLong)
      case 11 => good.copy(kind = K.ObjArray, element = r.nextInt(256))
      case 12 => good.copy(kind = K.PrimArray, element = 3 + r.nextInt(3))
      case 13 => good.copy(kind = K.PrimArray, header = (fields + r.nextInt(9)).toLong)
      case 14 => good.copy(size = 1L << (20 + r.nextInt(12)))
      case 15 => good.copy(header = 1L << (23 + r.nextInt(9)))
      case 16 => good.copy(extension = BigInt(64, r))
      case _  => good
    }
  }
}

/** Every question is answered once, as table and contract say: found with all that lanes use of it, absent, or told to be
  * a contradiction; whatever stands between a klass word's home and its slot.
  */
class ShapeWalkerTest extends BlockTest {
  private val two            = p.copy(lanes = 2, shapeWalks = 4)
  private val extensionLines = 4

  test("finds and checks shapes") {
    simulate(new ShapeWalker(two)) { walker =>
      for (seed <- seeds(5)) {
        val random = new Random(seed)
        val memory = new Memory(random, 2, 12)
        val log2   = 4 + random.nextInt(3)
        val slots  = 1 << log2
        val oop    = if (random.nextBoolean()) 8 else 4
        val wide   = random.nextBoolean()
        val fields = if (wide) 16 else 12
        val mirror = fields - 4 + 4 * random.nextInt(3)
        configure(walker.io.config, 64)
        walker.io.config.shapesLog2.poke(log2)
        walker.io.config.wideOops.poke(oop == 8)
        walker.io.config.wideKlass.poke(wide)
        walker.io.config.mirrorOffset.poke(mirror)
        walker.io.lanes.foreach(_.klass.valid.poke(false))
        walker.io.read.response.valid.poke(false)
        restart(walker)
        // A table that is nearly full, with withdrawn shapes in it.
        val last   = (BigInt(1) << 64) - 1
        val words  = (Seq(BigInt(0), last) ++ Seq.fill(slots + 8)(BigInt(if (wide) 64 else 32, random))).distinct
        val keys   = Array.fill(slots)(BigInt(0))
        val shapes = mutable.Map.empty[BigInt, RawShape]
        def home(klass: BigInt): Int = {
          val folded = (klass ^ (klass >> 32)) & 0xffffffffL
          ((folded * Contract.ShapeHashMultiplier & 0xffffffffL) >> (32 - log2)).toInt
        }
        def probes(klass: BigInt): Seq[Int] = (0 until 16.min(slots)).map(i => (home(klass) + i) % slots)
        for (klass <- words.drop(2).take(slots - 3)) probes(klass).find(keys(_) == 0).foreach { slot =>
          keys(slot) = if (random.nextInt(8) == 0) last else klass
          val shape = RawShape.random(random, oop, fields, 64 * extensionLines)
          if (keys(slot) == klass) shapes(klass) = shape
          memory.lines(Config.shapes + slot) = shape.line(keys(slot))
        }
        def good(klass: BigInt) = shapes(klass).good(oop, fields, mirror, 64 * extensionLines)

        // A question stays until it is taken; then there is none for a cycle at least.
        val offered                     = Array.fill(2)(Option.empty[BigInt])
        val rests                       = Array.fill(2)(false)
        val open, contradictions        = mutable.Set.empty[BigInt]
        var found, absent, bad, answers = 0
        var told                        = 0 // absent, as the walker counts
        for (t <- 0 until 5000) {
          val stop = t > 4000
          for ((lane, i) <- walker.io.lanes.zipWithIndex) {
            if (offered(i).isEmpty && !stop && !rests(i) && random.nextInt(4) != 0) {
              offered(i) = Some(words(random.nextInt(words.size)))
            }
            rests(i) = false
            lane.klass.valid.poke(offered(i).isDefined)
            for (klass <- offered(i)) {
              lane.klass.bits.klass.poke(klass)
              lane.klass.bits.hash.poke((0 until 64 by 5).map(k => (klass >> k) & 31).reduce(_ ^ _))
            }
          }
          memory.serve(walker.io.read)
          if (is(walker.io.fault.valid)) {
            val klass = walker.io.fault.bits.address.peek().litValue
            assert(open(klass) && !good(klass), s"seed $seed: a fault of klass $klass")
            walker.io.fault.bits.code.expect(Contract.Fault.BadShape)
            walker.io.fault.bits.detail.expect(shapes(klass).kind)
            contradictions += klass
          }
          if (is(walker.io.absent)) told += 1
          val answer = walker.io.lanes(0).answer
          assert(is(walker.io.lanes(1).answer.valid) == is(answer.valid))
          if (is(answer.valid)) {
            val klass = answer.bits.klass.peek().litValue
            assert(open.remove(klass), s"seed $seed: nobody asked for klass $klass")
            answers += 1
            val has = is(answer.bits.found)
            shapes.get(klass) match {
              case None =>
                assert(!has, s"seed $seed: klass $klass has no shape")
                absent += 1
              case Some(raw) if !good(klass) =>
                assert(!has && contradictions.remove(klass), s"seed $seed: $raw")
                bad += 1
              case Some(raw) =>
                assert(has == !raw.large, s"seed $seed: $raw, found: $has")
                if (has) check(answer.bits.shape, raw, oop, s"seed $seed: klass $klass, $raw")
                found += 1
            }
          }
          for ((lane, i) <- walker.io.lanes.zipWithIndex if fires(lane.klass)) {
            assert(open.add(offered(i).get), s"seed $seed: ${offered(i)} is looked up twice at a time")
            offered(i) = None
            rests(i) = true
          }
          walker.clock.step()
          memory.tick()
          if (open.nonEmpty) assert(!is(walker.io.quiet), s"seed $seed: quiet with $open")
        }
        assert(open.isEmpty && offered.forall(_.isEmpty) && is(walker.io.quiet), s"seed $seed: $open are not answered")
        assert(told == absent, s"seed $seed: $absent absent, $told counted")
        assert(found > 20 && absent > 15 && bad > 3, s"seed $seed: $found found, $absent absent, $bad bad of $answers")
      }
    }
  }

  private def check(shape: Shape, raw: RawShape, oop: Int, what: String): Unit = {
    import Contract.{ShapeKind => K}
    def same(name: String, field: chisel3.Data, want: BigInt): Unit = {
      val have = field match { case b: Bool => BigInt(if (is(b)) 1 else 0); case u: UInt => u.peek().litValue }
      assert(have == want, s"$what: $name")
    }
    same("kind", shape.kind, raw.kind)
    same("quiet", shape.quiet, raw.flags & 1)
    if (raw.isArray) same("element", shape.elementLog2, raw.element)
    same("size", shape.size, raw.kept)
    if (raw.kind == K.Instance) {
      same("blocks", shape.blockCount, raw.blockCount)
      same("some", shape.hasBlocks, if (raw.blockCount != 0) 1 else 0)
      same("extended", shape.extended, if (raw.blockCount > 4) 1 else 0)
      if (raw.blockCount > 4) {
        val line = Config.extension - Config.heap + raw.extension / 64
        same("extension", shape.extension, line & ((BigInt(1) << p.lineAddress) - 1))
      } else {
        for (((start, count), i) <- raw.blocks.take(raw.blockCount.toInt).zipWithIndex) {
          same("start", shape.blocks(i).start, start / 4)
          same("end", shape.blocks(i).end, (start + count * oop) / 4)
        }
        same("near", shape.near, raw.near(oop))
        same("beyond", shape.beyond, raw.beyond(oop))
      }
    }
  }
}
