// SPDX-License-Identifier: Apache-2.0
package merapi.contexts

import chisel3._

import merapi.BlockTest
import merapi.common.ContextParameters
import merapi.memory.AxiAddress

import scala.collection.mutable
import scala.util.Random

/** A port that three tracers share, before a memory that answers late and in any order, or in the cycle after, and that
  * may wait for what is offered before it is ready: each request leaves once, moved by
  * its context's base and with its number; data in the order of the addresses; each answer comes once, to who asked, also
  * when it lets answers wait; nobody waits for ever for its turn. Contexts close at any time: from then on nothing of theirs
  * is taken and no answer reaches them, and they are drained when, and only when, nothing of theirs is on its way.
  */
class SharedPortTest extends BlockTest {
  private val two                   = p.copy(ports = 2, interleaveLog2 = 7)
  private val c                     = ContextParameters("test", two, contexts = 3, memoryAddressBits = 43)
  private val (readBits, writeBits) = (4, 3)
  private val at                    = 1 // the port
  private val all                   = (BigInt(1) << 512) - 1
  private def data(address: BigInt) = ((address / 64) * BigInt("9e3779b97f4a7c15f39cc0605cedc835", 16)) & all

  private case class Request(context: Int, id: Int, address: BigInt, write: Boolean, value: BigInt, strobe: BigInt)

  /** A tracer's side of the port: what it offers until it is taken. */
  private class Tracer(val number: Int) {
    var read                  = Option.empty[Request]
    var write                 = Option.empty[Request]
    var awLater, wLater       = 0                      // cycles until address and data of `write` are offered
    var base, bytes           = BigInt(0)
    var open                  = false
    var waitsRead, waitsWrite = 0                      // cycles
    val readIds, writeIds     = mutable.Set.empty[Int] // outstanding
  }

  test("moves what each asks for, and gives the answers back") {
    simulate(new SharedPort(c, readBits, writeBits, at)) { port =>
      for (seed <- seeds(4)) {
        val random = new Random(seed)
        restart(port)
        val tracers                 = Seq.tabulate(c.contexts)(new Tracer(_))
        val taken                   = mutable.ArrayBuffer.empty[Request]        // on their way to the memory
        val places                  = mutable.Queue.empty[Request]              // writes whose address has left
        val datas                   = mutable.Queue.empty[(BigInt, BigInt)]
        val inMemory                = mutable.ArrayBuffer.empty[(Int, Request)] // due
        val held                    = mutable.Map.empty[String, Any]
        var answers, dropped, opens = 0
        var longest                 = 0

        def onTheirWay(i: Int) =
          taken.count(_.context == i) + places.count(_.context == i) + inMemory.count(_._2.context == i)
        def stays(name: String, offered: Boolean, ready: Boolean, what: => Any): Unit = {
          val now = if (offered) Some(what) else None
          for (before <- held.get(name)) assert(now.contains(before), s"seed $seed: $name was taken back")
          if (offered && !ready) held(name) = now.get else held.remove(name)
        }
        def request(t: Tracer, write: Boolean): Option[Request] = {
          val id   = random.nextInt(1 << (if (write) writeBits else readBits))
          val used = if (write) t.writeIds else t.readIds
          val line = BigInt(42, random) % (t.bytes / 64)
          val here = (line * 64).setBit(two.interleaveLog2) // this port's
          if (used(id) || here + 64 > t.bytes) None
          else Some(Request(t.number, id, here, write, BigInt(512, random), BigInt(64, random)))
        }
        for (t <- 0 until 4000) {
          val crowded = t / 400 % 2 == 1
          val last    = t > 3500
          for (x <- tracers) {
            val i = x.number
            if (!x.open && is(port.io.drained(i)) && random.nextInt(20) == 0 && !last) {
              x.bytes = BigInt(128) + BigInt(2 + random.nextInt(40), random)
              val room = (BigInt(1) << c.memoryAddressBits) - x.bytes
              x.base = (BigInt(43, random) % (room + 1)) / c.granule
              if (random.nextInt(8) == 0) x.base = room / c.granule
              port.io.windows(i).base.poke(x.base)
              port.io.windows(i).bytes.poke(x.bytes)
              x.open = true
              opens += 1
            } else if (x.open && random.nextInt(300) == 0) {
              // As in a reset: what it offered is gone, and it expects no answer.
              x.open = false
              x.read = None
              x.write = None
              x.readIds.clear()
              x.writeIds.clear()
            }
            port.io.open(i).poke(x.open)
            val often = if (crowded) 1 else 5
            if (x.open && x.read.isEmpty && !last && random.nextInt(often) == 0) {
              x.read = request(x, write = false)
              x.waitsRead = 0
            }
            if (x.open && x.write.isEmpty && !last && random.nextInt(often) == 0) {
              x.write = request(x, write = true)
              x.waitsWrite = 0
              x.awLater = random.nextInt(3)
              x.wLater = random.nextInt(3)
            }
            val io = port.io.tracers(i)
            // One that is closed may show anything.
            io.ar.valid.poke(x.read.isDefined || (!x.open && random.nextBoolean()))
            io.ar.bits.id.poke(x.read.map(_.id).getOrElse(0))
            io.ar.bits.addr.poke(x.read.map(_.address).getOrElse(BigInt(0)))
            io.aw.valid.poke((x.write.isDefined && x.awLater == 0) || (!x.open && random.nextBoolean()))
            io.aw.bits.id.poke(x.write.map(_.id).getOrElse(0))
            io.aw.bits.addr.poke(x.write.map(_.address).getOrElse(BigInt(0)))
            io.w.valid.poke((x.write.isDefined && x.wLater == 0) || (!x.open && random.nextBoolean()))
            io.w.bits.data.poke(x.write.map(_.value).getOrElse(BigInt(0)))
            io.w.bits.strb.poke(x.write.map(_.strobe).getOrElse(BigInt(0)))
            io.w.bits.last.poke(true)
            io.r.ready.poke(random.nextInt(3) != 0)
            io.b.ready.poke(random.nextInt(3) != 0)
          }
          // The memory.
          val axi                 = port.io.axi
          def due(write: Boolean) = inMemory.indexWhere(m => m._1 <= t && m._2.write == write)
          val (r, b)              = (due(write = false), due(write = true))
          axi.r.valid.poke(r >= 0)
          for ((_, q) <- inMemory.lift(r)) {
            axi.r.bits.id.poke((q.context << readBits) + q.id)
            axi.r.bits.data.poke(data(q.address))
            axi.r.bits.resp.poke((q.address / 64 % 4).toInt)
            axi.r.bits.last.poke(true)
          }
          axi.b.valid.poke(b >= 0)
          for ((_, q) <- inMemory.lift(b)) {
            axi.b.bits.id.poke((q.context << writeBits) + q.id)
            axi.b.bits.resp.poke((q.address / 64 % 4).toInt)
          }
          def open = random.nextInt(if (crowded) 4 else 2) == 0
          // A memory may be ready for what has been offered alone, and for either part of a write once both have been.
          val waits    = t / 200 % 3
          val (aw, w)  = (held.contains("aw"), held.contains("w"))
          val bothSeen = (aw || places.size > datas.size) && (w || datas.size > places.size)
          val writeGo  = waits < 2 || bothSeen
          val arGo     = open && (waits == 0 || held.contains("ar"))
          val awGo     = open && (waits == 0 || aw) && writeGo
          val wGo      = open && (waits == 0 || w) && writeGo
          axi.ar.ready.poke(arGo)
          axi.aw.ready.poke(awGo)
          axi.w.ready.poke(wGo)

          // What is drained, before this cycle's requests.
          for (x <- tracers) {
            val none = onTheirWay(x.number) == 0
            assert(is(port.io.drained(x.number)) == none, s"seed $seed: context ${x.number} drained, at cycle $t")
          }
          // Answers.
          for ((write, which) <- Seq((false, r), (true, b)) if which >= 0) {
            val q     = inMemory(which)._2
            val there = tracers(q.context)
            val fired = if (write) fires(axi.b) else fires(axi.r)
            for (x <- tracers) {
              val (valid, ready) =
                if (write) (is(port.io.tracers(x.number).b.valid), is(port.io.tracers(x.number).b.ready))
                else (is(port.io.tracers(x.number).r.valid), is(port.io.tracers(x.number).r.ready))
              assert(valid == (x == there && x.open), s"seed $seed: $q comes to context ${x.number}")
              if (x == there) assert(fired == (ready || !x.open), s"seed $seed: $q")
            }
            if (there.open && fired) {
              val io = port.io.tracers(q.context)
              if (write) {
                assert(io.b.bits.id.peek().litValue == q.id && io.b.bits.resp.peek().litValue == q.address / 64 % 4)
                assert(there.writeIds.remove(q.id))
              } else {
                assert(io.r.bits.id.peek().litValue == q.id && io.r.bits.resp.peek().litValue == q.address / 64 % 4)
                assert(io.r.bits.data.peek().litValue == data(q.address))
                assert(there.readIds.remove(q.id))
              }
              answers += 1
            } else if (fired) dropped += 1
          }
          // What leaves.
          def leaves(a: AxiAddress, write: Boolean): Request = {
            val bits    = if (write) writeBits else readBits
            val id      = a.id.peek().litValue.toInt
            val address = a.addr.peek().litValue
            assert(a.len.peek().litValue == 0 && a.size.peek().litValue == 6 && a.burst.peek().litValue == 1)
            assert((address >> two.interleaveLog2) % two.ports == at, s"seed $seed: address ${address.toString(16)}")
            taken
              .find(q =>
                q.write == write && q.context == id >> bits && q.id == id % (1 << bits) &&
                  q.address + tracers(q.context).base * c.granule == address
              )
              .getOrElse(fail(s"seed $seed: nobody asked for id $id at ${address.toString(16)}"))
          }
          val (arValid, awValid, wValid) = (is(axi.ar.valid), is(axi.aw.valid), is(axi.w.valid))
          val arNow                      = if (arValid) Some(leaves(axi.ar.bits, write = false)) else None
          val awNow                      = if (awValid) Some(leaves(axi.aw.bits, write = true)) else None
          val wNow                       = (axi.w.bits.data.peek().litValue, axi.w.bits.strb.peek().litValue)
          stays("ar", arValid, arGo, arNow)
          stays("aw", awValid, awGo, awNow)
          stays("w", wValid, wGo, wNow)
          // What is taken: a write's address and data together.
          val begun = for (x <- tracers) yield {
            val io = port.io.tracers(x.number)
            val aw = is(io.aw.valid) && is(io.aw.ready)
            val w  = is(io.w.valid) && is(io.w.ready)
            assert(aw == w, s"seed $seed: half a write of context ${x.number}")
            val ar = is(io.ar.valid) && is(io.ar.ready)
            assert(x.open || (!ar && !aw), s"seed $seed: taken from context ${x.number}, which is closed")
            (ar, aw)
          }
          // The edge.
          if (arValid && arGo) {
            taken -= arNow.get
            inMemory += ((t + 1 + random.nextInt(if (crowded) 60 else 8), arNow.get))
          }
          if (awValid && awGo) {
            taken -= awNow.get
            places += awNow.get
          }
          if (wValid && wGo) datas += wNow
          for ((x, (ar, aw)) <- tracers.zip(begun)) {
            if (ar) {
              taken += x.read.get
              x.readIds += x.read.get.id
              x.read = None
            } else x.waitsRead += (if (x.read.isDefined) 1 else 0)
            if (aw) {
              taken += x.write.get
              x.writeIds += x.write.get.id
              x.write = None
            } else x.waitsWrite += (if (x.write.isDefined) 1 else 0)
            x.awLater = (x.awLater - 1) max 0
            x.wLater = (x.wLater - 1) max 0
            longest = longest max x.waitsRead max x.waitsWrite
          }
          // What was offered stays offered.
          val (over, stay) = Seq((r, is(axi.r.ready)), (b, is(axi.b.ready)))
            .collect { case (k, ready) if k >= 0 => (inMemory(k), ready) }
            .partition(_._2)
          inMemory --= (over ++ stay).map(_._1)
          inMemory.prependAll(stay.map(_._1))
          while (places.nonEmpty && datas.nonEmpty) {
            val (q, d) = (places.dequeue(), datas.dequeue())
            assert(d == ((q.value, q.strobe)), s"seed $seed: data of another write with $q")
            inMemory += ((t + 1 + random.nextInt(if (crowded) 60 else 8), q))
          }
          port.clock.step()
        }
        assert(
          taken.isEmpty && places.isEmpty && inMemory.isEmpty,
          s"seed $seed: ${taken.size + places.size + inMemory.size} requests are not answered"
        )
        assert(answers > 800 && dropped > 20 && opens > 12, s"seed $seed: $answers answers, $dropped dropped, $opens")
        assert(longest < 80, s"seed $seed: a context waited for $longest cycles")
      }
    }
  }
}
