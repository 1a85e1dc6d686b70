// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Tests and sets mark bits: a direct-mapped cache of bitmap lines with its own misses.
  *
  * {{{
  *   reference ─┐
  *   parked ────┤      read tag      compare, decide, write         grey
  *   replay ────┼─ s0 ─ and line ─ s1 ────────────────────────────> store
  *   fill ──────┤                      │ miss: MSHR, victim to WB
  *   clean ─────┘                      │ cannot now: parked
  * }}}
  *
  * Everything that changes the cache is an operation in s1, one a cycle, so that there is one writer and no race.
  * A line that is being fetched is in exactly one MSHR, whose waiters are replayed when it arrives. A line that is
  * being written back is in exactly one write-back entry until its response; it is neither fetched nor written again
  * before that.
  *
  * Why it cannot deadlock: an operation never waits in s1. A reference that cannot go on is parked and offered again
  * with the lowest priority; what it waits for (an MSHR, a write-back entry, room in the dirty list, a fill) is
  * freed by memory answers, fills and cleaning, which all have priority over it; a replay, which has priority over
  * cleaning, lets it pass when the dirty list is full. When the grey store and its spill
  * are full, the reference is dropped (its source is flagged) or, if it is the host's, refused: neither waits.
  *
  * Invariants: a dirty line has an entry in the dirty list, so that dirty lines are bounded and `clean` finds them
  * all; a bit is turned only in the cycle in which its grey is taken by the store.
  */
class MarkBank(p: TracerParameters) extends Module {
  private val markLine = p.objectBits - 9
  private val setBits  = log2Ceil(p.bitmapLines)
  private val writeBacks = 8
  private val epochBits  = 8

  val io = IO(new Bundle {
    val config    = Input(new TraceConfig(p))
    val in        = Flipped(Decoupled(new Reference(p)))
    val grey      = Decoupled(new Grey(p))
    val greyFull  = Input(Bool()) // the store cannot take a grey and will not be able to by waiting
    val drop      = Valid(UInt(p.flagLog2.W))
    val answer    = Valid(Bool()) // to the host's references: true = refused
    val fill      = new ReadPort(p)
    val writeBack = new WritePort(p)
    val clean     = Input(Bool()) // write back every dirty line
    val invalidate = Input(Bool()) // pulse, when quiet and clean
    val powerUp    = Input(Bool()) // the first reset, after which on-chip memory holds anything
    val quiet     = Output(Bool())
    val cleaned   = Output(Bool())
    val sweeping  = Output(Bool())
    val marked    = Output(Bool()) // a bit was turned
    val already   = Output(Bool()) // a bit was found set
    val blocked   = Output(Bool()) // a reference waits
  })

  class Tag extends Bundle {
    val epoch = UInt(epochBits.W) // the line is held when this is the present one
    val dirty = Bool()
    val line  = UInt(markLine.W)
  }
  object Op extends ChiselEnum { val Ref, Parked, Replay, Fill, Clean = Value }

  /** What waits for a line: the bit in it and what its reference carried. */
  class Waiter extends Bundle {
    val bit  = UInt(9.W)
    val flag = UInt(p.flagLog2.W)
    val host = Bool()
  }
  private def setOf(line: UInt): UInt = {
    val local = line >> p.laneLog2
    (local ^ (local >> setBits))(setBits - 1, 0)
  }

  val tags = SyncReadMem(p.bitmapLines, new Tag)
  val rows = SyncReadMem(p.bitmapLines, UInt(p.lineBits.W))

  // Sweep: on-chip memory is never assumed clear. Dropping all lines, at a resume or for a new cycle (a reset), takes
  // one cycle (their epoch is over), and a sweep only when the epochs are used up; epoch 0 is nobody's.
  val (sweeping, sweepNext, epoch) = withReset(io.powerUp) {
    (RegInit(true.B), RegInit(0.U(setBits.W)), RegInit(1.U(epochBits.W)))
  }
  when(io.invalidate || reset.asBool) {
    epoch := epoch + 1.U
    when(epoch.andR) {
      epoch     := 1.U
      sweeping  := true.B
      sweepNext := 0.U
    }
  }
  when(sweeping) {
    sweepNext := sweepNext + 1.U
    when(sweepNext.andR) { sweeping := false.B }
  }
  io.sweeping := sweeping || io.invalidate

  // Misses.
  val missValid   = RegInit(VecInit(Seq.fill(p.bitmapMisses)(false.B)))
  val missArrived = RegInit(VecInit(Seq.fill(p.bitmapMisses)(false.B)))
  val missLine    = Reg(Vec(p.bitmapMisses, UInt(markLine.W)))
  val missCount   = Reg(Vec(p.bitmapMisses, UInt(log2Ceil(p.bitmapWaiters + 1).W)))
  val waiters     = Mem(p.bitmapMisses * p.bitmapWaiters, new Waiter)
  val arrivedLine = Mem(p.bitmapMisses, UInt(p.lineBits.W))
  // One entry per MSHR at most: the queue is never full.
  val fillQueue = Module(new Queue(UInt(log2Ceil(p.bitmapMisses).W), p.bitmapMisses))
  private def slotOf(miss: UInt, i: UInt): UInt = (miss * p.bitmapWaiters.U) + i

  when(io.fill.response.valid) {
    val at = io.fill.response.bits.tag(log2Ceil(p.bitmapMisses) - 1, 0)
    arrivedLine.write(at, io.fill.response.bits.data)
    missArrived(at) := true.B
    assert(missValid(at), "a bitmap line came that nobody asked for")
  }
  io.fill.request.valid     := fillQueue.io.deq.valid
  io.fill.request.bits.tag  := fillQueue.io.deq.bits
  io.fill.request.bits.line := io.config.bitmap + missLine(fillQueue.io.deq.bits)
  fillQueue.io.deq.ready    := io.fill.request.ready

  // Write-backs.
  val wbValid = RegInit(VecInit(Seq.fill(writeBacks)(false.B)))
  val wbLine  = Reg(Vec(writeBacks, UInt(markLine.W)))
  val wbData  = Mem(writeBacks, UInt(p.lineBits.W))
  val wbQueue = Module(new Queue(UInt(log2Ceil(writeBacks).W), writeBacks))
  val wbFree  = PriorityEncoder(wbValid.map(!_))
  val wbRoom  = !wbValid.reduce(_ && _)
  private def writingBack(line: UInt): Bool = wbValid.zip(wbLine).map { case (v, l) => v && l === line }.reduce(_ || _)
  io.writeBack.request.valid       := wbQueue.io.deq.valid
  io.writeBack.request.bits.tag    := wbQueue.io.deq.bits
  io.writeBack.request.bits.line   := io.config.bitmap + wbLine(wbQueue.io.deq.bits)
  io.writeBack.request.bits.data   := wbData.read(wbQueue.io.deq.bits)
  io.writeBack.request.bits.halves := 3.U
  wbQueue.io.deq.ready             := io.writeBack.request.ready
  when(io.writeBack.done.valid) { wbValid(io.writeBack.done.bits(log2Ceil(writeBacks) - 1, 0)) := false.B }

  // Dirty list: one entry for each change from clean to dirty.
  val dirty = Module(new Queue(UInt(setBits.W), p.dirtyBound, useSyncReadMem = false))
  val dirtyRoom = dirty.io.enq.ready

  // s0: what comes next.
  val s1Valid = RegInit(false.B)
  val s1Op    = Reg(Op())
  val s1Ref   = Reg(new Reference(p))
  val s1Bit   = Reg(UInt(p.objectBits.W))
  val s1Set   = Reg(UInt(setBits.W))
  val s1Miss  = Reg(UInt(log2Ceil(p.bitmapMisses).W))

  val parkedValid = RegInit(false.B)
  val parked      = Reg(new Reference(p))
  val parking     = WireDefault(false.B)

  // The line that arrived and whose waiters are being replayed.
  val replaying  = RegInit(false.B)
  val installed  = RegInit(false.B)
  val replayMiss = Reg(UInt(log2Ceil(p.bitmapMisses).W))
  val replayNext = Reg(UInt(log2Ceil(p.bitmapWaiters + 1).W))
  val special    = s1Valid && (s1Op === Op.Replay || s1Op === Op.Clean || s1Op === Op.Fill || s1Op === Op.Parked)

  val arrivedAny = missArrived.asUInt.orR
  when(!replaying && arrivedAny) {
    replaying  := true.B
    installed  := false.B
    replayMiss := PriorityEncoder(missArrived)
    replayNext := 0.U
  }

  val wantFill   = replaying && !installed && !special
  // A replay may wait for room in the dirty list, which only cleaning makes: with a full list, cleaning goes first.
  val mustClean  = dirty.io.deq.valid && !dirtyRoom && !special
  val wantReplay = replaying && installed && !special && !mustClean
  val wantClean  = dirty.io.deq.valid && !special &&
    (mustClean || io.clean || dirty.io.count > (p.dirtyBound - p.dirtyBound / 4).U)
  val wantParked = parkedValid && !special
  val acceptRef  = !parkedValid && !parking && !(wantFill || wantReplay || wantClean) && !io.sweeping

  val waiter = waiters.read(slotOf(replayMiss, replayNext))
  val s0Ref  = Wire(new Reference(p))
  val s0Op   = Wire(Op())
  val s0Fire = WireDefault(false.B)
  val s0Set  = Wire(UInt(setBits.W))
  val replayRef = Wire(new Reference(p))
  replayRef.obj  := io.config.objectOf(Cat(missLine(replayMiss), waiter.bit))
  replayRef.flag := waiter.flag
  replayRef.host := waiter.host
  s0Ref       := io.in.bits
  s0Op        := Op.Ref
  io.in.ready := acceptRef
  when(wantFill) {
    s0Fire := true.B; s0Op := Op.Fill; s0Ref := replayRef
  }.elsewhen(wantReplay) {
    s0Fire := true.B; s0Op := Op.Replay; s0Ref := replayRef
  }.elsewhen(wantClean) {
    s0Fire := true.B; s0Op := Op.Clean
  }.elsewhen(wantParked) {
    s0Fire := true.B; s0Op := Op.Parked; s0Ref := parked
  }.otherwise {
    s0Fire := io.in.valid && acceptRef
  }
  val s0Bit = io.config.markBit(s0Ref.obj)
  s0Set := setOf(Mux(s0Op === Op.Fill, missLine(replayMiss), s0Bit >> 9))
  when(s0Op === Op.Clean) { s0Set := dirty.io.deq.bits }

  val readTag = tags.read(s0Set)
  val readRow = rows.read(s0Set)
  s1Valid := s0Fire
  when(s0Fire) {
    s1Op   := s0Op
    s1Ref  := s0Ref
    s1Bit  := s0Bit
    s1Set  := s0Set
    s1Miss := replayMiss
  }

  // s1: decide and write. The row or tag written in the cycle of the read is taken from here.
  val forward    = RegInit(false.B)
  val forwardTag = Reg(new Tag)
  val forwardRow = Reg(UInt(p.lineBits.W))
  val tag        = Mux(forward, forwardTag, readTag)
  val isFill     = s1Valid && s1Op === Op.Fill
  val held       = tag.epoch === epoch
  val row        = Mux(isFill, arrivedLine.read(s1Miss), Mux(forward, forwardRow, readRow))
  val newTag     = WireDefault(tag)
  val newRow     = WireDefault(row)
  val writeTag   = WireDefault(false.B)
  val writeRow   = WireDefault(false.B)

  val line     = s1Bit >> 9
  val bit      = s1Bit(8, 0)
  val hit      = isFill || (held && tag.line === line)
  val isSet    = (row >> bit)(0)
  val missHits = missValid.zip(missLine).map { case (v, l) => v && l === line }
  val missHit  = missHits.reduce(_ || _)
  val missAt   = OHToUInt(missHits)
  val setBusy  = missValid.zip(missLine).map { case (v, l) => v && setOf(l) === s1Set }.reduce(_ || _)
  val missFree = PriorityEncoder(missValid.map(!_))
  val missRoom = !missValid.reduce(_ && _)
  // A fill is the replay of its first waiter as well.
  val isRef = s1Valid && s1Op =/= Op.Clean
  val clean = isFill || !tag.dirty
  val later    = WireDefault(false.B) // the operation in s1 must be tried again
  val evictRoom = wbRoom && !writingBack(tag.line)

  io.grey.valid      := isRef && hit && !isSet && (!clean || dirtyRoom)
  io.grey.bits.obj   := s1Ref.obj
  io.grey.bits.count := true.B
  io.drop.valid      := false.B
  io.drop.bits       := s1Ref.flag
  io.answer.valid    := false.B
  io.answer.bits     := false.B
  io.marked          := io.grey.fire
  io.already         := isRef && hit && isSet
  dirty.io.enq.valid := false.B
  dirty.io.enq.bits  := s1Set
  dirty.io.deq.ready := false.B
  fillQueue.io.enq.valid := false.B
  fillQueue.io.enq.bits  := missFree
  wbQueue.io.enq.valid   := false.B
  wbQueue.io.enq.bits    := wbFree
  val evict = WireDefault(false.B)

  when(isRef) {
    when(hit) {
      when(isSet) {
        io.answer.valid := s1Ref.host
      }.elsewhen(io.grey.fire) {
        newRow             := row | UIntToOH(bit, p.lineBits)
        newTag.dirty       := true.B
        writeRow           := true.B
        writeTag           := true.B
        dirty.io.enq.valid := clean
        io.answer.valid    := s1Ref.host
      }.elsewhen(io.greyFull) {
        io.drop.valid   := !s1Ref.host
        io.answer.valid := s1Ref.host
        io.answer.bits  := true.B
      }.otherwise {
        later := true.B
      }
    }.elsewhen(missHit) {
      when(missCount(missAt) < p.bitmapWaiters.U && !(replaying && replayMiss === missAt)) {
        val w = Wire(new Waiter)
        w.bit  := bit
        w.flag := s1Ref.flag
        w.host := s1Ref.host
        waiters.write(slotOf(missAt, missCount(missAt)), w)
        missCount(missAt) := missCount(missAt) + 1.U
      }.otherwise { later := true.B }
    }.elsewhen(setBusy || !missRoom || writingBack(line) || (held && tag.dirty && !evictRoom)) {
      later := true.B
    }.otherwise {
      evict               := held && tag.dirty
      newTag.epoch        := 0.U
      newTag.dirty        := false.B
      writeTag            := true.B
      missValid(missFree) := true.B
      missLine(missFree)  := line
      missCount(missFree) := 1.U
      val w = Wire(new Waiter)
      w.bit  := bit
      w.flag := s1Ref.flag
      w.host := s1Ref.host
      waiters.write(slotOf(missFree, 0.U), w)
      fillQueue.io.enq.valid := true.B
      assert(fillQueue.io.enq.ready, "fill queue smaller than the number of misses")
    }
  }
  when(s1Valid && s1Op === Op.Replay) { assert(hit, "a replayed reference misses its line") }
  when(isFill) {
    newTag.epoch        := epoch
    newTag.dirty        := io.grey.fire
    newTag.line         := missLine(s1Miss)
    writeTag            := true.B
    writeRow            := true.B
    missArrived(s1Miss) := false.B
    installed           := true.B
    assert(!held, "a fill over a line that is held")
  }
  when((isFill || (s1Valid && s1Op === Op.Replay)) && !later) {
    replayNext := replayNext + 1.U
    when(replayNext + 1.U === missCount(s1Miss)) {
      missValid(s1Miss) := false.B
      replaying         := false.B
    }
  }
  when(s1Valid && s1Op === Op.Clean) {
    val needed = held && tag.dirty
    when(!needed || evictRoom) {
      dirty.io.deq.ready := true.B
      evict              := needed
      newTag.dirty       := false.B
      writeTag           := needed
    }
  }
  when(evict) {
    wbValid(wbFree) := true.B
    wbLine(wbFree)  := tag.line
    wbData.write(wbFree, row)
    wbQueue.io.enq.valid := true.B
    assert(wbQueue.io.enq.ready && wbRoom, "a write-back without an entry")
  }

  when(s1Valid && s1Op === Op.Ref && later) {
    parking     := true.B
    parkedValid := true.B
    parked      := s1Ref
    assert(!parkedValid, "two references parked")
  }
  when(s1Valid && s1Op === Op.Parked && !later) { parkedValid := false.B }
  io.blocked := parkedValid

  val writeSet = Mux(sweeping, sweepNext, s1Set)
  val nothing  = 0.U.asTypeOf(new Tag)
  when(sweeping || writeTag) { tags.write(writeSet, Mux(sweeping, nothing, newTag)) }
  when(writeRow) { rows.write(s1Set, newRow) }
  forward    := s0Fire && s1Valid && (writeTag || writeRow) && s0Set === s1Set
  forwardTag := newTag
  forwardRow := newRow

  io.quiet := !io.in.valid && !s1Valid && !parkedValid && !missValid.asUInt.orR && !replaying && !wbValid.asUInt.orR
  io.cleaned := !dirty.io.deq.valid && io.quiet
  when(io.invalidate) { assert(io.cleaned, "bitmap lines dropped while some are dirty or awaited") }
}
