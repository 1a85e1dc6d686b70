// SPDX-License-Identifier: Apache-2.0
package merapi.lane

import chisel3._
import chisel3.util._

import merapi.common.TracerParameters
import merapi.primitives.{Fifo, Word}

/** A slot whose look found no entry. `again`: because it could not look; nothing has to be asked. */
class ShapeMiss(p: TracerParameters) extends Bundle {
  val slot  = UInt(log2Ceil(p.slots).W)
  val klass = UInt(64.W)
  val again = Bool()
}

/** Slots of one lane that wait for shapes, and the lane's questions to the walker.
  *
  * A slot waits for the hash of its klass word and is woken by any answer with that hash, whoever asked; it then goes
  * through the lane once more. While a hash waits for its answer (`pending`) no further question with it is put: a slot
  * that is woken by another klass asks again. A question that an answer has overtaken is dropped.
  *
  * A slot waits only while its hash is pending, and a hash is pending only while a question with it is in the queue,
  * before the walker or looked up, which ends in an answer. When the queue is full the slot does not wait: it looks
  * again.
  *
  * The question of the slot that guards its set (ShapeCache) is put in any case and not dropped: others with its hash
  * could otherwise have theirs answered again and again, in vain because of the guard. It is the first to look again:
  * those whose answers come in vain look again for ever, and could take every turn.
  *
  * At a pause nobody waits: questions that the walker has not taken are dropped, and all slots look again when the pause
  * is over. All lanes would else ask it, one klass after the other, for shapes that are forgotten then.
  */
class ShapeMisses(p: TracerParameters) extends Module {
  private val slotBits = log2Ceil(p.slots)
  private val hashes   = 1 << ShapeHash.bits
  val io = IO(new Bundle {
    val miss    = Flipped(Valid(new ShapeMiss(p)))
    val guard   = Flipped(Valid(UInt(slotBits.W)))       // the slot that guards its set
    val answer  = Flipped(Valid(UInt(ShapeHash.bits.W))) // hash of a klass that was looked up
    val pausing = Input(Bool())
    val ask     = Decoupled(new ShapeAsk)
    val again   = Decoupled(UInt(slotBits.W))            // a slot that is to look again
    val busy    = Output(Bool())                         // a question is under way
  })
  private def bitOf(slot: UInt): UInt   = UIntToOH(slot, p.slots)
  private def hashBit(hash: UInt): UInt = UIntToOH(hash, hashes)
  val waits                             = RegInit(0.U(p.slots.W))
  val come                              = RegInit(0.U(p.slots.W))
  val pending                           = RegInit(0.U(hashes.W))
  val waiters                           = Mem(hashes, UInt(p.slots.W)) // of a hash that is pending
  val told                              = io.answer.bits

  class Question extends ShapeAsk {
    val sure = Bool() // not to be dropped
  }
  val asks = Module(new Fifo(new Question, p.slots, clears = true))
  asks.io.clear.get := io.pausing
  val miss   = io.miss.bits
  val hash   = ShapeHash(miss.klass)
  val guards = io.guard.valid && io.guard.bits === miss.slot
  // An answer that comes now may be the one: the look did not see it.
  val wants = io.miss.valid && !miss.again && !(io.answer.valid && told === hash) && !io.pausing
  val known = pending(hash) && !guards
  val stays = wants && (known || asks.io.enq.ready)
  asks.io.enq.valid      := wants && !known
  asks.io.enq.bits.klass := miss.klass
  asks.io.enq.bits.hash  := hash
  asks.io.enq.bits.sure  := guards
  when(stays) { waiters.write(hash, Mux(pending(hash), waiters.read(hash), 0.U) | bitOf(miss.slot)) }
  val woken = Mux(io.pausing, waits, Mux(io.answer.valid && pending(told), waiters.read(told), 0.U))
  assert((woken & ~waits) === 0.U, "a slot woken that does not wait")
  waits   := (waits & ~woken) | Mux(stays, bitOf(miss.slot), 0.U)
  pending := (pending & ~Mux(io.answer.valid, hashBit(told), 0.U)) | Mux(asks.io.enq.fire, hashBit(hash), 0.U)
  when(io.pausing) { pending := 0.U }

  // The question before the walker, unless its answer has come.
  val valid = RegInit(false.B)
  val ask   = Reg(new Question)
  val over  = io.answer.valid && told === ask.hash && !ask.sure
  val head  = asks.io.deq.bits
  asks.io.deq.ready := !valid
  valid := Mux(
    valid,
    !io.ask.ready && !over,
    asks.io.deq.valid && (head.sure || (pending(head.hash) && !(io.answer.valid && told === head.hash)))
  )
  when(io.pausing) { valid := false.B }
  when(!valid) { ask := head }
  io.ask.valid      := valid
  io.ask.bits.klass := ask.klass
  io.ask.bits.hash  := ask.hash

  // The next to look again.
  val one  = RegInit(false.B)
  val slot = Reg(UInt(slotBits.W))
  val sure = come & Mux(io.guard.valid, bitOf(io.guard.bits), 0.U)
  val pick = Mux(sure.orR, sure, Word.lowest(come))
  val load = !one || io.again.ready
  when(load) { slot := OHToUInt(pick) }
  one  := Mux(load, come.orR, true.B)
  come := (come & ~Mux(load, pick, 0.U(p.slots.W))) | woken | Mux(io.miss.valid && !stays, bitOf(miss.slot), 0.U)
  io.again.valid := one
  io.again.bits  := slot

  io.busy := io.miss.valid || waits.orR || valid || asks.io.deq.valid
}
