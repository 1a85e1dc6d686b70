// SPDX-License-Identifier: Apache-2.0
package merapi.memory

import chisel3._
import chisel3.util._

import merapi.common.TracerParameters

/** AXI4 as the tracer uses it: 512 bits, one beat a transaction (so that none can cross 4 KB), INCR, all ids of
  * outstanding transactions different. Names follow the specification (ARM IHI 0022).
  */
class AxiAddress(idBits: Int, addressBits: Int) extends Bundle {
  val id    = UInt(idBits.W)
  val addr  = UInt(addressBits.W)
  val len   = UInt(8.W)
  val size  = UInt(3.W)
  val burst = UInt(2.W)
}

class AxiWriteData(p: TracerParameters) extends Bundle {
  val data = UInt(p.lineBits.W)
  val strb = UInt((p.lineBits / 8).W)
  val last = Bool()
}

class AxiReadData(p: TracerParameters, idBits: Int) extends Bundle {
  val id   = UInt(idBits.W)
  val data = UInt(p.lineBits.W)
  val resp = UInt(2.W)
  val last = Bool()
}

class AxiWriteResponse(idBits: Int) extends Bundle {
  val id   = UInt(idBits.W)
  val resp = UInt(2.W)
}

class AxiPort(p: TracerParameters, readIdBits: Int, writeIdBits: Int, addressBits: Int) extends Bundle {

  /** A tracer's own port: addresses begin at its window's byte 0. */
  def this(p: TracerParameters, readIdBits: Int, writeIdBits: Int) =
    this(p, readIdBits, writeIdBits, p.windowAddressBits)
  val ar = Decoupled(new AxiAddress(readIdBits, addressBits))
  val r  = Flipped(Decoupled(new AxiReadData(p, readIdBits)))
  val aw = Decoupled(new AxiAddress(writeIdBits, addressBits))
  val w  = Decoupled(new AxiWriteData(p))
  val b  = Flipped(Decoupled(new AxiWriteResponse(writeIdBits)))
}

object Axi {
  val okay   = 0
  val slave  = 2 // SLVERR: error or poison
  val decode = 3 // DECERR: nothing at this address (any more)

  def line(p: TracerParameters, a: AxiAddress, id: UInt, line: UInt): Unit = {
    a.id    := id
    a.addr  := Cat(line, 0.U(p.lineLog2.W))
    a.len   := 0.U
    a.size  := p.lineLog2.U
    a.burst := 1.U
  }
}
