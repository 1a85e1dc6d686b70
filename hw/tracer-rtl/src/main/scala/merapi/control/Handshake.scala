// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, FaultReport, ReadPort, TracerParameters}

/** Decides whether this tracer can serve the window: magic and version of its identity line, then the rings. */
class Handshake(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val start = Input(Bool())
    val done  = Output(Bool()) // pulse, with `fault`
    val fault = Valid(new FaultReport)
    // The configuration latch, asked for the rings.
    val latchStart = Output(Bool())
    val latchDone  = Input(Bool())
    val latchFault = Flipped(Valid(new FaultReport))
    val read       = new ReadPort(p)
  })
  import Contract.{Fault, IdentityLayout => L}
  object State extends ChiselEnum { val Rest, Ask, Wait, Judge, Rings = Value }
  val state = RegInit(State.Rest)
  io.read.request.valid     := state === State.Ask
  io.read.request.bits.tag  := 0.U
  io.read.request.bits.line := (L.At / 64).U
  // Judged in the cycle after it came.
  private def answered(at: Int, bytes: Int): UInt = RegNext(io.read.response.bits.data(8 * (at + bytes) - 1, 8 * at))
  val magic                                       = answered(L.Magic, 8)
  val major                                       = answered(L.VersionMajor, 2)
  val minor                                       = answered(L.VersionMinor, 2)
  val wrongMagic                                  = magic =/= Contract.Magic.U
  val wrongVersion                                = major =/= Contract.VersionMajor.U || minor > Contract.VersionMinor.U
  val came                                        = state === State.Judge

  io.latchStart := came && !wrongMagic && !wrongVersion
  io.done       := (came && (wrongMagic || wrongVersion)) || (state === State.Rings && io.latchDone)
  io.fault      := io.latchFault
  when(came) {
    io.fault.valid := true.B
    io.fault.bits := Mux(
      wrongMagic,
      FaultReport(Fault.BadMagic, magic, 0.U),
      FaultReport(Fault.BadVersion, (L.At + L.VersionMajor).U, Cat(major, minor))
    )
  }
  switch(state) {
    is(State.Rest) { when(io.start) { state := State.Ask } }
    is(State.Ask) { when(io.read.request.fire) { state := State.Wait } }
    is(State.Wait) { when(io.read.response.valid) { state := State.Judge } }
    is(State.Judge) { state := Mux(io.done, State.Rest, State.Rings) }
    is(State.Rings) { when(io.latchDone) { state := State.Rest } }
  }
}
