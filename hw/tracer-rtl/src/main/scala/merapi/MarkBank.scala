// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

/** Tests and sets mark bits: a direct-mapped cache of bitmap lines with its own misses.
  *
  * {{{
  *   reference ─┐
  *   parked ────┤      read tag     choose      compare, decide, write      grey
  *   replay ────┤      and row      the word
  *   fill ──────┼─ s0 ───────── s1 ───────── s2 ─────────────────────────> store
  *   clean ─────┤                            │ miss: MSHR, victim to be evicted
  *   evict ─────┘                            │ cannot now: parked, or offered again
  * }}}
  *
  * Everything that changes the cache is an operation in s2, one a cycle, so that there is one writer and no race. All
  * operations but references are special: one of them at a time is in s1 and s2, so each finds the state that the one
  * before it left.
  *
  * An operation may have read its set while one ahead of it was about to write it. The word of 64 bits that a reference
  * is in is then taken from that one, which is one or two cycles further; a change of the tag (a line becomes dirty,
  * comes, leaves) makes it try again.
  *
  * A line that is being fetched is in exactly one MSHR, whose waiters are replayed when it arrives. A line that is
  * being written back is in exactly one write-back entry until its response; it is neither fetched nor written again
  * before that. That a line leaves is decided in s2; its row is read by an operation of its own, which comes before all
  * others and with the stages empty, so that nothing changes the row in between.
  *
  * Why it cannot deadlock: an operation never waits in a stage. A reference that cannot go on is parked and offered
  * again with the lowest priority (there is room for all that are under way); what it waits for (an MSHR, a write-back
  * entry, room in the dirty list, a fill) is freed by memory answers, fills and cleaning, which all have priority over
  * it; a replay, which has priority over cleaning, lets it pass when the dirty list is full. When the grey store and its
  * spill are full, the reference is dropped (its source is flagged) or, if it is the host's, refused: neither waits.
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
  object Op extends ChiselEnum { val Ref, Parked, Replay, Fill, Clean, Evict = Value }

  /** A reference by its mark bit. */
  class Mark extends Bundle {
    val bit  = UInt(p.objectBits.W)
    val flag = UInt(p.flagLog2.W)
    val host = Bool()
    def line: UInt = bit >> 9
    def word: UInt = bit(8, 6)
  }

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
  private val words = p.lineBits / 64
  val rows = Seq.fill(words)(SyncReadMem(p.bitmapLines, UInt(64.W)))

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
  val missSet     = Reg(Vec(p.bitmapMisses, UInt(setBits.W)))
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

  // Rows that are to be read for their write-back.
  class Eviction extends Bundle {
    val entry = UInt(log2Ceil(writeBacks).W)
    val set   = UInt(setBits.W)
  }
  val evictions = Module(new Queue(new Eviction, writeBacks))

  class Operation extends Bundle {
    val op   = Op()
    val mark = new Mark
    val set  = UInt(setBits.W)
    val miss = UInt(log2Ceil(p.bitmapMisses).W)
    def special: Bool = op =/= Op.Ref
  }
  val s1Valid = RegInit(false.B)
  val s1      = Reg(new Operation)
  val s2Valid = RegInit(false.B)
  val s2      = Reg(new Operation)

  // References that are to be tried again: two under way may follow the one that is parked.
  val parked = Module(new Queue(new Mark, 4))

  // The line that arrived and whose waiters are being replayed.
  val replaying  = RegInit(false.B)
  val installed  = RegInit(false.B)
  val replayMiss = Reg(UInt(log2Ceil(p.bitmapMisses).W))
  val replayNext = Reg(UInt(log2Ceil(p.bitmapWaiters + 1).W))
  when(!replaying && missArrived.asUInt.orR) {
    replaying  := true.B
    installed  := false.B
    replayMiss := PriorityEncoder(missArrived)
    replayNext := 0.U
  }

  // s0: what comes next.
  val evicting   = evictions.io.deq.valid
  val special    = (s1Valid && s1.special) || (s2Valid && s2.special) || evicting
  val wantEvict  = evicting && !s1Valid && !s2Valid
  val wantFill   = replaying && !installed && !special
  // A replay may wait for room in the dirty list, which only cleaning makes: with a full list, cleaning goes first.
  val mustClean  = dirty.io.deq.valid && !dirtyRoom && !special
  val wantReplay = replaying && installed && !special && !mustClean
  val wantClean  = dirty.io.deq.valid && !special &&
    (mustClean || io.clean || dirty.io.count > (p.dirtyBound - p.dirtyBound / 4).U)
  val wantParked = parked.io.deq.valid && !special
  io.in.ready := !parked.io.deq.valid && !(wantFill || wantReplay || wantClean) && !evicting && !sweeping
  evictions.io.deq.ready := wantEvict

  val waiter = waiters.read(slotOf(replayMiss, replayNext))
  val s0     = Wire(new Operation)
  s0.miss      := replayMiss
  s0.op        := Op.Ref
  s0.mark.bit  := io.config.markBit(io.in.bits.obj)
  s0.mark.flag := io.in.bits.flag
  s0.mark.host := io.in.bits.host
  s0.set       := setOf(s0.mark.line)
  when(wantEvict) {
    s0.op  := Op.Evict
    s0.set := evictions.io.deq.bits.set
  }.elsewhen(wantFill || wantReplay) {
    s0.op        := Mux(wantFill, Op.Fill, Op.Replay)
    s0.mark.bit  := Cat(missLine(replayMiss), waiter.bit)
    s0.mark.flag := waiter.flag
    s0.mark.host := waiter.host
    s0.set       := missSet(replayMiss)
  }.elsewhen(wantClean) {
    s0.op  := Op.Clean
    s0.set := dirty.io.deq.bits
  }.elsewhen(wantParked) {
    s0.op   := Op.Parked
    s0.mark := parked.io.deq.bits
    s0.set  := setOf(parked.io.deq.bits.line)
  }
  val s0Fire = wantEvict || wantFill || wantReplay || wantClean || wantParked || io.in.fire
  val readTag = tags.read(s0.set)
  val readRow = rows.map(_.read(s0.set))
  s1Valid := s0Fire
  s1      := s0

  // What the operation that was in s2 before has written.
  val lastWroteTag  = RegInit(false.B)
  val lastWroteWord = RegInit(false.B)
  val lastSet       = Reg(UInt(setBits.W))
  val lastWord      = Reg(UInt(log2Ceil(words).W))
  val lastBits      = Reg(UInt(64.W))

  // s1: the word, and the tag as it is. An eviction ends here.
  val lastIsMine = lastSet === s1.set
  val isFill1    = s1.op === Op.Fill
  val arrived1   = arrivedLine.read(s1.miss)
  val arrivedAs  = VecInit((0 until words).map(w => arrived1(64 * w + 63, 64 * w)))
  val word1      = Mux(isFill1, arrivedAs(s1.mark.word), VecInit(readRow)(s1.mark.word))
  val passWord1  = lastWroteWord && lastIsMine && lastWord === s1.mark.word && !isFill1
  val evict1     = s1Valid && s1.op === Op.Evict
  val evictEntry = RegNext(evictions.io.deq.bits.entry)
  when(evict1) { wbData.write(evictEntry, VecInit(readRow).asUInt) }
  wbQueue.io.enq.valid := evict1
  wbQueue.io.enq.bits  := evictEntry
  assert(!(evict1 && !wbQueue.io.enq.ready), "a write-back without an entry")
  s2Valid := s1Valid && !evict1
  s2      := s1
  val tag      = RegNext(readTag)
  val wordRead = RegNext(Mux(passWord1, lastBits, word1))
  val arrived  = RegEnable(arrivedAs, isFill1)
  val tagGone  = RegNext(lastWroteTag && lastIsMine, false.B) // two ahead
  val sameSet  = RegNext(s2.set === s1.set)                   // as the one ahead
  val sameWord = RegNext(s2.mark.word === s1.mark.word)

  // s2: decide and write.
  val isFill   = s2Valid && s2.op === Op.Fill
  val conflict = (tagGone || (lastWroteTag && sameSet)) && !isFill
  val word     = Mux(lastWroteWord && sameSet && sameWord && !isFill, lastBits, wordRead)
  val held     = tag.epoch === epoch
  val newTag   = WireDefault(tag)
  val writeTag = WireDefault(false.B)
  val turn     = WireDefault(false.B) // the bit

  val line = s2.mark.line
  val bit  = s2.mark.bit(5, 0)
  val hit  = isFill || (held && tag.line === line)
  val isSet = word(bit)
  // MSHRs and write-backs were compared in s1, with what was entered since.
  val missEntered = WireDefault(false.B)
  val missFree    = PriorityEncoder(missValid.map(!_))
  val missRoom    = !missValid.reduce(_ && _)
  private def entered(i: Int): Bool = missEntered && missFree === i.U
  val missLines = RegNext(
    VecInit((0 until p.bitmapMisses).map(i => Mux(entered(i), line, missLine(i)) === s1.mark.line))
  )
  val missSets = RegNext(VecInit((0 until p.bitmapMisses).map(i => Mux(entered(i), s2.set, missSet(i)) === s1.set)))
  val missHits = missValid.zip(missLines).map { case (v, l) => v && l }
  val missHit  = missHits.reduce(_ || _)
  val missAt   = OHToUInt(missHits)
  val setBusy  = missValid.zip(missSets).map { case (v, s) => v && s }.reduce(_ || _)
  // What is evicted in the cycle before has the same set, hence another tag now.
  val wbLines  = RegNext(VecInit(wbLine.map(_ === s1.mark.line)))
  val wbHit    = wbValid.zip(wbLines).map { case (v, l) => v && l }.reduce(_ || _)
  // A fill is the replay of its first waiter as well.
  val isRef = s2Valid && s2.op =/= Op.Clean
  val clean = isFill || !tag.dirty
  val later = WireDefault(false.B) // the operation in s2 must be tried again
  val evictRoom = wbRoom && !writingBack(tag.line)

  io.grey.valid      := isRef && !conflict && hit && !isSet && (!clean || dirtyRoom)
  io.grey.bits.obj   := io.config.objectOf(s2.mark.bit)
  io.grey.bits.count := true.B
  io.drop.valid      := false.B
  io.drop.bits       := s2.mark.flag
  io.answer.valid    := false.B
  io.answer.bits     := false.B
  io.marked          := io.grey.fire
  io.already         := isRef && !conflict && hit && isSet
  dirty.io.enq.valid := false.B
  dirty.io.enq.bits  := s2.set
  dirty.io.deq.ready := false.B
  fillQueue.io.enq.valid := false.B
  fillQueue.io.enq.bits  := missFree
  val evict  = WireDefault(false.B)
  val joins  = WireDefault(false.B) // those that wait for a line already
  val asking = Wire(new Waiter)
  asking.bit  := s2.mark.bit(8, 0)
  asking.flag := s2.mark.flag
  asking.host := s2.mark.host

  when(isRef) {
    when(conflict) {
      later := true.B
    }.elsewhen(hit) {
      when(isSet) {
        io.answer.valid := s2.mark.host
      }.elsewhen(io.grey.fire) {
        turn               := true.B
        newTag.dirty       := true.B
        writeTag           := clean
        dirty.io.enq.valid := clean
        io.answer.valid    := s2.mark.host
      }.elsewhen(io.greyFull) {
        io.drop.valid   := !s2.mark.host
        io.answer.valid := s2.mark.host
        io.answer.bits  := true.B
      }.otherwise {
        later := true.B
      }
    }.elsewhen(missHit) {
      when(missCount(missAt) < p.bitmapWaiters.U && !(replaying && replayMiss === missAt)) {
        joins := true.B
        missCount(missAt) := missCount(missAt) + 1.U
      }.otherwise { later := true.B }
    }.elsewhen(setBusy || !missRoom || wbHit || (held && tag.dirty && !evictRoom)) {
      later := true.B
    }.otherwise {
      evict               := held && tag.dirty
      newTag.epoch        := 0.U
      newTag.dirty        := false.B
      writeTag            := true.B
      missEntered         := true.B
      missValid(missFree) := true.B
      missLine(missFree)  := line
      missSet(missFree)   := s2.set
      missCount(missFree) := 1.U
      fillQueue.io.enq.valid := true.B
      assert(fillQueue.io.enq.ready, "fill queue smaller than the number of misses")
    }
  }
  // One writer: two ports would make registers of the memory.
  when(joins || missEntered) {
    waiters.write(Mux(joins, slotOf(missAt, missCount(missAt)), slotOf(missFree, 0.U)), asking)
  }
  when(s2Valid && s2.op === Op.Replay && !conflict) { assert(hit, "a replayed reference misses its line") }
  when(isFill) {
    newTag.epoch         := epoch
    newTag.dirty         := io.grey.fire
    newTag.line          := missLine(s2.miss)
    writeTag             := true.B
    missArrived(s2.miss) := false.B
    installed            := true.B
    assert(!held, "a fill over a line that is held")
  }
  when((isFill || (s2Valid && s2.op === Op.Replay)) && !later) {
    replayNext := replayNext + 1.U
    when(replayNext + 1.U === missCount(s2.miss)) {
      missValid(s2.miss) := false.B
      replaying          := false.B
    }
  }
  when(s2Valid && s2.op === Op.Clean && !conflict) {
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
    assert(evictions.io.enq.ready && wbRoom, "an eviction without an entry")
  }
  evictions.io.enq.valid      := evict
  evictions.io.enq.bits.entry := wbFree
  evictions.io.enq.bits.set   := s2.set

  parked.io.enq.valid := s2Valid && s2.op === Op.Ref && later
  parked.io.enq.bits  := s2.mark
  assert(!(parked.io.enq.valid && !parked.io.enq.ready), "a parked reference without a place")
  parked.io.deq.ready := s2Valid && s2.op === Op.Parked && !later
  io.blocked          := parked.io.deq.valid

  val writeSet = Mux(sweeping, sweepNext, s2.set)
  val nothing  = 0.U.asTypeOf(new Tag)
  when(sweeping || writeTag) { tags.write(writeSet, Mux(sweeping, nothing, newTag)) }
  // A fill that turns no bit yet writes its word as it came.
  val newWord = word | Mux(turn, UIntToOH(bit, 64), 0.U)
  for ((row, w) <- rows.zipWithIndex) {
    val mine = s2.mark.word === w.U
    when(isFill || (turn && mine)) { row.write(s2.set, Mux(mine, newWord, arrived(w))) }
  }
  lastWroteTag  := writeTag
  lastWroteWord := turn || isFill
  lastSet       := s2.set
  lastWord      := s2.mark.word
  lastBits      := newWord

  io.quiet := !io.in.valid && !s1Valid && !s2Valid && !parked.io.deq.valid && !missValid.asUInt.orR && !replaying &&
    !wbValid.asUInt.orR
  io.cleaned := !dirty.io.deq.valid && io.quiet
  when(io.invalidate) { assert(io.cleaned, "bitmap lines dropped while some are dirty or awaited") }
}
