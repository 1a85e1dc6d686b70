// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** A range of lines that the tracer may write while it is valid. */
class WriteGrant(p: TracerParameters) extends Bundle {
  val valid                    = Bool()
  val first                    = UInt(p.lineAddress.W)
  val end                      = UInt((p.lineAddress + 1).W) // after the last
  def covers(line: UInt): Bool = valid && line >= first && line < end
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
  * Why it cannot deadlock: clients take answers unconditionally, so the answers' path never waits for requests; each
  * port's request path waits for its AXI channel alone.
  */
class MemoryPorts(p: TracerParameters, readers: Int, writers: Int, exemptReaders: Int, exemptWriters: Int)
    extends Module {
  val readIdBits  = p.tagBits + log2Ceil(readers)
  val writeIdBits = p.tagBits + log2Ceil(writers)
  val io = IO(new Bundle {
    val reads       = Vec(readers, Flipped(new ReadPort(p)))
    val writes      = Vec(writers, Flipped(new WritePort(p)))
    val axi         = Vec(p.ports, new AxiPort(p, readIdBits, writeIdBits))
    val windowLines = Input(UInt((p.lineAddress + 1).W))
    val grants      = Input(Vec(WriteGrants.count, new WriteGrant(p)))
    val suppress    = Input(Bool())
    val block       = Input(Bool()) // take no request of those clients at all: what is outstanding ends
    val fault       = Valid(new FaultReport)
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

  /** Requests of all clients whose line is of this port. */
  private def requests[T <: Data](
      port: Int,
      clients: Seq[DecoupledIO[T]],
      lineOf: T => UInt,
      core: Int,
      turns: TurnArbiter[T]
  ): Unit =
    for ((client, i) <- clients.zipWithIndex) {
      val mine = portOf(lineOf(client.bits)) === port.U && !blocked(i, core)
      turns.io.in(i).valid := client.valid && mine
      turns.io.in(i).bits  := client.bits
      when(mine) { client.ready := turns.io.in(i).ready }
    }

  class Answer extends Bundle {
    val id   = UInt(readIdBits.W)
    val data = UInt(p.lineBits.W)
  }

  /** Registered answers of one port: with a single port nothing but its client takes them, at once. */
  private def held[T <: Data](answer: DecoupledIO[T]): DecoupledIO[T] =
    if (p.ports > 1) Queue(answer, 2)
    else {
      val out = Wire(chiselTypeOf(answer))
      out.valid    := RegNext(answer.valid, false.B)
      out.bits     := RegNext(answer.bits)
      answer.ready := true.B
      out
    }

  /** The answer that client i takes in this cycle. */
  private def toClient[T <: Data](answers: Seq[DecoupledIO[T]], clientOf: T => UInt, i: Int): Valid[T] = {
    val out  = Wire(Valid(chiselTypeOf(answers.head.bits)))
    val mine = answers.map(a => a.valid && clientOf(a.bits) === i.U)
    out.valid := mine.reduce(_ || _)
    out.bits  := PriorityMux(mine, answers.map(_.bits))
    for ((a, k) <- answers.zipWithIndex) {
      val first = mine.take(k).foldLeft(true.B)((free, m) => free && !m)
      when(mine(k) && first) { a.ready := true.B }
    }
    out
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
  val writeAnswers = Seq.newBuilder[DecoupledIO[UInt]]
  io.reads.foreach(_.request.ready := false.B)
  io.writes.foreach(_.request.ready := false.B)
  val outstanding = RegInit(0.U(((readIdBits max writeIdBits) + 2).W))
  val started     = Wire(Vec(2 * p.ports, Bool()))

  for (port <- 0 until p.ports) {
    val axi = io.axi(port)

    // Reads.
    val ar = Module(new TurnArbiter(new ReadRequest(p), readers))
    requests(port, io.reads.map(_.request), (r: ReadRequest) => r.line, readers - exemptReaders, ar)
    started(2 * port) := ar.io.taken
    ar.io.note        := 0.U

    val arHead    = ar.io.out
    val arId      = Cat(ar.io.client, arHead.bits.tag)
    val arOutside = arHead.bits.line >= io.windowLines
    val arIsCore  = ar.io.client < (readers - exemptReaders).U
    // AXI: what was offered stays offered, whatever happens meanwhile.
    val arOffered = RegInit(false.B)
    val arSink    = (arOutside || (io.suppress && arIsCore)) && !arOffered
    val arLocal   = Module(new Queue(UInt(readIdBits.W), 2))
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
    answer.bits.data     := Mux(!axi.r.valid || rError, 0.U, axi.r.bits.data)
    axi.r.ready          := answer.ready
    arLocal.io.deq.ready := answer.ready && !axi.r.valid
    readAnswers += held(answer)
    val rFault = Wire(Valid(new FaultReport))
    rFault.valid     := RegNext(axi.r.fire && rError, false.B)
    rFault.bits      := FaultReport(Contract.Fault.Memory, address(readLine.read(axi.r.bits.id)), 0.U)
    rFault.bits.code := RegNext(errorCode(axi.r.bits.resp))
    faults += rFault

    // Writes.
    val aw = Module(new TurnArbiter(new WriteRequest(p), writers, gather = true, noteBits = 2))
    requests(port, io.writes.map(_.request), (w: WriteRequest) => w.line, writers - exemptWriters, aw)
    started(2 * port + 1) := aw.io.taken

    val awHead   = aw.io.out
    val awId     = Cat(aw.io.client, awHead.bits.tag)
    val awIsCore = aw.io.client < (writers - exemptWriters).U
    // Judged a cycle before it is the head: nothing is taken back while a write is under way.
    aw.io.note := Cat(
      aw.io.next.line >= io.windowLines,
      VecInit(io.grants.map(_.covers(aw.io.next.line))).asUInt.orR
    )
    val awOutside = aw.io.noted(1)
    val awDenied  = awOutside || !aw.io.noted(0)
    val awSilent  = io.suppress && awIsCore
    val awOffered = RegInit(false.B)
    val awSink    = (awDenied || awSilent) && !awOffered
    val awLocal   = Module(new Queue(UInt(writeIdBits.W), 2))
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
    axi.w.bits.strb := Cat(Fill(32, awHead.bits.halves(1)), Fill(32, awHead.bits.halves(0)))
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
    val done = Wire(Decoupled(UInt(writeIdBits.W)))
    done.valid           := axi.b.valid || awLocal.io.deq.valid
    done.bits            := Mux(axi.b.valid, axi.b.bits.id, awLocal.io.deq.bits)
    axi.b.ready          := done.ready
    awLocal.io.deq.ready := done.ready && !axi.b.valid
    writeAnswers += held(done)
    val bFault = Wire(Valid(new FaultReport))
    bFault.valid     := RegNext(axi.b.fire && axi.b.bits.resp(1), false.B)
    bFault.bits      := FaultReport(Contract.Fault.Memory, address(writeLine.read(axi.b.bits.id)), 0.U)
    bFault.bits.code := RegNext(errorCode(axi.b.bits.resp))
    faults += bFault
  }

  // Answers: each client takes one a cycle; several ports may have one for the same client.
  val reads  = readAnswers.result()
  val stores = writeAnswers.result()
  reads.foreach(_.ready := false.B)
  stores.foreach(_.ready := false.B)
  io.reads.map(_.response).zipWithIndex.foreach { case (r, i) =>
    val a = toClient(reads, (a: Answer) => a.id >> p.tagBits, i)
    r.valid     := a.valid
    r.bits.tag  := a.bits.id(p.tagBits - 1, 0)
    r.bits.data := a.bits.data
  }
  io.writes.map(_.done).zipWithIndex.foreach { case (d, i) =>
    val a = toClient(stores, (id: UInt) => id >> p.tagBits, i)
    d.valid := a.valid
    d.bits  := a.bits(p.tagBits - 1, 0)
  }

  io.fault      := FaultReport.first(faults.result())
  io.readLines  := PopCount(io.axi.map(_.r.fire))
  io.wroteLines := PopCount(io.axi.map(_.b.fire))
  val ended = PopCount(reads.map(_.fire) ++ stores.map(_.fire))
  // A request is counted in the cycle after it was taken.
  val begun = started.map(s => RegNext(s, false.B))
  outstanding := outstanding + PopCount(begun) - ended
  io.quiet    := outstanding === 0.U && !begun.reduce(_ || _) && blocking
  assert(!(outstanding === 0.U && ended =/= 0.U && PopCount(begun) === 0.U), "an answer without a request")
}
