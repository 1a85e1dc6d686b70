// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{FaultReport, PageLine, ReadPort, TraceConfig, TracerParameters}
import merapi.mark.{ClearRange, RawReference, Slice}
import merapi.memory.WriteGrant

/** What the control unit is connected to: core, reporter, counters, control page and memory. */
class ControlPorts(p: TracerParameters) extends Bundle {
  val who         = Input(new DeviceIdentity)
  val windowLines = Input(UInt((p.lineAddress + 1).W))
  val core        = Input(new CoreStatus(p))
  val orders      = Output(new CoreOrders(p))
  val memoryQuiet = Input(Bool())
  val fault       = Flipped(Valid(new FaultReport)) // from anywhere
  val config      = Output(new TraceConfig(p))
  val grants      = Output(Vec(WriteGrant.count, new WriteGrant(p)))
  val slice       = Valid(new Slice(p))
  val clear       = Valid(new ClearRange(p))
  val grey        = Decoupled(new RawReference(p))
  val greyEnds    = Input(new GreyEnds(p))
  // Reporter
  val cycle        = Output(UInt(32.W))
  val consumed     = Output(UInt(64.W))
  val ring         = Output(UInt(p.lineAddress.W))
  val ringLog2     = Output(UInt(5.W))
  val entry        = Decoupled(new Completion)
  val flushReports = Output(Bool())
  val holdReports  = Output(Bool())
  val restart      = Output(Bool())
  val dropReports  = Output(Bool())
  val forgetSeen   = Output(Bool())
  val written      = Input(UInt(64.W))
  val produced     = Input(UInt(64.W))
  val reportsEmpty = Input(Bool())
  val reportsFull  = Input(Bool())
  val doneWaits    = Input(Bool()) // an answer to a command is not written yet
  // Counters and page
  val clearCounters = Output(Bool())
  val pauseTime     = Valid(UInt(64.W))
  val page          = Output(new PageState)
  val pageWrite     = Valid(UInt(PageLine.count.W))
  val pageBusy      = Input(Bool())
  val latchRead     = new ReadPort(p)
  val read          = new ReadPort(p)
  val unread        = Input(Bool())     // beside an answer at `read`: zeros instead of what the memory holds
  val fetchRead     = new ReadPort(p)
  val tracing       = Output(Bool())
  val greys         = Output(UInt(3.W))
  val rescan        = Output(Bool())
  val paused        = Output(Bool())
  val step          = Output(UInt(6.W)) // state of this unit, for debugging
  val sleeping      = Output(Bool())    // nothing to do before the host does something
}
