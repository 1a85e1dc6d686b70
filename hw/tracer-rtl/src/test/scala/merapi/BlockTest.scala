// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.simulator.scalatest.ChiselSim
import chisel3.util.DecoupledIO
import org.scalatest.{Failed, Outcome}
import org.scalatest.exceptions.ModifiableMessage
import org.scalatest.funsuite.AnyFunSuite

import merapi.common.{ReadPort, TraceConfig, TracerParameters, WritePort}
import merapi.primitives.EpochSweep

import scala.collection.mutable
import scala.util.Random

/** What tests of single blocks share: parameters small enough that everything overflows, a memory behind ports, coins
  * for back-pressure. Most tests run several seeds; a failure ends with the command that replays it, with its seed if there is one.
  */
abstract class BlockTest extends AnyFunSuite with ChiselSim {
  val p: TracerParameters = TracerParameters.simSmall

  private var seed: Option[Int] = None

  /** Seeds of a case: as many as half of `count`, `count` with MERAPI_FULL=1, or MERAPI_SEED alone. */
  def seeds(count: Int): Iterator[Int] = {
    val last = if (sys.env.get("MERAPI_FULL").contains("1")) count else (count + 1) / 2
    sys.env.get("MERAPI_SEED").map(s => Iterator(s.toInt)).getOrElse((1 to last).iterator).map { s =>
      seed = Some(s)
      s
    }
  }

  override def withFixture(test: NoArgTest): Outcome = {
    seed = None
    BlockTest.withCommand(super.withFixture(test), getClass.getSimpleName, seed)
  }

  /** Two cycles of reset. */
  def restart(block: Module): Unit = {
    block.reset.poke(true)
    block.clock.step(2)
    block.reset.poke(false)
  }
  def is(signal: Bool): Boolean            = signal.peek().litToBoolean
  def fires(port: DecoupledIO[_]): Boolean = is(port.valid) && is(port.ready)

  /** Rows of an on-chip memory to be looked at in a round that ends with dropping all: row k in every 2^k^th, so that for
    * each bit of an epoch there are two looks at a row that nothing but this bit tells apart. Two turns of the epochs.
    */
  val epochRounds: Int                = 2 << EpochSweep.bits
  def epochRows(round: Int): Seq[Int] = (0 until EpochSweep.bits).filter(k => round % (1 << k) == 0)

  /** A configuration for a heap of `regions` regions of 64 KiB, 4-byte references, every area at a line of its own. */
  def configure(c: TraceConfig, regions: Int): Unit = {
    val values = Map(
      "heapBase"       -> Config.heapBase,
      "fromNarrow"     -> ((BigInt(1) << 64) - Config.heapBase),
      "fromWide"       -> ((BigInt(1) << 64) - Config.heapBase),
      "narrowShift"    -> BigInt(3),
      "wideOops"       -> BigInt(0),
      "wideKlass"      -> BigInt(0),
      "alignmentLog2"  -> BigInt(3),
      "regionLog2"     -> BigInt(16),
      "regionCount"    -> BigInt(regions),
      "mirrorOffset"   -> BigInt(32),
      "heapBytes"      -> BigInt(regions) * 65536,
      "flagShift"      -> BigInt(0),
      "flagUnits"      -> BigInt(0),
      "heap"           -> BigInt(Config.heap),
      "limits"         -> BigInt(Config.limits),
      "live"           -> BigInt(Config.live),
      "bitmap"         -> BigInt(Config.bitmap),
      "shapes"         -> BigInt(Config.shapes),
      "shapesLog2"     -> BigInt(4),
      "extension"      -> BigInt(Config.extension),
      "extensionLines" -> BigInt(4),
      "spill"          -> BigInt(Config.spill),
      "spillPerLane"   -> BigInt(8)
    )
    c.elements.foreach { case (name, field) => field.asInstanceOf[UInt].poke(values(name)) }
  }

  /** Lines by number; those never written are zero. */
  class Memory(random: Random, least: Int = 2, most: Int = 12) {
    val lines          = mutable.Map.empty[BigInt, BigInt].withDefaultValue(BigInt(0))
    private val reads  = mutable.Map.empty[ReadPort, mutable.ArrayBuffer[(Int, BigInt, BigInt)]]
    private val writes = mutable.Map.empty[WritePort, mutable.ArrayBuffer[(Int, BigInt, BigInt, BigInt)]]
    private var now    = 0
    var busyRead       = 0
    var busyWrite      = 0

    def word(line: Int, i: Int): BigInt = (lines(line) >> (64 * i)) & ((BigInt(1) << 64) - 1)
    def setWord(line: Int, i: Int, value: BigInt): Unit = {
      val mask = ((BigInt(1) << 64) - 1) << (64 * i)
      lines(line) = (lines(line) & ~mask) | (value << (64 * i))
    }
    private def later: Int = now + least + random.nextInt(most - least + 1)

    /** Before the clock's edge: take requests and give answers for one cycle; out of order, with random ready. */
    def serve(port: ReadPort): Unit = {
      val waiting = reads.getOrElseUpdate(port, mutable.ArrayBuffer.empty)
      val due     = waiting.indexWhere(_._1 <= now)
      port.response.valid.poke(due >= 0)
      if (due >= 0) {
        val (_, tag, line) = waiting.remove(due)
        port.response.bits.tag.poke(tag)
        port.response.bits.data.poke(lines(line))
      }
      val ready = random.nextInt(4) != 0
      port.request.ready.poke(ready)
      if (ready && port.request.valid.peek().litToBoolean) {
        val tag = port.request.bits.tag.peek().litValue
        assert(!waiting.exists(_._2 == tag), s"tag $tag is outstanding already")
        waiting += ((later, tag, port.request.bits.line.peek().litValue))
        busyRead += 1
      }
    }
    def serve(port: WritePort): Unit = {
      val waiting = writes.getOrElseUpdate(port, mutable.ArrayBuffer.empty)
      val due     = waiting.indexWhere(_._1 <= now)
      port.done.valid.poke(due >= 0)
      if (due >= 0) {
        val (_, tag, line, data) = waiting.remove(due)
        port.done.bits.poke(tag)
        lines(line) = data
      }
      val ready = random.nextInt(4) != 0
      port.request.ready.poke(ready)
      if (ready && port.request.valid.peek().litToBoolean) {
        val tag = port.request.bits.tag.peek().litValue
        assert(!waiting.exists(_._2 == tag), s"tag $tag is outstanding already")
        val bits = port.request.bits
        waiting += ((later, tag, bits.line.peek().litValue, bits.data.peek().litValue))
        busyWrite += 1
      }
    }
    def outstanding(port: ReadPort): Seq[BigInt]  = reads.get(port).toSeq.flatMap(_.map(_._3))
    def outstanding(port: WritePort): Seq[BigInt] = writes.get(port).toSeq.flatMap(_.map(_._3))
    def tick(): Unit                              = now += 1
  }
}

object BlockTest {

  /** A failure whose message ends with the command that runs the unit again. */
  def withCommand(outcome: Outcome, unit: String, seed: => Option[Int]): Outcome = outcome match {
    case Failed(e) =>
      val again = s"; again: make test-rtl-units UNIT=$unit" + seed.fold("")(" MERAPI_SEED=" + _)
      Failed(e match {
        case m: ModifiableMessage[_] => m.modifyMessage(_.map(_ + again))
        case other                   => new RuntimeException(other.getMessage + again, other)
      })
    case _ => outcome
  }
}

object Config {
  val heapBase  = BigInt("600000000", 16)
  val limits    = 0x1000
  val live      = 0x2000
  val bitmap    = 0x3000
  val shapes    = 0x4000
  val extension = 0x5000
  val spill     = 0x6000
  val heap      = 0x10000
}
