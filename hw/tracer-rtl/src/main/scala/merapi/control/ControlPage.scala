// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, Counters, PageLine, TracerParameters, WritePort}

/** What a shell says of itself; constant. */
class DeviceIdentity extends Bundle {
  val kind       = UInt(8.W)
  val coherence  = UInt(8.W)
  val patienceUs = UInt(32.W)
  val pid        = UInt(64.W)
  val name       = UInt(192.W) // 24 bytes, the first lowest
}

/** The device's lines of the control page as the tracer last meant them. */
class PageState extends Bundle {
  val generation  = UInt(64.W)
  val consumed    = UInt(64.W)
  val produced    = UInt(64.W)
  val state       = UInt(32.W)
  val ackPause    = UInt(32.W)
  val ackResume   = UInt(32.W)
  val ackAbort    = UInt(32.W)
  val idle        = Bool()
  val idleCycle   = UInt(32.W)
  val cycle       = UInt(32.W)
  val faultCode   = UInt(32.W)
  val faultCycle  = UInt(32.W)
  val faultAt     = UInt(64.W)
  val faultDetail = UInt(64.W)
}

/** Writes a set of the page's lines: counters, fault record and identity side by side, then, after their responses, the
  * others one after the other, each after the response of the one before. A host that sees one of those sees all that
  * were written before it.
  */
class ControlPage(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val write       = Flipped(Valid(UInt(PageLine.count.W))) // when not busy
    val busy        = Output(Bool())
    val page        = Input(new PageState)
    val counters    = Input(Vec(Counters.lines, UInt(p.lineBits.W)))
    val who         = Input(new DeviceIdentity)
    val windowBytes = Input(UInt(64.W))
    val restart     = Input(Bool())                          // pulse: events count from 0
    val memory      = new WritePort(p)
  })
  val left  = RegInit(0.U(PageLine.count.W))
  val open  = RegInit(0.U(PageLine.count.W)) // awaiting their responses
  val event = RegInit(0.U(32.W))
  val at    = PriorityEncoder(left)
  io.busy := left =/= 0.U || open =/= 0.U
  when(io.write.valid) { left := io.write.bits }
  assert(!(io.write.valid && io.busy), "lines of the page asked for before others are written")
  when(io.restart) { event := 0.U }

  import Contract._
  val s = io.page
  private def line(fields: (Int, Int, UInt)*): UInt =
    fields
      .map { case (offset, bytes, value) =>
        (value.pad(8 * bytes)(8 * bytes - 1, 0) << (8 * offset)).pad(p.lineBits)(p.lineBits - 1, 0)
      }
      .reduce(_ | _)
  val capabilities = Seq(Cap.ScopeHeap, Cap.ClearBitmap, Cap.Doorbell).map(BigInt(1) << _).sum.U(64.W)
  import DeviceIdentityLayout.{Name, Pid, WindowBytes, PatienceUs, Lanes, Kind, Capabilities, VersionMinor => Minor}
  val identity = line(
    (DeviceIdentityLayout.Magic, 4, DeviceMagic.U),
    (DeviceIdentityLayout.VersionMajor, 2, Contract.VersionMajor.U),
    (Minor, 2, Contract.VersionMinor.U),
    (Capabilities, 8, capabilities),
    (Kind, 1, io.who.kind),
    (DeviceIdentityLayout.Coherence, 1, io.who.coherence),
    (Lanes, 2, p.lanes.U),
    (PatienceUs, 4, io.who.patienceUs),
    (Pid, 8, io.who.pid),
    (WindowBytes, 8, io.windowBytes),
    (Name, 24, io.who.name)
  )
  val index = line(
    (DeviceIndexLayout.Generation, 8, s.generation),
    (DeviceIndexLayout.SubmissionConsumed, 8, s.consumed),
    (DeviceIndexLayout.CompletionProduced, 8, s.produced),
    (DeviceIndexLayout.Event, 4, event),
    (DeviceIndexLayout.State, 4, s.state)
  )
  val ack = line(
    (DeviceAckLayout.Pause, 4, s.ackPause),
    (DeviceAckLayout.Resume, 4, s.ackResume),
    (DeviceAckLayout.Abort, 4, s.ackAbort)
  )
  val idle = line(
    (IdleRecordLayout.Cycle, 4, s.idleCycle),
    (IdleRecordLayout.Idle, 4, Cat(0.U(1.W), s.idle)),
    (IdleRecordLayout.Consumed, 8, s.consumed),
    (IdleRecordLayout.Produced, 8, s.produced)
  )
  val fault = line(
    (FaultRecordLayout.Code, 4, s.faultCode),
    (FaultRecordLayout.Cycle, 4, s.faultCycle),
    (FaultRecordLayout.Address, 8, s.faultAt),
    (FaultRecordLayout.Detail, 8, s.faultDetail)
  )
  private val contents = io.counters.zipWithIndex.map { case (l, i) => i -> (CountersLayout.At / 64 + i, l) } ++ Seq(
    PageLine.fault      -> (FaultRecordLayout.At / 64, fault),
    PageLine.identity   -> (DeviceIdentityLayout.At / 64, identity),
    PageLine.index      -> (DeviceIndexLayout.At / 64, index),
    PageLine.idle       -> (IdleRecordLayout.At / 64, idle),
    PageLine.ack        -> (DeviceAckLayout.At / 64, ack),
    PageLine.indexAgain -> (DeviceIndexLayout.At / 64, index)
  )
  val ordered = at >= PageLine.index.U
  io.memory.request.valid     := left =/= 0.U && (!ordered || open === 0.U)
  io.memory.request.bits.tag  := at
  io.memory.request.bits.line := MuxLookup(at, 0.U)(contents.map { case (k, (l, _)) => k.U -> l.U(p.lineAddress.W) })
  io.memory.request.bits.data := MuxLookup(at, 0.U)(contents.map { case (k, (_, d)) => k.U -> d })
  val started = Mux(io.memory.request.fire, UIntToOH(at, PageLine.count), 0.U)
  val ended   = Mux(io.memory.done.valid, UIntToOH(io.memory.done.bits, PageLine.count), 0.U)
  open := (open & ~ended) | started
  when(!io.write.valid) { left := left & ~started }
  when(io.memory.request.fire && ordered) { event := event + 1.U }
}
