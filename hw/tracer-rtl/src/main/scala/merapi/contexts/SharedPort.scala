// SPDX-License-Identifier: Apache-2.0
package merapi.contexts

import chisel3._
import chisel3.util._

import merapi.common.ContextParameters
import merapi.memory.{Axi, AxiAddress, AxiPort, AxiWriteData}
import merapi.primitives.TurnArbiter

/** Where a context's window lies. Constant while the context is open or anything of it is outstanding. */
class ServedWindow(c: ContextParameters) extends Bundle {
  val base  = UInt(c.baseBits.W) // in granules
  val bytes = UInt((c.tracer.windowAddressBits + 1).W)
}

/** One AXI port that several tracers share. Their requests take turns (TurnArbiter), on AR and on AW with W; on their
  * way out addresses are moved by the context's base and ids get the context's number on top, by which answers find
  * back. What a tracer may ask for was judged by its own guard (MemoryPorts): every address lies in its window.
  *
  * A write is taken with its data or not at all, so the data leave in the order of the addresses and a context that is
  * closed never leaves half a write behind.
  *
  * A context that is not open has its requests left where they are and its answers taken and dropped. Once `drained`,
  * nothing of its former use is on its way in either direction, and nothing can be before it is open again.
  *
  * Why it cannot deadlock: requests wait for the memory alone. Answers wait for the one context that they are for; a
  * tracer takes its answers whatever becomes of its requests, and of one that is closed they are taken here.
  */
class SharedPort(c: ContextParameters, readIdBits: Int, writeIdBits: Int, port: Int) extends Module {
  private val p           = c.tracer
  private val contextBits = log2Ceil(c.contexts)
  val io = IO(new Bundle {
    val tracers = Vec(c.contexts, Flipped(new AxiPort(p, readIdBits, writeIdBits)))
    val axi     = new AxiPort(p, readIdBits + contextBits, writeIdBits + contextBits, c.memoryAddressBits)
    val open    = Input(Vec(c.contexts, Bool()))
    val windows = Input(Vec(c.contexts, new ServedWindow(c)))
    val drained = Output(Vec(c.contexts, Bool()))
  })
  override def desiredName = "SharedPort"

  class Read extends Bundle {
    val id   = UInt(readIdBits.W)
    val line = UInt(p.lineAddress.W)
  }
  class Write extends Bundle {
    val id   = UInt(writeIdBits.W)
    val line = UInt(p.lineAddress.W)
    val data = new AxiWriteData(p)
  }
  private def lineOf(a: AxiAddress): UInt = a.addr >> p.lineLog2

  private val granuleLines = c.granuleLog2 - p.lineLog2 // log2

  /** Line of the memory of a line of a context's window. */
  private def moved(context: UInt, line: UInt): UInt = {
    val base = io.windows(context).base
    Cat((base +& (line >> granuleLines))(c.baseBits - 1, 0), line(granuleLines - 1, 0))
  }

  /** What leaves lies in its context's window, and at the port that the memory has it at. */
  private def judge(valid: Bool, context: UInt, address: UInt): Unit = {
    val window = io.windows(context)
    val base   = Cat(window.base, 0.U(c.granuleLog2.W))
    assert(
      !valid || (address >= base && address +& (p.lineBits / 8).U <= base +& window.bytes),
      "an access outside its context's window"
    )
    if (p.ports > 1) {
      assert(
        !valid || address(p.interleaveLog2 + log2Ceil(p.ports) - 1, p.interleaveLog2) === port.U,
        "an access at another port than its address has"
      )
    }
    assert(!valid || !io.drained(context), "a drained context's access")
  }

  val reads  = Module(new TurnArbiter(new Read, c.contexts))
  val writes = Module(new TurnArbiter(new Write, c.contexts, gather = true))
  reads.io.note  := 0.U(0.W)
  writes.io.note := 0.U(0.W)
  for ((t, i) <- io.tracers.zipWithIndex) {
    val ar = reads.io.in(i)
    ar.valid     := t.ar.valid && io.open(i)
    ar.bits.id   := t.ar.bits.id
    ar.bits.line := lineOf(t.ar.bits)
    t.ar.ready   := ar.ready && io.open(i)
    val aw = writes.io.in(i)
    aw.valid     := t.aw.valid && t.w.valid && io.open(i)
    aw.bits.id   := t.aw.bits.id
    aw.bits.line := lineOf(t.aw.bits)
    aw.bits.data := t.w.bits
    t.aw.ready   := aw.ready && t.w.valid && io.open(i)
    t.w.ready    := aw.ready && t.aw.valid && io.open(i)
  }

  Axi.line(
    p,
    io.axi.ar.bits,
    Cat(reads.io.client, reads.io.out.bits.id),
    moved(reads.io.client, reads.io.out.bits.line)
  )
  io.axi.ar.valid    := reads.io.out.valid
  reads.io.out.ready := io.axi.ar.ready
  judge(io.axi.ar.valid, reads.io.client, io.axi.ar.bits.addr)

  // Address and data leave independently; each is remembered as sent until both are.
  val awSent = RegInit(false.B)
  val wSent  = RegInit(false.B)
  val store  = writes.io.out
  Axi.line(p, io.axi.aw.bits, Cat(writes.io.client, store.bits.id), moved(writes.io.client, store.bits.line))
  io.axi.aw.valid := store.valid && !awSent
  io.axi.w.valid  := store.valid && !wSent
  io.axi.w.bits   := store.bits.data
  store.ready     := (awSent || io.axi.aw.ready) && (wSent || io.axi.w.ready)
  when(store.valid) {
    awSent := !store.ready && (awSent || io.axi.aw.ready)
    wSent  := !store.ready && (wSent || io.axi.w.ready)
  }
  judge(io.axi.aw.valid, writes.io.client, io.axi.aw.bits.addr)

  /** The contexts' shares of a channel of answers. Only the context's own number decides who waits. */
  private def back[T <: Data](from: DecoupledIO[T], id: UInt, idBits: Int, to: Seq[DecoupledIO[Data]]): Seq[Bool] = {
    val context = id >> idBits
    val mine    = (0 until c.contexts).map(i => context === i.U)
    to.zip(mine).zip(io.open).foreach { case ((t, m), o) => t.valid := from.valid && m && o }
    from.ready := VecInit(to.zip(mine).zip(io.open).map { case ((t, m), o) => m && (t.ready || !o) }).asUInt.orR
    assert(!from.valid || mine.reduce(_ || _), "an answer to a context that there is not")
    mine.map(_ && from.fire)
  }
  for (t <- io.tracers) {
    t.r.bits.id   := io.axi.r.bits.id(readIdBits - 1, 0)
    t.r.bits.data := io.axi.r.bits.data
    t.r.bits.resp := io.axi.r.bits.resp
    t.r.bits.last := io.axi.r.bits.last
    t.b.bits.id   := io.axi.b.bits.id(writeIdBits - 1, 0)
    t.b.bits.resp := io.axi.b.bits.resp
  }
  val readBack  = back(io.axi.r, io.axi.r.bits.id, readIdBits, io.tracers.map(_.r))
  val writeBack = back(io.axi.b, io.axi.b.bits.id, writeIdBits, io.tracers.map(_.b))

  // What was taken and not answered, reads and writes together.
  for (i <- 0 until c.contexts) {
    val outstanding = RegInit(0.U(((readIdBits max writeIdBits) + 2).W))
    val begun       = reads.io.in(i).fire +& writes.io.in(i).fire
    val ended       = readBack(i) +& writeBack(i)
    outstanding   := outstanding + begun - ended
    io.drained(i) := outstanding === 0.U
    assert(outstanding >= ended, "an answer without a request")
  }
}
