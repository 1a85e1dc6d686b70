// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.{Contract, ReadPort, TracerParameters}

/** Looks at what the host says: its index line, then its request line, so that a request is never older than the
  * submissions before it. Keeps what it saw; whoever asked hears of the end through `done`.
  */
class HostLook(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val start    = Input(Bool())     // taken when not busy
    val busy     = Output(Bool())
    val done     = Output(Bool())    // pulse; what was seen is there in the next cycle
    val restart  = Input(Bool())     // pulse: a handshake, no completion was taken yet
    val produced = Input(UInt(64.W)) // completions given to the memory
    // The completion index is only looked at while the host's rings are ours.
    val attached       = Input(Bool())
    val generation     = Input(UInt(64.W)) // the one that was answered
    val overrun        = Valid(UInt(64.W)) // pulse: an impossible completion index
    val hostGeneration = Output(UInt(64.W))
    val submitted      = Output(UInt(64.W))
    val taken          = Output(UInt(64.W))
    val used           = Output(Bool())    // in that line: the host has submitted or read something
    val pause          = Output(UInt(32.W))
    val resume         = Output(UInt(32.W))
    val abort          = Output(UInt(32.W))
    val read           = new ReadPort(p)
    val unread         = Input(Bool())     // beside the answer: zeros instead of what the memory holds
    val unseen         = Output(Bool())    // so it was with the index line
  })
  import Contract._

  object State extends ChiselEnum { val Rest, AskIndex, WaitIndex, AskRequest, WaitRequest = Value }
  val state                                       = RegInit(State.Rest)
  val hostGeneration                              = RegInit(0.U(64.W))
  val submitted                                   = RegInit(0.U(64.W))
  val taken                                       = RegInit(0.U(64.W))
  val pause                                       = RegInit(0.U(32.W))
  val resume                                      = RegInit(0.U(32.W))
  val abort                                       = RegInit(0.U(32.W))
  val used                                        = RegInit(false.B)
  val unseen                                      = RegInit(false.B)
  private def answered(at: Int, bytes: Int): UInt = io.read.response.bits.data(8 * (at + bytes) - 1, 8 * at)

  io.busy                  := state =/= State.Rest
  io.done                  := state === State.WaitRequest && io.read.response.valid
  io.read.request.valid    := state === State.AskIndex || state === State.AskRequest
  io.read.request.bits.tag := 0.U
  io.read.request.bits.line := Mux(
    state === State.AskIndex,
    (HostIndexLayout.At / 64).U,
    (HostRequestLayout.At / 64).U
  )
  val now = answered(HostIndexLayout.CompletionConsumed, 8)
  io.overrun.valid := false.B
  io.overrun.bits  := now
  switch(state) {
    is(State.Rest) { when(io.start) { state := State.AskIndex } }
    is(State.AskIndex) { when(io.read.request.fire) { state := State.WaitIndex } }
    is(State.WaitIndex) {
      when(io.read.response.valid) {
        hostGeneration := answered(HostIndexLayout.Generation, 8)
        unseen         := io.unread
        submitted      := answered(HostIndexLayout.SubmissionProduced, 8)
        used           := (answered(HostIndexLayout.SubmissionProduced, 8) | now).orR
        val ours = io.attached && answered(HostIndexLayout.Generation, 8) === io.generation
        val bad  = ours && (now < taken || now > io.produced)
        io.overrun.valid := bad
        when(ours && !bad) { taken := now }
        state := State.AskRequest
      }
    }
    is(State.AskRequest) { when(io.read.request.fire) { state := State.WaitRequest } }
    is(State.WaitRequest) {
      when(io.read.response.valid) {
        pause  := answered(HostRequestLayout.Pause, 4)
        resume := answered(HostRequestLayout.Resume, 4)
        abort  := answered(HostRequestLayout.Abort, 4)
        state  := State.Rest
      }
    }
  }
  when(io.restart) { taken := 0.U }
  io.hostGeneration := hostGeneration
  io.submitted      := submitted
  io.taken          := taken
  io.used           := used
  io.unseen         := unseen
  io.pause          := pause
  io.resume         := resume
  io.abort          := abort
}
