// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

import merapi.common.{Contract, Counters, FaultReport, TracerParameters}
import merapi.control.{Control, ControlPage, DeviceIdentity, Reporter}
import merapi.memory.{AxiPort, MemoryPorts, RequestStage}
import merapi.primitives.Fifo

class TracerStatus extends Bundle {
  val sleeping = Bool()
  val state    = UInt(4.W)
  val cycle    = UInt(32.W)
  // Where the control unit is and which units move: what to look at first when a simulation does not end.
  val step   = UInt(6.W)
  val moving = UInt(10.W)
}

/** The tracer: one context on one window. Shells give it a window (its AXI addresses start at the window's byte 0)
  * and an identity; everything else comes through the window.
  */
class Tracer(p: TracerParameters) extends Module {
  private val readers      = CorePorts.readers(p) + 3
  private val writers      = CorePorts.writers(p) + 2
  override def desiredName = "Tracer"
  val memory = Module(
    new MemoryPorts(p, readers, writers, exemptReaders = 3, exemptWriters = 2, together = CorePorts.ofTile)
  )
  val io = IO(new Bundle {
    val axi         = Vec(p.ports, new AxiPort(p, memory.readIdBits, memory.writeIdBits))
    val windowBytes = Input(UInt(64.W))
    val who         = Input(new DeviceIdentity)
    val status      = Output(new TracerStatus)
  })
  val control  = Module(new Control(p))
  val clear    = reset.asBool || control.io.orders.clear
  val core     = withReset(clear)(Module(new TracerCore(p)))
  val reporter = Module(new Reporter(p))
  val page     = Module(new ControlPage(p))
  val counters = Module(new Counters(p))

  io.axi <> memory.io.axi
  // Of a larger window what addresses reach.
  val windowLines = Mux(
    (io.windowBytes >> p.windowAddressBits).orR,
    (BigInt(1) << p.lineAddress).U,
    (io.windowBytes >> p.lineLog2)(p.lineAddress, 0)
  )
  memory.io.windowLines := windowLines
  memory.io.grants      := control.io.grants
  memory.io.suppress    := control.io.orders.suppress
  memory.io.block       := control.io.orders.block
  private val controlReads  = Seq(control.io.latchRead, control.io.read, control.io.fetchRead)
  private val controlWrites = Seq(reporter.io.write, page.io.memory)
  memory.io.reads.zip(core.io.reads ++ controlReads).foreach { case (a, b) => a <> b }
  memory.io.writes.zip(core.io.writes ++ controlWrites).foreach { case (a, b) => a <> b }
  // Before several ports requests stand in registers; those of the core are reset with it.
  private val staged = WireDefault(false.B) // requests of the control side
  if (p.ports > 1) {
    def stage[T <: Data](
        clients: Seq[DecoupledIO[T]],
        ports: Seq[DecoupledIO[T]],
        apart: Boolean = false
    ): Seq[Bool] =
      clients.zip(ports).map { case (client, port) =>
        val stage = Module(new RequestStage(chiselTypeOf(client.bits), apart))
        stage.io.in <> client
        port <> stage.io.out
        stage.io.out.valid
      }
    val ofCore = core.io.reads.size
    withReset(clear) {
      stage(core.io.reads.map(_.request), memory.io.reads.map(_.request))
      val (live, others) =
        core.io.writes.zip(memory.io.writes).partition(_._1 eq core.io.writes(CorePorts.liveWriter(p)))
      stage(others.map(_._1.request), others.map(_._2.request), apart = p.manyPorts)
      // A pause waits for all of the live table's lines, which come one after the other: one a cycle.
      live.foreach { case (client, port) => port.request <> Fifo(client.request, 2) }
    }
    staged := VecInit(
      stage(controlReads.map(_.request), memory.io.reads.drop(ofCore).map(_.request), apart = p.manyPorts) ++
        stage(controlWrites.map(_.request), memory.io.writes.drop(core.io.writes.size).map(_.request))
    ).asUInt.orR
  }

  control.io.who         := io.who
  control.io.windowLines := windowLines
  control.io.core        := core.io.status
  control.io.memoryQuiet := memory.io.quiet && !staged
  // While the core is killed it is given zeros: what it makes of them is no fault.
  private val coreFault = WireDefault(core.io.fault)
  coreFault.valid  := core.io.fault.valid && !control.io.orders.block
  control.io.fault := FaultReport.first(Seq(memory.io.fault, coreFault))
  core.io.powerUp  := reset.asBool
  core.io.config   := control.io.config
  core.io.orders   := control.io.orders
  core.io.slice    := control.io.slice
  core.io.clear    := control.io.clear
  core.io.grey <> control.io.grey
  control.io.greyEnds := core.io.greyEnds

  reporter.io.config   := control.io.config
  reporter.io.cycle    := control.io.cycle
  reporter.io.ring     := control.io.ring
  reporter.io.ringLog2 := control.io.ringLog2
  reporter.io.consumed := control.io.consumed
  reporter.io.seen <> core.io.seen
  reporter.io.deferred <> core.io.deferred
  reporter.io.control <> control.io.entry
  reporter.io.flush       := control.io.flushReports
  reporter.io.hold        := control.io.holdReports
  reporter.io.restart     := control.io.restart
  reporter.io.drop        := control.io.dropReports
  reporter.io.forget      := control.io.forgetSeen
  reporter.io.failed      := memory.io.failed.head
  control.io.unread       := memory.io.unread(controlReads.indexWhere(_ eq control.io.read))
  control.io.written      := reporter.io.written
  control.io.produced     := reporter.io.produced
  control.io.reportsEmpty := reporter.io.empty
  control.io.reportsFull  := reporter.io.full
  control.io.doneWaits    := reporter.io.doneWaits

  page.io.write       := control.io.pageWrite
  control.io.pageBusy := page.io.busy
  page.io.page        := control.io.page
  page.io.counters    := counters.io.lines
  page.io.who         := io.who
  page.io.windowBytes := io.windowBytes
  page.io.restart     := control.io.restart

  import Contract.Counter
  val events                                        = WireDefault(core.io.events)
  private def event(counter: Int, step: UInt): Unit = events.add(counter) := step
  event(Counter.Cycles, control.io.tracing)
  event(Counter.GreysSubmitted, control.io.greys)
  event(Counter.Rescans, control.io.rescan)
  event(Counter.Pauses, control.io.paused)
  event(Counter.Deferred, reporter.io.reportedDefer)
  event(Counter.ShapesSeen, reporter.io.reportedSeen)
  event(Counter.StallCompletion, reporter.io.full && !control.io.holdReports)
  event(Counter.BytesRead, Cat(memory.io.readLines, 0.U(p.lineLog2.W)))
  event(Counter.BytesWritten, Cat(memory.io.wroteLines, 0.U(p.lineLog2.W)))
  // Lanes that rest because nothing is traced are not stopped by anything.
  when(!control.io.tracing) {
    Seq(Counter.StallMemory, Counter.StallBitmap, Counter.StallGrey, Counter.StallShape).foreach(event(_, 0.U))
  }
  counters.io.events   := events
  counters.io.clear    := control.io.clearCounters
  counters.io.restart  := control.io.restart
  counters.io.pauseMax := control.io.pauseTime
  counters.io.rounds   := control.io.page.consumed

  io.status.sleeping := control.io.sleeping
  io.status.state    := control.io.page.state.take(4)
  io.status.cycle    := control.io.page.cycle
  io.status.step     := control.io.step
  io.status.moving   := core.io.status.moving
}
