// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** A range of lines that the tracer may write while it is valid. */
class WriteGrant(p: TracerParameters) extends Bundle {
  val valid = Bool()
  val first = UInt(p.lineAddress.W)
  val count = UInt(p.lineAddress.W)
  def covers(line: UInt): Bool = valid && line >= first && (line - first) < count
}

/** The memory boundary: every client's requests go to the AXI port of their address, and every answer goes back.
  *
  * The guard is here and nowhere else: a write outside the granted ranges or any access outside the window becomes a
  * fault and is answered from here, without reaching an AXI port. While `suppress` is set (after a fault) requests of
  * all clients but the last `exemptReaders` and `exemptWriters` (the control side) are answered the same way, reads with
  * zeros: the tracer drains and nothing it does is seen. An error response faults before its data, replaced by zeros, reaches
  * a client.
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
    val readLines   = Output(UInt(log2Ceil(p.ports + 1).W)) // answers taken from the memory in this cycle
    val wroteLines  = Output(UInt(log2Ceil(p.ports + 1).W))
    val quiet       = Output(Bool()) // nothing of any client is outstanding
  })

  private def portOf(line: UInt): UInt =
    if (p.ports == 1) 0.U else line(p.interleaveLog2 - p.lineLog2 + log2Ceil(p.ports) - 1, p.interleaveLog2 - p.lineLog2)
  private def address(line: UInt): UInt = Cat(line, 0.U(p.lineLog2.W)).pad(64)

  private def blocked(client: Int, core: Int): Bool = if (client < core) io.block else false.B

  class Answer extends Bundle {
    val id   = UInt(readIdBits.W)
    val data = UInt(p.lineBits.W)
  }

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
    val ar = Module(new RRArbiter(new ReadRequest(p), readers))
    for ((client, i) <- io.reads.zipWithIndex) {
      val mine = portOf(client.request.bits.line) === port.U
      ar.io.in(i).valid := client.request.valid && mine && !blocked(i, readers - exemptReaders)
      ar.io.in(i).bits  := client.request.bits
      when(mine) { client.request.ready := ar.io.in(i).ready && !blocked(i, readers - exemptReaders) }
    }
    val arQueue = Module(new Queue(new Bundle { val id = UInt(readIdBits.W); val line = UInt(p.lineAddress.W) }, 2))
    arQueue.io.enq.valid     := ar.io.out.valid
    arQueue.io.enq.bits.id   := Cat(ar.io.chosen, ar.io.out.bits.tag)
    arQueue.io.enq.bits.line := ar.io.out.bits.line
    ar.io.out.ready          := arQueue.io.enq.ready
    started(2 * port)        := arQueue.io.enq.fire

    val arHead    = arQueue.io.deq
    val arOutside = arHead.bits.line >= io.windowLines
    val arIsCore  = (arHead.bits.id >> p.tagBits) < (readers - exemptReaders).U
    // AXI: what was offered stays offered, whatever happens meanwhile.
    val arOffered = RegInit(false.B)
    val arSink    = (arOutside || (io.suppress && arIsCore)) && !arOffered
    val arLocal   = Module(new Queue(UInt(readIdBits.W), 2))
    arLocal.io.enq.valid := arHead.valid && arSink
    arLocal.io.enq.bits  := arHead.bits.id
    axi.ar.valid         := arHead.valid && !arSink
    Axi.line(p, axi.ar.bits, arHead.bits.id, arHead.bits.line)
    arHead.ready := Mux(arSink, arLocal.io.enq.ready, axi.ar.ready)
    arOffered    := axi.ar.valid && !axi.ar.ready
    val arFault = Wire(Valid(new FaultReport))
    arFault.valid := arHead.valid && arOutside && !arOffered && !(io.suppress && arIsCore)
    arFault.bits  := FaultReport(Contract.Fault.Truncated, address(arHead.bits.line), 0.U)
    faults += arFault

    // Where each outstanding read went, for the address of a memory fault.
    val readLine = Mem(1 << readIdBits, UInt(p.lineAddress.W))
    when(arHead.fire) { readLine.write(arHead.bits.id, arHead.bits.line) }

    val local = Wire(Decoupled(new Answer))
    local.valid             := arLocal.io.deq.valid
    local.bits.id           := arLocal.io.deq.bits
    local.bits.data         := 0.U
    arLocal.io.deq.ready    := local.ready
    val remote = Wire(Decoupled(new Answer))
    val rError = axi.r.bits.resp(1)
    remote.valid     := axi.r.valid
    remote.bits.id   := axi.r.bits.id
    remote.bits.data := Mux(rError, 0.U, axi.r.bits.data)
    axi.r.ready      := remote.ready
    readAnswers += local
    readAnswers += remote
    val rFault = Wire(Valid(new FaultReport))
    rFault.valid := axi.r.fire && rError
    rFault.bits := FaultReport(Contract.Fault.Memory, address(readLine.read(axi.r.bits.id)), 0.U)
    when(axi.r.bits.resp === Axi.decode.U) { rFault.bits.code := Contract.Fault.Truncated.U }
    faults += rFault

    // Writes.
    val aw = Module(new RRArbiter(new WriteRequest(p), writers))
    for ((client, i) <- io.writes.zipWithIndex) {
      val mine = portOf(client.request.bits.line) === port.U
      aw.io.in(i).valid := client.request.valid && mine && !blocked(i, writers - exemptWriters)
      aw.io.in(i).bits  := client.request.bits
      when(mine) { client.request.ready := aw.io.in(i).ready && !blocked(i, writers - exemptWriters) }
    }
    class Store extends Bundle {
      val id     = UInt(writeIdBits.W)
      val line   = UInt(p.lineAddress.W)
      val data   = UInt(p.lineBits.W)
      val halves = UInt(2.W)
    }
    val awQueue = Module(new Queue(new Store, 2))
    awQueue.io.enq.valid       := aw.io.out.valid
    awQueue.io.enq.bits.id     := Cat(aw.io.chosen, aw.io.out.bits.tag)
    awQueue.io.enq.bits.line   := aw.io.out.bits.line
    awQueue.io.enq.bits.data   := aw.io.out.bits.data
    awQueue.io.enq.bits.halves := aw.io.out.bits.halves
    aw.io.out.ready            := awQueue.io.enq.ready
    started(2 * port + 1)      := awQueue.io.enq.fire

    val awHead    = awQueue.io.deq
    val awIsCore  = (awHead.bits.id >> p.tagBits) < (writers - exemptWriters).U
    val awOutside = awHead.bits.line >= io.windowLines
    val awDenied  = awOutside || !io.grants.map(_.covers(awHead.bits.line)).reduce(_ || _)
    val awSilent  = io.suppress && awIsCore
    val awOffered = RegInit(false.B)
    val awSink    = (awDenied || awSilent) && !awOffered
    val awLocal   = Module(new Queue(UInt(writeIdBits.W), 2))
    val awFault   = Wire(Valid(new FaultReport))
    awFault.valid := awHead.valid && awDenied && !awSilent && !awOffered
    awFault.bits  := FaultReport(Contract.Fault.Guard, address(awHead.bits.line), 0.U)
    when(awOutside) { awFault.bits.code := Contract.Fault.Truncated.U }
    faults += awFault
    // Address and data leave independently; each is remembered as sent until both are.
    val awSent = RegInit(false.B)
    val wSent  = RegInit(false.B)
    axi.aw.valid := awHead.valid && !awSink && !awSent
    Axi.line(p, axi.aw.bits, awHead.bits.id, awHead.bits.line)
    axi.w.valid     := awHead.valid && !awSink && !wSent
    axi.w.bits.data := awHead.bits.data
    axi.w.bits.strb := Cat(Fill(32, awHead.bits.halves(1)), Fill(32, awHead.bits.halves(0)))
    axi.w.bits.last := true.B
    val bothSent = (awSent || axi.aw.ready) && (wSent || axi.w.ready)
    awLocal.io.enq.valid := awHead.valid && awSink
    awLocal.io.enq.bits  := awHead.bits.id
    awHead.ready         := Mux(awSink, awLocal.io.enq.ready, bothSent)
    awOffered := awHead.valid && !awSink && !bothSent
    when(awHead.valid && !awSink) {
      awSent := !bothSent && (awSent || axi.aw.ready)
      wSent  := !bothSent && (wSent || axi.w.ready)
    }

    val writeLine = Mem(1 << writeIdBits, UInt(p.lineAddress.W))
    when(awHead.fire) { writeLine.write(awHead.bits.id, awHead.bits.line) }
    val bLocal = Wire(Decoupled(UInt(writeIdBits.W)))
    bLocal <> awLocal.io.deq
    val bRemote = Wire(Decoupled(UInt(writeIdBits.W)))
    bRemote.valid := axi.b.valid
    bRemote.bits  := axi.b.bits.id
    axi.b.ready   := bRemote.ready
    writeAnswers += bLocal
    writeAnswers += bRemote
    val bFault = Wire(Valid(new FaultReport))
    bFault.valid := axi.b.fire && axi.b.bits.resp(1)
    bFault.bits  := FaultReport(Contract.Fault.Memory, address(writeLine.read(axi.b.bits.id)), 0.U)
    when(axi.b.bits.resp === Axi.decode.U) { bFault.bits.code := Contract.Fault.Truncated.U }
    faults += bFault
  }

  // Answers: each client takes one a cycle; several ports may have one for the same client.
  val reads = readAnswers.result()
  val readyToClient = Seq.fill(reads.size)(Wire(Vec(readers, Bool())))
  for ((client, i) <- io.reads.zipWithIndex) {
    val pick = Module(new Arbiter(new Answer, reads.size))
    for ((a, k) <- reads.zipWithIndex) {
      pick.io.in(k).valid := a.valid && (a.bits.id >> p.tagBits) === i.U
      pick.io.in(k).bits  := a.bits
      readyToClient(k)(i) := pick.io.in(k).fire
    }
    pick.io.out.ready         := true.B
    client.response.valid     := pick.io.out.valid
    client.response.bits.tag  := pick.io.out.bits.id(p.tagBits - 1, 0)
    client.response.bits.data := pick.io.out.bits.data
  }
  reads.zip(readyToClient).foreach { case (a, r) => a.ready := r.asUInt.orR }

  val stores         = writeAnswers.result()
  val doneToClient = Seq.fill(stores.size)(Wire(Vec(writers, Bool())))
  for ((client, i) <- io.writes.zipWithIndex) {
    val pick = Module(new Arbiter(UInt(writeIdBits.W), stores.size))
    for ((a, k) <- stores.zipWithIndex) {
      pick.io.in(k).valid := a.valid && (a.bits >> p.tagBits) === i.U
      pick.io.in(k).bits  := a.bits
      doneToClient(k)(i)  := pick.io.in(k).fire
    }
    pick.io.out.ready := true.B
    client.done.valid := pick.io.out.valid
    client.done.bits  := pick.io.out.bits(p.tagBits - 1, 0)
  }
  stores.zip(doneToClient).foreach { case (a, r) => a.ready := r.asUInt.orR }

  io.fault      := FaultReport.first(faults.result())
  io.readLines  := PopCount(io.axi.map(_.r.fire))
  io.wroteLines := PopCount(io.axi.map(_.b.fire))
  val ended = PopCount(reads.map(_.fire) ++ stores.map(_.fire))
  outstanding := outstanding + PopCount(started) - ended
  io.quiet    := outstanding === 0.U
  assert(!(outstanding === 0.U && ended =/= 0.U && PopCount(started) === 0.U), "an answer without a request")
}
