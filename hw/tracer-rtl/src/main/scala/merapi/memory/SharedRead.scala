// SPDX-License-Identifier: Apache-2.0
package merapi.memory

import chisel3._
import chisel3.util._

import merapi.common.{ReadPort, ReadRequest, TracerParameters}

/** Readers of which one is at work at a time share a port: an answer belongs to who asked last. */
class SharedRead(p: TracerParameters, count: Int) extends Module {
  val io = IO(new Bundle {
    val readers = Vec(count, Flipped(new ReadPort(p)))
    val port    = new ReadPort(p)
  })
  val pick  = Module(new Arbiter(new ReadRequest(p), count))
  val owner = RegEnable(pick.io.chosen, pick.io.out.fire)
  val waits = RegInit(false.B)
  pick.io.in.zip(io.readers).foreach { case (a, r) => a <> r.request }
  io.port.request <> pick.io.out
  when(pick.io.out.fire) { waits := true.B }.elsewhen(io.port.response.valid) { waits := false.B }
  assert(!(pick.io.out.fire && waits && !io.port.response.valid), "two readers at a time")
  for ((r, i) <- io.readers.zipWithIndex) {
    r.response.valid := io.port.response.valid && owner === i.U
    r.response.bits  := io.port.response.bits
  }
}
