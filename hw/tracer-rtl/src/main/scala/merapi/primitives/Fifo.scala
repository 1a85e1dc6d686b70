// SPDX-License-Identifier: Apache-2.0
package merapi.primitives

import chisel3._
import chisel3.util._

/** What both kinds of queue are made of: entries in distributed memory between two ends, each a count of all that went
  * through it, so that they are equal when nothing is inside and how far they are apart is how much is.
  */
abstract class FifoBase[T <: Data](gen: T, depth: Int) extends Module {
  require(depth >= 2, s"expected a queue of two entries or more, found $depth")
  private val places         = log2Ceil(depth)
  private val ram            = Mem(1 << places, gen)
  private val enqAt          = RegInit(0.U((places + 1).W))
  private val deqAt          = RegInit(0.U((places + 1).W))
  protected val inside: UInt = enqAt - deqAt
  protected val some: Bool   = enqAt =/= deqAt
  // Of a power of two without a carry.
  protected val full: Bool = if (isPow2(depth)) (enqAt ^ deqAt) === depth.U else inside === depth.U
  // Whether it goes on may be known late: that is one gate away from what it changes.
  private def advanced(at: UInt, x: Bool): UInt = at ^ Mux(x, at ^ (at + 1.U), 0.U)
  protected def first: T                        = ram.read(deqAt(places - 1, 0))
  protected def take(x: Bool): Unit             = deqAt := advanced(deqAt, x)
  protected def put(x: Bool, bits: T): Unit = {
    when(x) { ram.write(enqAt(places - 1, 0), bits) }
    enqAt := advanced(enqAt, x)
  }
  protected def empty(): Unit = {
    enqAt := 0.U
    deqAt := 0.U
  }
}

/** A queue of two entries or more: ready and valid by its registers alone. `clear`: nothing is left in it, nor what comes
  * in that cycle.
  */
class Fifo[T <: Data](gen: T, depth: Int, clears: Boolean = false) extends FifoBase(gen, depth) {
  val io = IO(new Bundle {
    val enq   = Flipped(Decoupled(gen))
    val deq   = Decoupled(gen)
    val count = Output(UInt(log2Ceil(depth + 1).W))
    val clear = Option.when(clears)(Input(Bool()))
  })
  override def desiredName: String = s"Fifo${depth}_${gen.typeName}"
  io.enq.ready := !full
  io.deq.valid := some
  io.deq.bits  := first
  io.count     := inside.take(log2Ceil(depth + 1))
  put(io.enq.fire, io.enq.bits)
  take(io.deq.fire)
  io.clear.foreach(when(_) { empty() })
}

object Fifo {
  def apply[T <: Data](in: DecoupledIO[T], depth: Int, clear: Option[Bool] = None): DecoupledIO[T] = {
    val fifo = Module(new Fifo(chiselTypeOf(in.bits), depth, clear.nonEmpty))
    fifo.io.clear.zip(clear).foreach { case (to, from) => to := from }
    fifo.io.enq <> in
    fifo.io.deq
  }
}

/** A queue that has a place for whatever comes: who puts something in knows that, by what it counts, or by `room`. */
class SureFifo[T <: Data](gen: T, depth: Int) extends FifoBase(gen, depth) {
  val io = IO(new Bundle {
    val put   = Flipped(Valid(gen))
    val deq   = Decoupled(gen)
    val room  = Output(Bool()) // a place for one
    val count = Output(UInt(log2Ceil(depth + 1).W))
  })
  override def desiredName: String = s"SureFifo${depth}_${gen.typeName}"
  io.deq.valid := some
  io.deq.bits  := first
  io.room      := !full
  io.count     := inside.take(log2Ceil(depth + 1))
  put(io.put.valid, io.put.bits)
  take(io.deq.fire)
  assert(!(io.put.valid && full), "put into a queue without a place")
}
