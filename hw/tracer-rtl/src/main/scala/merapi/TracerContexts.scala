// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

import merapi.common.ContextParameters
import merapi.contexts.{AskedWindow, ContextLives, SharedPort}
import merapi.control.DeviceIdentity
import merapi.memory.AxiPort

/** What a shell sees of one context. To have another window served it asks for none, waits until the context is free, and
  * asks for the other; a window is asked for in one cycle, base and bytes together.
  */
class ContextPort extends Bundle {
  val asked   = Input(new AskedWindow)
  val who     = Input(new DeviceIdentity) // constant while a window is asked for
  val status  = Output(new TracerStatus)
  val open    = Output(Bool())            // the window that was asked for is served
  val free    = Output(Bool())            // no window is served and no access of a former one is on its way
  val refused = Output(Bool())            // what is asked for breaks a rule (ContextLives)
}

/** Several contexts on one memory: a tracer for each, and ports that they share. They have nothing else in common, so
  * what happens to one (a fault, a pause, its end) another only notices by the memory's speed.
  */
class TracerContexts(c: ContextParameters) extends Module {
  private val p            = c.tracer
  private val contextBits  = log2Ceil(c.contexts)
  override def desiredName = "TracerContexts"
  val lives                = Module(new ContextLives(c))
  val tracers     = (0 until c.contexts).map(i => withReset(reset.asBool || !lives.io.open(i))(Module(new Tracer(p))))
  val readIdBits  = tracers.head.memory.readIdBits
  val writeIdBits = tracers.head.memory.writeIdBits
  val io = IO(new Bundle {
    val axi = Vec(
      p.ports,
      new AxiPort(p, readIdBits + contextBits, writeIdBits + contextBits, c.memoryAddressBits)
    )
    val contexts = Vec(c.contexts, new ContextPort)
  })
  val ports = (0 until p.ports).map(i => Module(new SharedPort(c, readIdBits, writeIdBits, i)))

  for ((context, i) <- io.contexts.zipWithIndex) {
    lives.io.asked(i)         := context.asked
    lives.io.drained(i)       := ports.map(_.io.drained(i)).reduce(_ && _)
    tracers(i).io.windowBytes := lives.io.windows(i).bytes
    tracers(i).io.who         := context.who
    context.status            := tracers(i).io.status
    context.open              := lives.io.open(i)
    context.free              := lives.io.free(i)
    context.refused           := lives.io.refused(i)
  }
  for ((port, k) <- ports.zipWithIndex) {
    port.io.open    := lives.io.open
    port.io.windows := lives.io.windows
    port.io.tracers.zip(tracers).foreach { case (a, t) => a <> t.io.axi(k) }
    io.axi(k) <> port.io.axi
  }
}
