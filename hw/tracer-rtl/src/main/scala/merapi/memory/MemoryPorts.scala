// SPDX-License-Identifier: Apache-2.0
package merapi.memory

import chisel3._
import chisel3.util._

import merapi.common._
import merapi.primitives.{Fifo, TurnArbiter}

/** A range of lines that the tracer may write while it is valid. */
class WriteGrant(p: TracerParameters) extends Bundle {
  val valid                    = Bool()
  val first                    = UInt(p.lineAddress.W)
  val end                      = UInt((p.lineAddress + 1).W) // after the last
  def covers(line: UInt): Bool = valid && line >= first && line < end
}

object WriteGrant {

  /** Ranges that a tracer may write at a time (WriteGrants). */
  val count = 6
}

/** The memory boundary: every client's requests go to the AXI port of their address, and every answer goes back.
  *
  * The guard is here and nowhere else: a write outside the granted ranges or any access outside the window becomes a
  * fault and is answered from here, without reaching an AXI port. While `suppress` is set (after a fault) requests of
  * all clients but the last `exemptReaders` and `exemptWriters` (the control side) are answered the same way, reads with
  * zeros: the tracer drains and nothing it does is seen. An error response faults before its data, replaced by zeros, reaches
  * a client.
  *
  * A client's turn is decided a cycle before its request is taken (TurnArbiter), and an answer is registered once, for
  * all clients, with the fault that it may be: wide data is selected once each way.
  *
  * With several ports requests come from registers (RequestStage), and answers, which a port holds in a queue, go to one
  * register for `together` readers after each other (those of a tile): of all ports they take one answer a cycle. What
  * is wrong is told a cycle later, too.
  *
  * Why it cannot deadlock: clients take answers unconditionally, so the answers' path never waits for requests; each
  * port's request path waits for its AXI channel alone.
  */
class MemoryPorts(
    p: TracerParameters,
    readers: Int,
    writers: Int,
    exemptReaders: Int,
    exemptWriters: Int,
    together: Int = 1
) extends Module {
  val readIdBits  = p.tagBits + log2Ceil(readers)
  val writeIdBits = p.tagBits + log2Ceil(writers)
  val io = IO(new Bundle {
    val reads       = Vec(readers, Flipped(new ReadPort(p)))
    val writes      = Vec(writers, Flipped(new WritePort(p)))
    val axi         = Vec(p.ports, new AxiPort(p, readIdBits, writeIdBits))
    val windowLines = Input(UInt((p.lineAddress + 1).W))
    val grants      = Input(Vec(WriteGrant.count, new WriteGrant(p)))
    val suppress    = Input(Bool())
    val block       = Input(Bool()) // take no request of those clients at all: what is outstanding ends
    val fault       = Valid(new FaultReport)
    val failed     = Output(Vec(exemptWriters, Bool()))    // beside `done` of those: the write was not made
    val unread     = Output(Vec(exemptReaders, Bool()))    // beside `response` of those: zeros, and not the memory's
    val readLines  = Output(UInt(log2Ceil(p.ports + 1).W)) // answers taken from the memory in this cycle
    val wroteLines = Output(UInt(log2Ceil(p.ports + 1).W))
    val quiet      = Output(Bool())                        // with block: nothing of any client is outstanding
  })

  private def portOf(line: UInt): UInt =
    if (p.ports == 1) 0.U
    else line(p.interleaveLog2 - p.lineLog2 + log2Ceil(p.ports) - 1, p.interleaveLog2 - p.lineLog2)
  private def address(line: UInt): UInt = Cat(line, 0.U(p.lineLog2.W)).pad(64)

  private def blocked(client: Int, core: Int): Bool = if (client < core) blocking else false.B

  // A cycle old; so is who says that it is quiet.
  private val blocking = RegNext(io.block, false.B)

  /** Requests of all clients whose line is of this port; which of them are taken if they are there. */
  private def requests[T <: Data](
      port: Int,
      clients: Seq[DecoupledIO[T]],
      lineOf: T => UInt,
      core: Int,
      turns: TurnArbiter[T]
  ): Seq[Bool] =
    for ((client, i) <- clients.zipWithIndex) yield {
      val mine = portOf(lineOf(client.bits)) === port.U && !blocked(i, core)
      turns.io.in(i).valid := client.valid && mine
      turns.io.in(i).bits  := client.bits
      mine && turns.io.in(i).ready
    }

  class Answer extends Bundle {
    val id     = UInt(readIdBits.W)
    val data   = UInt(p.lineBits.W)
    val failed = Bool()
  }

  class Stored extends Bundle {
    val id     = UInt(writeIdBits.W)
    val failed = Bool()
  }

  /** Registered answers of one port: with a single port nothing but its client takes them, at once. */
  private def held[T <: Data](answer: DecoupledIO[T]): DecoupledIO[T] =
    if (p.ports > 1) Fifo(answer, 2)
    else {
      val out = Wire(chiselTypeOf(answer))
      out.valid    := RegNext(answer.valid, false.B)
      out.bits     := RegNext(answer.bits)
      answer.ready := true.B
      out
    }

  /** The answers that the clients take in this cycle, and how many those are. Of several ports the first goes first:
    * another's waits while the first has one for the same client in every cycle. That ends, since what a client can ask
    * for without the answer that waits is no more than a trace has.
    */
  private def toClients[T <: Data](
      answers: Seq[DecoupledIO[T]],
      clientOf: T => UInt,
      clients: Int,
      together: Int
  ): (Seq[Valid[T]], UInt) = {
    def isOf(a: DecoupledIO[T], client: Int): Bool = a.valid && clientOf(a.bits) === client.U
    def answer(valid: Bool, bits: T): Valid[T] = {
      val out = Wire(Valid(chiselTypeOf(bits)))
      out.valid := valid
      out.bits  := bits
      out
    }
    if (p.ports == 1) {
      val Seq(only) = answers
      only.ready := true.B
      ((0 until clients).map(i => answer(isOf(only, i), only.bits)), only.valid)
    } else {
      val (out, taken) = (0 until clients)
        .grouped(together)
        .map { group =>
          val theirs = answers.map(a => group.map(isOf(a, _)).reduce(_ || _))
          val first  = theirs.indices.map(k => theirs(k) && !theirs.take(k).foldLeft(false.B)(_ || _))
          val from   = OHToUInt(first)
          val bits   = RegNext(VecInit(answers.map(_.bits))(from))
          val now = group.map(i =>
            RegNext(VecInit(first.zip(answers).map { case (f, a) => f && isOf(a, i) }).asUInt.orR, false.B)
          )
          (now.map(answer(_, bits)), first)
        }
        .toSeq
        .unzip
      answers.zip(taken.transpose).foreach { case (a, by) => a.ready := by.reduce(_ || _) }
      (out.flatten, PopCount(out.flatten.map(_.valid)))
    }
  }
  private def late(fault: Valid[FaultReport]): Valid[FaultReport] = {
    val out = Wire(Valid(new FaultReport))
    out.valid := RegNext(fault.valid, false.B)
    out.bits  := RegNext(fault.bits)
    out
  }
  private def errorCode(response: UInt): UInt =
    Mux(response === Axi.decode.U, Contract.Fault.Truncated.U, Contract.Fault.Memory.U)

  val faults       = Seq.newBuilder[Valid[FaultReport]]
  val readAnswers  = Seq.newBuilder[DecoupledIO[Answer]]
  val writeAnswers = Seq.newBuilder[DecoupledIO[Stored]]
  val readsTaken   = Seq.newBuilder[Seq[Bool]]
  val writesTaken  = Seq.newBuilder[Seq[Bool]]
  val outstanding  = RegInit(0.U(((readIdBits max writeIdBits) + 2).W))
  val started      = Wire(Vec(2 * p.ports, Bool()))

  for (port <- 0 until p.ports) {
    val axi = io.axi(port)

    // Reads.
    val ar = Module(new TurnArbiter(new ReadRequest(p), readers))
    readsTaken += requests(port, io.reads.map(_.request), (r: ReadRequest) => r.line, readers - exemptReaders, ar)
    started(2 * port) := ar.io.taken
    ar.io.note        := 0.U(0.W)

    val arHead    = ar.io.out
    val arId      = Cat(ar.io.client, arHead.bits.tag)
    val arOutside = arHead.bits.line >= io.windowLines
    val arIsCore  = ar.io.client < (readers - exemptReaders).U
    // AXI: what was offered stays offered, whatever happens meanwhile.
    val arOffered = RegInit(false.B)
    val arSink    = (arOutside || (io.suppress && arIsCore)) && !arOffered
    val arLocal   = Module(new Fifo(UInt(readIdBits.W), 2))
    arLocal.io.enq.valid := arHead.valid && arSink
    arLocal.io.enq.bits  := arId
    axi.ar.valid         := arHead.valid && !arSink
    Axi.line(p, axi.ar.bits, arId, arHead.bits.line)
    arHead.ready := Mux(arSink, arLocal.io.enq.ready, axi.ar.ready)
    arOffered    := axi.ar.valid && !axi.ar.ready
    val arFault = Wire(Valid(new FaultReport))
    arFault.valid := arHead.valid && arOutside && !arOffered && !(io.suppress && arIsCore)
    arFault.bits  := FaultReport(Contract.Fault.Truncated, address(arHead.bits.line), 0.U)
    faults += late(arFault)

    // Where each outstanding read went, for the address of a memory fault.
    val readLine = SyncReadMem(1 << readIdBits, UInt(p.lineAddress.W))
    when(arHead.fire) { readLine.write(arId, arHead.bits.line) }

    // Answers of the memory before those from here, which are zero.
    val answer = Wire(Decoupled(new Answer))
    val rError = axi.r.bits.resp(1)
    answer.valid         := axi.r.valid || arLocal.io.deq.valid
    answer.bits.id       := Mux(axi.r.valid, axi.r.bits.id, arLocal.io.deq.bits)
    answer.bits.failed   := !axi.r.valid || rError
    answer.bits.data     := Mux(answer.bits.failed, 0.U, axi.r.bits.data)
    axi.r.ready          := answer.ready
    arLocal.io.deq.ready := answer.ready && !axi.r.valid
    readAnswers += held(answer)
    val rFault = Wire(Valid(new FaultReport))
    rFault.valid     := RegNext(axi.r.fire && rError, false.B)
    rFault.bits      := FaultReport(Contract.Fault.Memory, address(readLine.read(axi.r.bits.id)), 0.U)
    rFault.bits.code := RegNext(errorCode(axi.r.bits.resp))
    faults += rFault

    // Writes.
    val aw = Module(new TurnArbiter(new WriteRequest(p), writers, gather = true, noteBits = 1 + WriteGrant.count))
    writesTaken += requests(port, io.writes.map(_.request), (w: WriteRequest) => w.line, writers - exemptWriters, aw)
    started(2 * port + 1) := aw.io.taken

    val awHead   = aw.io.out
    val awId     = Cat(aw.io.client, awHead.bits.tag)
    val awIsCore = aw.io.client < (writers - exemptWriters).U
    // Judged a cycle before it is the head: nothing is taken back while a write is under way.
    aw.io.note := Cat(
      aw.io.next.line >= io.windowLines,
      VecInit(io.grants.map(_.covers(aw.io.next.line))).asUInt
    )
    val awOutside = aw.io.noted(WriteGrant.count)
    val awDenied  = awOutside || !aw.io.noted(WriteGrant.count - 1, 0).orR
    val awSilent  = io.suppress && awIsCore
    val awOffered = RegInit(false.B)
    val awSink    = (awDenied || awSilent) && !awOffered
    val awLocal   = Module(new Fifo(UInt(writeIdBits.W), 2))
    val awFault   = Wire(Valid(new FaultReport))
    awFault.valid := awHead.valid && awDenied && !awSilent && !awOffered
    awFault.bits  := FaultReport(Contract.Fault.Guard, address(awHead.bits.line), 0.U)
    when(awOutside) { awFault.bits.code := Contract.Fault.Truncated.U }
    faults += late(awFault)
    // Address and data leave independently; each is remembered as sent until both are.
    val awSent = RegInit(false.B)
    val wSent  = RegInit(false.B)
    axi.aw.valid := awHead.valid && !awSink && !awSent
    Axi.line(p, axi.aw.bits, awId, awHead.bits.line)
    axi.w.valid     := awHead.valid && !awSink && !wSent
    axi.w.bits.data := awHead.bits.data
    axi.w.bits.strb := Fill(p.lineBits / 8, 1.U(1.W))
    axi.w.bits.last := true.B
    val bothSent = (awSent || axi.aw.ready) && (wSent || axi.w.ready)
    awLocal.io.enq.valid := awHead.valid && awSink
    awLocal.io.enq.bits  := awId
    awHead.ready         := Mux(awSink, awLocal.io.enq.ready, bothSent)
    awOffered            := awHead.valid && !awSink && !bothSent
    when(awHead.valid && !awSink) {
      awSent := !bothSent && (awSent || axi.aw.ready)
      wSent  := !bothSent && (wSent || axi.w.ready)
    }

    val writeLine = SyncReadMem(1 << writeIdBits, UInt(p.lineAddress.W))
    when(awHead.fire) { writeLine.write(awId, awHead.bits.line) }
    val done = Wire(Decoupled(new Stored))
    done.valid           := axi.b.valid || awLocal.io.deq.valid
    done.bits.id         := Mux(axi.b.valid, axi.b.bits.id, awLocal.io.deq.bits)
    done.bits.failed     := !axi.b.valid || axi.b.bits.resp(1)
    axi.b.ready          := done.ready
    awLocal.io.deq.ready := done.ready && !axi.b.valid
    writeAnswers += held(done)
    val bFault = Wire(Valid(new FaultReport))
    bFault.valid     := RegNext(axi.b.fire && axi.b.bits.resp(1), false.B)
    bFault.bits      := FaultReport(Contract.Fault.Memory, address(writeLine.read(axi.b.bits.id)), 0.U)
    bFault.bits.code := RegNext(errorCode(axi.b.bits.resp))
    faults += bFault
  }

  private def takenByAny(ports: Seq[Seq[Bool]]): Seq[Bool] = ports.transpose.map(_.reduce(_ || _))
  io.reads.zip(takenByAny(readsTaken.result())).foreach { case (r, taken) => r.request.ready := taken }
  io.writes.zip(takenByAny(writesTaken.result())).foreach { case (w, taken) => w.request.ready := taken }

  // Answers: several ports may have one for the same client.
  val (reads, readsEnded) =
    toClients(readAnswers.result(), (a: Answer) => a.id >> p.tagBits, readers, together)
  val (stores, storesEnded) =
    toClients(writeAnswers.result(), (s: Stored) => s.id >> p.tagBits, writers, 1)
  io.reads.map(_.response).zip(reads).foreach { case (r, a) =>
    r.valid     := a.valid
    r.bits.tag  := a.bits.id(p.tagBits - 1, 0)
    r.bits.data := a.bits.data
  }
  io.writes.map(_.done).zip(stores).foreach { case (d, a) =>
    d.valid := a.valid
    d.bits  := a.bits.id(p.tagBits - 1, 0)
  }
  io.failed.zip(stores.takeRight(exemptWriters)).foreach { case (f, a) => f := a.bits.failed }
  io.unread.zip(reads.takeRight(exemptReaders)).foreach { case (u, a) => u := a.bits.failed }

  private val first = FaultReport.first(faults.result())
  io.fault      := (if (p.ports > 1) late(first) else first)
  io.readLines  := PopCount(io.axi.map(_.r.fire))
  io.wroteLines := PopCount(io.axi.map(_.b.fire))
  val ended = readsEnded +& storesEnded
  // A request is counted in the cycle after it was taken.
  val begun = started.map(s => RegNext(s, false.B))
  outstanding := outstanding + PopCount(begun) - ended
  io.quiet    := outstanding === 0.U && !begun.reduce(_ || _) && blocking
  assert(!(outstanding === 0.U && ended =/= 0.U && PopCount(begun) === 0.U), "an answer without a request")
}

/** A register for the requests of a client of several ports: which port they go to and whose turn it is there follows
  * from it. The next comes in the cycle in which one leaves or, `apart`, in the one after it: then nothing of a turn at
  * the ports reaches the client in the same cycle, for a request every other cycle.
  */
class RequestStage[T <: Data](gen: T, apart: Boolean = false) extends Module {
  val io = IO(new Bundle {
    val in  = Flipped(Decoupled(gen))
    val out = Decoupled(gen)
  })
  val valid = RegInit(false.B)
  io.in.ready  := !valid || (if (apart) false.B else io.out.ready)
  io.out.valid := valid
  io.out.bits  := RegEnable(io.in.bits, io.in.ready)
  when(io.in.ready) { valid := io.in.valid }
  if (apart) when(io.out.fire) { valid := false.B }
}
