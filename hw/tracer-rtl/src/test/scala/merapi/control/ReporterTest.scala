// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._

import merapi.{BlockTest, Config}
import merapi.common.Contract

import scala.collection.mutable
import scala.util.Random

/** The completion ring before a host that reads when it likes: every object is reported once, every klass at least once
  * since klasses were forgotten, each before the control unit's entry that follows it; entries have their slots, numbers
  * and cycle; none is written over one that was not read, and none is counted before it is in memory.
  */
class ReporterTest extends BlockTest {
  private val two     = p.copy(lanes = 2, seenKlasses = 8)
  private val entries = 8
  import Contract.{Comp, CompletionLayout => L}

  test("reports everything, and before what follows it") {
    simulate(new Reporter(two)) { reporter =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        configure(reporter.io.config, 64)
        reporter.io.ring.poke(Config.spill)
        reporter.io.ringLog2.poke(3)
        for (
          input <- Seq(reporter.io.flush, reporter.io.restart, reporter.io.drop, reporter.io.forget, reporter.io.failed)
        )
          input.poke(false)
        reporter.io.seen.foreach(_.valid.poke(false))
        reporter.io.deferred.foreach(_.valid.poke(false))
        reporter.io.control.valid.poke(false)
        restart(reporter)
        var objects, klasses, sent, fulls = 0
        for (round <- 0 until 5) {
          val memory  = new Memory(random, 2, 20)
          val cycleId = BigInt(32, random)
          reporter.io.cycle.poke(cycleId)
          reporter.io.consumed.poke(0)
          reporter.io.restart.poke(true)
          reporter.io.forget.poke(true)
          reporter.clock.step()
          reporter.io.restart.poke(false)
          reporter.io.forget.poke(false)
          // What was sent: objects with their flags, each once; klasses; of entries of the control unit, what was before.
          val toReport  = mutable.LinkedHashMap.empty[BigInt, Boolean]
          val toSee     = mutable.Set.empty[BigInt]
          val controls  = mutable.Queue.empty[(BigInt, Set[BigInt], Set[BigInt])]
          val reported  = mutable.Set.empty[BigInt]
          val seen      = mutable.Set.empty[BigInt]
          var offered   = Option.empty[BigInt]
          val deferring = Array.fill(2)(Option.empty[(BigInt, Boolean)])
          val showing   = Array.fill(2)(Option.empty[BigInt])
          var consumed  = 0
          var answered  = 0
          var number    = random.nextInt(1000)
          val words     = Seq.fill(14)(BigInt(48, random))
          val slow      = round % 2 == 1
          var held      = false
          var mayHold   = true
          var answers   = false // an entry of the control unit is on its way

          def read(i: Int): Unit = {
            val entry                      = memory.lines(Config.spill + i % entries)
            def field(at: Int, bytes: Int) = (entry >> (8 * at)) & ((BigInt(1) << (8 * bytes)) - 1)
            val batch                      = field(L.Type, 1) == Comp.Defer || field(L.Type, 1) == Comp.ShapeSeen
            assert(
              field(L.Sequence, 4) == i + 1 && field(L.Cycle, 4) == (if (batch) cycleId else cycleId ^ field(L.Arg, 4)),
              s"seed $seed: number and cycle of entry $i"
            )
            val count   = field(L.Count, 2).toInt
            val payload = (0 until 6).map(k => field(L.Payload + 8 * k, 8))
            assert(payload.drop(count).forall(_ == 0) || field(L.Type, 1) == Comp.Done, s"seed $seed: entry $i")
            field(L.Type, 1).toInt match {
              case Comp.Defer =>
                assert(count >= 1 && count <= 6 && field(L.Flags, 1) <= 1 && field(L.Arg, 4) == 0)
                for (address <- payload.take(count)) {
                  val obj = (address - Config.heapBase) / 8
                  assert(
                    toReport.get(obj).contains(field(L.Flags, 1) == 1),
                    s"seed $seed: object $obj, flags of entry $i"
                  )
                  assert(reported.add(obj), s"seed $seed: object $obj is reported twice")
                  objects += 1
                }
              case Comp.ShapeSeen =>
                assert(count >= 1 && count <= 6 && field(L.Flags, 1) == 0 && field(L.Arg, 4) == 0)
                for (klass <- payload.take(count)) {
                  assert(toSee(klass), s"seed $seed: klass $klass was not seen")
                  seen += klass
                  klasses += 1
                }
              case kind =>
                val (want, before, shown) = controls.dequeue()
                assert((entry & ((BigInt(1) << 448) - 1)) == want, s"seed $seed: entry $i, of kind $kind")
                assert(before.subsetOf(reported), s"seed $seed: entry $i before objects ${before -- reported}")
                assert(shown.subsetOf(seen), s"seed $seed: entry $i before klasses ${shown -- seen}")
            }
          }
          def cycle(offers: Boolean, mayOffer: Boolean = false): Unit = {
            for (i <- 0 until 2) {
              if (offers && deferring(i).isEmpty && random.nextInt(6) == 0) {
                number += 1
                deferring(i) = Some((BigInt(number), random.nextInt(3) == 0))
              }
              val d = reporter.io.deferred(i)
              d.valid.poke(deferring(i).isDefined)
              deferring(i).foreach { case (obj, unsized) =>
                d.bits.obj.poke(obj)
                d.bits.unsized.poke(unsized)
              }
              if (offers && showing(i).isEmpty && random.nextInt(5) == 0)
                showing(i) = Some(words(random.nextInt(words.size)))
              reporter.io.seen(i).valid.poke(showing(i).isDefined)
              showing(i).foreach(reporter.io.seen(i).bits.poke(_))
            }
            if (mayOffer && offered.isEmpty && random.nextInt(40) == 0) offered = Some(BigInt(32 + 384, random))
            val c = reporter.io.control
            c.valid.poke(offered.isDefined)
            for (value <- offered) {
              c.bits.kind.poke(Comp.Done)
              c.bits.flags.poke(0)
              c.bits.count.poke(0)
              c.bits.arg.poke(value & 0xffffffffL)
              c.bits.cycle.poke(cycleId ^ (value & 0xffffffffL))
              for (k <- 0 until 6) c.bits.payload(k).poke((value >> (32 + 64 * k)) & ((BigInt(1) << 64) - 1))
            }
            val written = reporter.io.written.peek().litValue.toInt
            assert(written <= answered, s"seed $seed: $written entries counted, $answered in memory")
            if (random.nextInt(if (slow) 80 else 10) == 0) while (consumed < written) {
              read(consumed)
              consumed += 1
            }
            reporter.io.consumed.poke(consumed)
            if (is(reporter.io.full)) {
              assert(reporter.io.produced.peek().litValue <= consumed + entries)
              fulls += 1
            }
            // A pause begins when nothing is to be written.
            val wasHeld = held
            if (held) held = mayHold && random.nextInt(40) != 0
            else held = mayHold && !is(reporter.io.write.request.valid) && random.nextInt(60) == 0
            reporter.io.hold.poke(held)
            assert(!(wasHeld && held && is(reporter.io.write.request.valid)), s"seed $seed: an entry in a pause")
            val before = memory.busyWrite
            memory.serve(reporter.io.write)
            if (memory.busyWrite > before) {
              val place = memory.outstanding(reporter.io.write).last - Config.spill
              assert(place == before % entries, s"seed $seed: entry $before in slot $place")
              assert(before < consumed + entries, s"seed $seed: entry $before over one that was not read")
            }
            assert(!answers || is(reporter.io.doneWaits), s"seed $seed: an answer waits")
            if (is(reporter.io.write.done.valid)) {
              answered += 1
              answers = false
            }
            // The control unit's entry first: what comes beside it is not before it.
            if (fires(c)) {
              val bits = BigInt(Comp.Done) | ((offered.get & 0xffffffffL) << 32) | ((offered.get >> 32) << 64)
              controls.enqueue((bits, toReport.keySet.toSet, toSee.toSet))
              offered = None
              answers = true
              sent += 1
            }
            for (i <- 0 until 2) {
              if (fires(reporter.io.deferred(i))) {
                toReport += deferring(i).get
                deferring(i) = None
              }
              if (fires(reporter.io.seen(i))) {
                toSee += showing(i).get
                showing(i) = None
              }
            }
            reporter.clock.step()
            memory.tick()
          }
          for (t <- 0 until 700) {
            reporter.io.flush.poke(t % 200 > 180)
            cycle(offers = t % 230 < 60, mayOffer = true)
          }
          def offering = offered.isDefined || deferring.exists(_.isDefined) || showing.exists(_.isDefined)
          if (round % 3 == 2) {
            // An abort: what was not written is dropped.
            deferring.indices.foreach { i =>
              deferring(i) = None
              showing(i) = None
            }
            offered = None
            answers = false
            reporter.io.drop.poke(true)
            mayHold = false
            var t = 0
            while (!is(reporter.io.quiet) || t < 3) {
              cycle(offers = false)
              t += 1
              assert(t < 200, s"seed $seed: no quiet")
            }
            val count = memory.busyWrite
            for (_ <- 0 until 30) cycle(offers = false)
            assert(memory.busyWrite == count, s"seed $seed: an entry after an abort")
            assert(is(reporter.io.empty), s"seed $seed: not empty after an abort")
            reporter.io.drop.poke(false)
          } else {
            reporter.io.flush.poke(true)
            mayHold = false
            var t = 0
            while (offering || !is(reporter.io.empty) || consumed < reporter.io.written.peek().litValue) {
              cycle(offers = false)
              t += 1
              assert(t < 3000, s"seed $seed: not empty")
            }
            reporter.io.flush.poke(false)
            assert(
              reported == toReport.keySet && seen == toSee && controls.isEmpty,
              s"seed $seed: something was not reported"
            )
          }
          reporter.io.write.done.valid.poke(false)
        }
        assert(
          objects > 150 && klasses > 60 && sent > 8 && fulls > 20,
          s"seed $seed: $objects, $klasses, $sent, $fulls"
        )
      }
    }
  }

  test("does not count an entry whose write failed, and counts any other") {
    simulate(new Reporter(two)) { reporter =>
      for (seed <- seeds(2)) {
        val random = new Random(seed)
        configure(reporter.io.config, 64)
        reporter.io.ring.poke(Config.spill)
        reporter.io.ringLog2.poke(3)
        reporter.io.cycle.poke(1)
        for (input <- Seq(reporter.io.flush, reporter.io.drop, reporter.io.forget, reporter.io.failed))
          input.poke(false)
        reporter.io.seen.foreach(_.valid.poke(false))
        reporter.io.deferred.foreach(_.valid.poke(false))
        reporter.io.write.done.valid.poke(false)
        restart(reporter)
        reporter.io.restart.poke(true)
        reporter.clock.step()
        reporter.io.restart.poke(false)
        var counted, failed = 0
        for (_ <- 0 until 40) {
          reporter.io.consumed.poke(counted)
          reporter.io.control.valid.poke(true)
          reporter.io.control.bits.kind.poke(Comp.Fault)
          while (!fires(reporter.io.control)) reporter.clock.step()
          reporter.clock.step()
          reporter.io.control.valid.poke(false)
          reporter.io.write.request.ready.poke(true)
          while (!is(reporter.io.write.request.valid)) reporter.clock.step()
          val request = reporter.io.write.request.bits
          assert(request.line.peek().litValue == Config.spill + counted % entries, s"seed $seed: its slot")
          assert(
            ((request.data.peek().litValue >> (8 * L.Sequence)) & 0xffff) == counted + 1,
            s"seed $seed: its number"
          )
          reporter.clock.step()
          reporter.io.write.request.ready.poke(false)
          reporter.clock.step(random.nextInt(4))
          reporter.io.write.done.valid.poke(true)
          reporter.io.write.done.bits.poke(0)
          val fails = random.nextInt(3) == 0
          reporter.io.failed.poke(fails)
          reporter.clock.step()
          reporter.io.write.done.valid.poke(false)
          // What others are told of faults in the next cycle says nothing of this write.
          reporter.io.failed.poke(random.nextBoolean())
          reporter.io.drop.poke(fails || random.nextBoolean())
          assert(reporter.io.written.peek().litValue == counted, s"seed $seed: counted before it is known to be good")
          reporter.clock.step()
          reporter.io.drop.poke(false)
          if (fails) failed += 1 else counted += 1
          assert(reporter.io.written.peek().litValue == counted, s"seed $seed: a write that failed: $fails")
          assert(reporter.io.produced.peek().litValue == counted)
        }
        assert(counted > 15 && failed > 5, s"seed $seed: $counted counted, $failed not")
      }
    }
  }
}
