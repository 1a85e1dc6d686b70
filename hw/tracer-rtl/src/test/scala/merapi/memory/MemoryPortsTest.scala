// SPDX-License-Identifier: Apache-2.0
package merapi.memory

import chisel3._

import merapi.BlockTest
import merapi.common.Contract

import scala.collection.mutable
import scala.util.Random

/** The memory boundary before several AXI ports that answer late and in any order, or in the cycle after, and that may
  * wait for what is offered before they are ready: each request is answered once, to who asked, with the data of its
  * line, which lies at the port of its address; what may not be reaches no port and is told; nobody is answered by an
  * error's data, nor before it is told. Of what is wrong at the same time one is told, whole.
  */
class MemoryPortsTest extends BlockTest {
  private val four                        = p.copy(ports = 4, interleaveLog2 = 7)
  private val (readers, writers)          = (4, 3)
  private val (readsExempt, writesExempt) = (1, 1)
  private val window                      = 96          // lines; the first half is never written
  private val shut                        = 80 until 84
  private val broken                      = 84 until 92 // answered by an error, at every port by SLVERR and by DECERR
  private val all                         = (BigInt(1) << 512) - 1

  private case class Read(line: Int, client: Int, tag: Int, since: Int)
  private case class Write(line: Int, client: Int, tag: Int, data: BigInt, since: Int)

  /** One AXI port on a memory that all share. */
  private class Port(axi: AxiPort, at: Int, random: Random, lines: mutable.Map[Int, BigInt]) {
    val reads, stores    = mutable.ArrayBuffer.empty[(Int, BigInt, Int)] // due, id, line
    private val places   = mutable.Queue.empty[(BigInt, Int)]
    private val datas    = mutable.Queue.empty[(BigInt, BigInt)]
    private var held     = Map.empty[String, Any]
    var crowded: Boolean = false
    var waits: Int  = 0 // 1: what is not offered finds no ready; 2: nor does one part of a write
    var errors: Int = 0 // answers in this cycle

    private def stays(name: String, offered: Boolean, ready: Boolean, what: => Any): Unit = {
      val now = if (offered) Some(what) else None
      for (before <- held.get(name)) assert(now.contains(before), s"port $at: $name was taken back")
      held = if (offered && !ready) held + (name -> now.get) else held - name
    }
    private def lineOf(address: AxiAddress): Int = {
      val a = address.addr.peek().litValue
      assert(a % 64 == 0 && address.len.peek().litValue == 0 && address.size.peek().litValue == 6)
      assert((a >> four.interleaveLog2) % four.ports == at, s"address ${a.toString(16)} at port $at")
      (a / 64).toInt
    }
    private def code(line: Int): Int = if (broken.contains(line)) Axi.slave + line % 2 else Axi.okay

    def serve(now: Int): Unit = {
      def later = now + 1 + random.nextInt(if (crowded) 40 else 8)
      def open  = random.nextInt(if (crowded) 6 else 2) == 0
      errors = 0
      for (
        (queue, channel, id, resp) <- Seq(
          (reads, axi.r, axi.r.bits.id, axi.r.bits.resp),
          (stores, axi.b, axi.b.bits.id, axi.b.bits.resp)
        )
      ) {
        val due = queue.indexWhere(_._1 <= now)
        channel.valid.poke(due >= 0)
        if (due >= 0) {
          val (_, tag, line) = queue(due)
          id.poke(tag)
          resp.poke(code(line))
          // An error comes with data of some sort.
          if (channel eq axi.r) axi.r.bits.data.poke(if (code(line) == Axi.okay) lines(line) else all)
          if (is(channel.ready)) {
            queue.remove(due)
            if (code(line) != Axi.okay) errors += 1
          } else queue.prepend(queue.remove(due)) // what is offered stays
        }
      }
      val (awHeld, wHeld) = (held.contains("aw"), held.contains("w"))
      val bothSeen        = (awHeld || places.size > datas.size) && (wHeld || datas.size > places.size)
      val write           = waits < 2 || bothSeen
      val ar              = open && (waits == 0 || held.contains("ar"))
      val aw              = open && (waits == 0 || awHeld) && write
      val w               = open && (waits == 0 || wHeld) && write
      axi.ar.ready.poke(ar)
      axi.aw.ready.poke(aw)
      axi.w.ready.poke(w)
      val (arValid, awValid, wValid) = (is(axi.ar.valid), is(axi.aw.valid), is(axi.w.valid))
      def address(a: AxiAddress)     = (a.id.peek().litValue, lineOf(a))
      stays("ar", arValid, ar, address(axi.ar.bits))
      stays("aw", awValid, aw, address(axi.aw.bits))
      stays("w", wValid, w, (axi.w.bits.data.peek().litValue, axi.w.bits.strb.peek().litValue))
      if (arValid && ar) {
        val (id, line) = address(axi.ar.bits)
        assert(line < window, s"line $line is read")
        assert(!reads.exists(_._2 == id), s"port $at: id $id twice")
        reads += ((later, id, line))
      }
      if (awValid && aw) places += address(axi.aw.bits)
      if (wValid && w) datas += ((axi.w.bits.data.peek().litValue, axi.w.bits.strb.peek().litValue))
      if (places.nonEmpty && datas.nonEmpty) {
        val (id, line)   = places.dequeue()
        val (data, strb) = datas.dequeue()
        assert(line >= window / 2 && line < window && !shut.contains(line), s"line $line is written")
        assert(!stores.exists(_._2 == id), s"port $at: id $id twice")
        val mask = (0 until 64).filter(strb.testBit).map(i => BigInt(255) << (8 * i)).sum
        if (!broken.contains(line)) lines(line) = (lines(line) & (all - mask)) | (data & mask)
        stores += ((later, id, line))
      }
    }
    def rests: Boolean = reads.isEmpty && stores.isEmpty && places.isEmpty && datas.isEmpty && held.isEmpty
  }

  test("answers each request once, from its port, and lets pass nothing else") {
    simulate(new MemoryPorts(four, readers, writers, readsExempt, writesExempt, together = 3)) { memory =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        restart(memory)
        val lines = mutable.Map.from((0 until window).map(i => i -> BigInt(512, random)))
        val ports = memory.io.axi.zipWithIndex.map { case (a, i) => new Port(a, i, random, lines) }
        memory.io.windowLines.poke(window)
        for ((g, i) <- memory.io.grants.zipWithIndex) {
          g.valid.poke(i < 2)
          g.first.poke(if (i == 0) window / 2 else shut.end)
          g.end.poke(if (i == 0) shut.start else window + 8)
        }
        val expected      = mutable.Map.from(lines.view.filterKeys(_ >= window / 2))
        val reads         = mutable.Map.empty[(Int, Int), Read]
        val writes        = mutable.Map.empty[(Int, Int), Write]
        val offeredReads  = Array.fill(readers)(Option.empty[Read])
        val offeredWrites = Array.fill(writers)(Option.empty[Write])
        // Requests that must be told of, as code and window offset, and whether each was: at most one at a time, or
        // several, of which those that come in the same cycle are told by one.
        val wrong                                       = mutable.Map.empty[(Int, BigInt), Boolean]
        var several                                     = false
        var told                                        = -1 // when, the last time
        var answered, faults, blocked, silent, together = 0
        def admits(wrongOne: Option[(Int, BigInt)]): Boolean =
          wrongOne.forall(w => if (several) !wrong.contains(w) else wrong.isEmpty)
        def wrongRead(line: Int): Option[(Int, BigInt)] =
          if (line >= window) Some((Contract.Fault.Truncated, BigInt(line) * 64))
          else if (broken.contains(line)) {
            Some((if (line % 2 == 0) Contract.Fault.Memory else Contract.Fault.Truncated, BigInt(line) * 64))
          } else None
        def wrongWrite(line: Int): Option[(Int, BigInt)] =
          if (line < window && (line < window / 2 || shut.contains(line)))
            Some((Contract.Fault.Guard, BigInt(line) * 64))
          else wrongRead(line)
        def over(wrongOne: Option[(Int, BigInt)], since: Int, suppressed: Boolean): Unit = {
          answered += 1
          for (w <- wrongOne) {
            assert(told > since || suppressed, s"seed $seed: answered before $w was told")
            wrong -= w
          }
        }
        // Each phase ends blocked and quiet, as before a reset; in some the core is silenced on the way.
        for (phase <- 0 until 12) {
          var suppress = false
          val either   = mutable.Set.empty[Any] // on their way then
          val end      = 300
          ports.foreach(_.crowded = random.nextBoolean())
          ports.foreach(_.waits = random.nextInt(3))
          several = phase % 2 == 1
          var t     = 0
          var quiet = false
          while (!quiet) {
            val now = phase * 10000 + t
            if (t == 60 && phase % 3 == 2) {
              suppress = true
              either ++= reads.values ++ writes.values ++ offeredReads.toSeq.flatten ++ offeredWrites.toSeq.flatten
            }
            memory.io.suppress.poke(suppress)
            // Nothing new, then nothing new of the core alone, while it is blocked.
            val stop  = t >= end
            val block = t >= end + 40
            memory.io.block.poke(block)
            for (c <- 0 until readers) {
              val exempt = c >= readers - readsExempt
              val port   = memory.io.reads(c).request
              if (offeredReads(c).isEmpty && !(stop && (exempt || !block)) && random.nextInt(3) == 0) {
                val tag = random.nextInt(1 << four.tagBits)
                val line =
                  if (several && random.nextBoolean()) broken(random.nextInt(broken.size))
                  else random.nextInt(window + 8)
                val may = line >= window || line < window / 2 || broken.contains(line)
                if (!reads.contains((c, tag)) && admits(wrongRead(line)) && may && !block) {
                  wrongRead(line).foreach(wrong(_) = false)
                  offeredReads(c) = Some(Read(line, c, tag, now))
                }
              }
              port.valid.poke(offeredReads(c).isDefined)
              for (r <- offeredReads(c)) {
                port.bits.line.poke(r.line)
                port.bits.tag.poke(r.tag)
              }
            }
            for (c <- 0 until writers) {
              val port = memory.io.writes(c).request
              if (offeredWrites(c).isEmpty && !stop && random.nextInt(3) == 0) {
                val tag = random.nextInt(1 << four.tagBits)
                val line =
                  if (random.nextInt(6) == 0) random.nextInt(window + 8) else window / 2 + random.nextInt(window / 2)
                val busy = (writes.values.toSeq ++ offeredWrites.toSeq.flatten).exists(_.line == line)
                if (!busy && !writes.contains((c, tag)) && admits(wrongWrite(line))) {
                  wrongWrite(line).foreach(wrong(_) = false)
                  offeredWrites(c) = Some(Write(line, c, tag, BigInt(512, random), now))
                }
              }
              port.valid.poke(offeredWrites(c).isDefined)
              for (w <- offeredWrites(c)) {
                port.bits.line.poke(w.line)
                port.bits.tag.poke(w.tag)
                port.bits.data.poke(w.data)
              }
            }
            ports.foreach(_.serve(now))
            if (ports.map(_.errors).sum > 1) together += 1

            if (is(memory.io.fault.valid)) {
              val f    = memory.io.fault.bits
              val have = (f.code.peek().litValue.toInt, f.address.peek().litValue)
              assert(wrong.get(have).contains(false), s"seed $seed: told of $have, wrong is $wrong")
              wrong(have) = true
              told = now
              faults += 1
            }
            for (c <- 0 until readers) {
              val core   = c < readers - readsExempt
              val answer = memory.io.reads(c).response
              if (is(answer.valid)) {
                val tag  = answer.bits.tag.peek().litValue.toInt
                val read = reads.remove((c, tag)).getOrElse(fail(s"seed $seed: client $c, tag $tag did not ask"))
                val data = answer.bits.data.peek().litValue
                if (suppress && core) silent += 1
                val none = (suppress && core) || wrongRead(read.line).isDefined
                assert(
                  data == (if (none) BigInt(0) else lines(read.line)) || (either(read) && data == lines(read.line)),
                  s"seed $seed: $read"
                )
                over(wrongRead(read.line), read.since, suppress && core)
              }
            }
            for (c <- 0 until writers) {
              val core = c < writers - writesExempt
              val done = memory.io.writes(c).done
              if (is(done.valid)) {
                val tag   = done.bits.peek().litValue.toInt
                val write = writes.remove((c, tag)).getOrElse(fail(s"seed $seed: client $c, tag $tag did not write"))
                if (!core) {
                  val failed = is(memory.io.failed(c - (writers - writesExempt)))
                  assert(failed == wrongWrite(write.line).isDefined, s"seed $seed: of $write, failed: $failed")
                }
                if (wrongWrite(write.line).isEmpty && suppress && core) {
                  silent += 1
                  if (either(write)) expected(write.line) = lines(write.line)
                } else if (wrongWrite(write.line).isEmpty) {
                  expected(write.line) = write.data
                  assert(
                    lines(write.line) == expected(write.line),
                    s"seed $seed: answered before it was written: $write"
                  )
                }
                over(wrongWrite(write.line), write.since, suppress && core)
              }
            }
            for (c <- 0 until readers; r <- offeredReads(c) if is(memory.io.reads(c).request.ready)) {
              reads((c, r.tag)) = r
              offeredReads(c) = None
            }
            for (c <- 0 until writers; w <- offeredWrites(c) if is(memory.io.writes(c).request.ready)) {
              writes((c, w.tag)) = w
              offeredWrites(c) = None
            }
            memory.clock.step()
            t += 1
            quiet = is(memory.io.quiet)
            if (quiet) {
              assert(
                block && reads.isEmpty && writes.isEmpty && ports.forall(_.rests),
                s"seed $seed: quiet with $reads"
              )
              blocked += 1
            }
            assert(t < 4000, s"seed $seed: requests $reads $writes are not answered")
          }
          for ((line, want) <- expected) assert(lines(line) == want, s"seed $seed: line $line was written, or was not")
          memory.io.block.poke(false)
          memory.clock.step(2)
        }
        assert(
          answered > 1500 && faults > 60 && silent > 100 && together > 20,
          s"seed $seed: $answered answered, $faults faults, $silent, $together times several"
        )
      }
    }
  }
}
