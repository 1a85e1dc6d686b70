// SPDX-License-Identifier: Apache-2.0
package merapi.mark

import chisel3._
import chisel3.util._

import merapi.common.{Grey, ReadPort, Reference, TraceConfig, TracerParameters, WritePort}
import merapi.primitives.{EpochSweep, SureFifo, Word}

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
  * before it left. With `pipelinedReplays` replays of a line follow each other all the same: the line stays until they
  * have ended, and whether it is dirty by now stands in a register.
  *
  * An operation may have read its set while one ahead of it was about to write it. The word of 64 bits that a reference
  * is in is then taken from that one, which is one or two cycles further; a change of the tag (a line becomes dirty,
  * comes, leaves) makes it try again.
  *
  * A line that is being fetched is in exactly one MSHR, whose waiters are replayed when it arrives. Its tag says so and
  * names the MSHR, so nothing is searched. A line that is being written back is in exactly one write-back entry until
  * its response; it is neither fetched nor written again before that (nor is another line of its set: sets are
  * compared, which takes half the width). That a line leaves is decided in s2; its row is read by an operation of its
  * own, which comes before all others and with the stages empty, so that nothing changes the row in between.
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
  private val markLine   = p.objectBits - 9
  private val setBits    = log2Ceil(p.bitmapLines)
  private val writeBacks = 8
  private val missBits   = log2Ceil(p.bitmapMisses)
  private val countBits  = log2Ceil(p.bitmapWaiters + 1)

  val io = IO(new Bundle {
    val config     = Input(new TraceConfig(p))
    val in         = Flipped(Decoupled(new Reference(p)))
    val grey       = Decoupled(new Grey(p))
    val greyFull   = Input(Bool())  // the store cannot take a grey and will not be able to by waiting
    val drop       = Valid(UInt(p.flagLog2.W))
    val answer     = Valid(Bool())  // to the host's references: true = refused
    val fill       = new ReadPort(p)
    val writeBack  = new WritePort(p)
    val clean      = Input(Bool())  // write back every dirty line
    val cleanEarly = Input(Bool())  // soon: as many as nothing else waits for
    val invalidate = Input(Bool())  // pulse, when quiet and clean
    val powerUp    = Input(Bool())  // the first reset, after which on-chip memory holds anything
    val quiet      = Output(Bool())
    val cleaned    = Output(Bool())
    val sweeping   = Output(Bool())
    val marked     = Output(Bool()) // a bit was turned
    val already    = Output(Bool()) // a bit was found set
  })

  class Tag extends Bundle {
    val epoch  = UInt(EpochSweep.bits.W) // the rest holds when this is the present one
    val dirty  = Bool()
    val coming = Bool()                  // the line is being fetched by `miss`
    val miss   = UInt(missBits.W)
    val line   = UInt(markLine.W)
  }
  object Op extends ChiselEnum { val Ref, Parked, Replay, Fill, Clean, Evict = Value }

  /** A reference by its mark bit. */
  class Mark extends Bundle {
    val bit        = UInt(p.objectBits.W)
    val flag       = UInt(p.flagLog2.W)
    val host       = Bool()
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

  val tags          = SyncReadMem(p.bitmapLines, new Tag)
  private val words = p.lineBits / 64
  val rows          = Seq.fill(words)(SyncReadMem(p.bitmapLines, UInt(64.W)))

  val epochs = Module(new EpochSweep(p.bitmapLines))
  epochs.io.powerUp := io.powerUp
  epochs.io.drop    := io.invalidate
  private val (sweeping, sweepNext, epoch) = (epochs.io.sweeping, epochs.io.next, epochs.io.epoch)
  io.sweeping := sweeping || io.invalidate

  // Misses.
  class Fetch extends Bundle {
    val miss = UInt(missBits.W)
    val line = UInt(markLine.W)
  }
  val missValid   = RegInit(0.U(p.bitmapMisses.W))
  val missLine    = Mem(p.bitmapMisses, UInt(markLine.W))
  val missCount   = Mem(p.bitmapMisses, UInt(countBits.W))
  val waiters     = Mem(p.bitmapMisses * p.bitmapWaiters, new Waiter)
  val arrivedLine = Mem(p.bitmapMisses, UInt(p.lineBits.W))
  // One entry per MSHR at most: neither queue is ever full.
  val fetches                                   = Module(new SureFifo(new Fetch, p.bitmapMisses))
  val arrivals                                  = Module(new SureFifo(UInt(missBits.W), p.bitmapMisses))
  private def slotOf(miss: UInt, i: UInt): UInt = (miss * p.bitmapWaiters.U) + i

  val arrival = io.fill.response.bits.tag(missBits - 1, 0)
  when(io.fill.response.valid) {
    arrivedLine.write(arrival, io.fill.response.bits.data)
    assert(missValid(arrival), "a bitmap line came that nobody asked for")
  }
  arrivals.io.put.valid     := io.fill.response.valid
  arrivals.io.put.bits      := arrival
  io.fill.request.valid     := fetches.io.deq.valid
  io.fill.request.bits.tag  := fetches.io.deq.bits.miss
  io.fill.request.bits.line := io.config.bitmap + fetches.io.deq.bits.line
  fetches.io.deq.ready      := io.fill.request.ready

  // Write-backs.
  val wbValid = RegInit(0.U(writeBacks.W))
  val wbSet   = Reg(Vec(writeBacks, UInt(setBits.W)))
  val wbLine  = Mem(writeBacks, UInt(markLine.W))
  val wbData  = Mem(writeBacks, UInt(p.lineBits.W))
  val wbQueue = Module(new SureFifo(UInt(log2Ceil(writeBacks).W), writeBacks))
  val wbFree  = Word.lowestIndex(~wbValid)
  val wbRoom  = !wbValid.andR
  io.writeBack.request.valid     := wbQueue.io.deq.valid
  io.writeBack.request.bits.tag  := wbQueue.io.deq.bits
  io.writeBack.request.bits.line := io.config.bitmap + wbLine.read(wbQueue.io.deq.bits)
  io.writeBack.request.bits.data := wbData.read(wbQueue.io.deq.bits)
  wbQueue.io.deq.ready           := io.writeBack.request.ready
  val wbEnds = Mux(io.writeBack.done.valid, UIntToOH(io.writeBack.done.bits, writeBacks), 0.U(writeBacks.W))

  // Dirty list: one entry for each change from clean to dirty.
  val dirty     = Module(new SureFifo(UInt(setBits.W), p.dirtyBound))
  val dirtyRoom = dirty.io.room

  // Rows that are to be read for their write-back.
  class Eviction extends Bundle {
    val entry = UInt(log2Ceil(writeBacks).W)
    val set   = UInt(setBits.W)
  }
  val evictions = Module(new SureFifo(new Eviction, writeBacks))

  class Operation extends Bundle {
    val op   = Op()
    val mark = new Mark
    val set  = UInt(setBits.W)
    val miss = UInt(missBits.W)
    val replay = Option.when(p.pipelinedReplays)(new Bundle {
      val index = UInt(countBits.W)
      val last  = Bool()
    })
    def special: Bool = op =/= Op.Ref
    def apart: Bool   = special && op =/= Op.Replay
  }
  val s1Valid = RegInit(false.B)
  val s1      = Reg(new Operation)
  val s2Valid = RegInit(false.B)
  val s2      = Reg(new Operation)

  // References that are to be tried again: two under way may follow the one that is parked.
  val parked = Module(new SureFifo(new Mark, 4))

  // The line that arrived and whose waiters are being replayed.
  val replaying  = RegInit(false.B)
  val installed  = RegInit(false.B)
  val replayMiss = Reg(UInt(missBits.W))
  val replayLine = Reg(UInt(markLine.W))
  val replayNext = Reg(UInt(countBits.W))
  // Of replays that follow each other. If one must be tried again those behind it are, too.
  class Pipelined extends Bundle {
    val last  = UInt(countBits.W) // index of the last that waits
    val all   = Bool()            // it has left s0
    val dirty = Bool()            // the line
  }
  val pipelined = Option.when(p.pipelinedReplays)(Reg(new Pipelined))
  arrivals.io.deq.ready := !replaying
  when(arrivals.io.deq.fire) {
    replaying  := true.B
    installed  := false.B
    replayMiss := arrivals.io.deq.bits
    replayLine := missLine.read(arrivals.io.deq.bits)
    replayNext := 0.U
  }

  // s0: what comes next.
  val evicting  = evictions.io.deq.valid
  val special   = (s1Valid && s1.special) || (s2Valid && s2.special) || evicting
  val wantEvict = evicting && !s1Valid && !s2Valid
  val wantFill  = replaying && !installed && !special
  // In cycles in which nothing else wants to go on.
  val wantEarly = io.cleanEarly && dirty.io.deq.valid && !special && !parked.io.deq.valid && !io.in.valid
  // A replay may wait for room in the dirty list, which only cleaning makes: with a full list, cleaning goes first.
  val mustClean = dirty.io.deq.valid && !dirtyRoom && !special
  val wantReplay = replaying && installed && pipelined.fold(!special && !mustClean) { r =>
    val others = (s1Valid && s1.apart) || (s2Valid && s2.apart) || evicting
    !r.all && !others && !(dirty.io.deq.valid && !dirtyRoom)
  }
  val wantClean = dirty.io.deq.valid && !special &&
    (mustClean || io.clean || dirty.io.count > (p.dirtyBound - p.dirtyBound / 4).U)
  val wantParked = parked.io.deq.valid && !special
  io.in.ready            := !parked.io.deq.valid && !(wantFill || wantReplay || wantClean) && !evicting && !sweeping
  evictions.io.deq.ready := wantEvict

  val waiter = waiters.read(slotOf(replayMiss, replayNext))
  val s0     = Wire(new Operation)
  s0.miss := replayMiss
  s0.replay.zip(pipelined).foreach { case (replay, r) =>
    replay.index := replayNext
    replay.last  := replayNext === r.last
  }
  s0.op        := Op.Ref
  s0.mark.bit  := io.in.bits.bit
  s0.mark.flag := io.in.bits.flag
  s0.mark.host := io.in.bits.host
  s0.set       := setOf(s0.mark.line)
  when(wantEvict) {
    s0.op  := Op.Evict
    s0.set := evictions.io.deq.bits.set
  }.elsewhen(wantFill || wantReplay) {
    s0.op        := Mux(wantFill, Op.Fill, Op.Replay)
    s0.mark.bit  := Cat(replayLine, waiter.bit)
    s0.mark.flag := waiter.flag
    s0.mark.host := waiter.host
    s0.set       := setOf(replayLine)
  }.elsewhen(wantClean || wantEarly) {
    s0.op  := Op.Clean
    s0.set := dirty.io.deq.bits
  }.elsewhen(wantParked) {
    s0.op   := Op.Parked
    s0.mark := parked.io.deq.bits
    s0.set  := setOf(parked.io.deq.bits.line)
  }
  val s0Fire  = wantEvict || wantFill || wantReplay || wantClean || wantEarly || wantParked || io.in.fire
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
  wbQueue.io.put.valid := evict1
  wbQueue.io.put.bits  := evictEntry
  val revoked1 = WireDefault(false.B) // behind a replay that must be tried again
  s2Valid := s1Valid && !evict1 && !revoked1
  s2      := s1
  val tag      = RegNext(readTag)
  val held     = RegNext(readTag.epoch === epoch)
  val sameLine = RegNext(readTag.line === s1.mark.line)
  val wordRead = RegNext(Mux(passWord1, lastBits, word1))
  val arrived  = RegEnable(arrivedAs, isFill1)
  val tagGone  = RegNext(lastWroteTag && lastIsMine, false.B) // two ahead
  val sameSet  = RegNext(s2.set === s1.set)                   // as the one ahead
  val sameWord = RegNext(s2.mark.word === s1.mark.word)

  // s2: decide and write.
  val isFill   = s2Valid && s2.op === Op.Fill
  val isReplay = s2Valid && s2.op === Op.Replay
  val isSure   = pipelined.fold(isFill)(_ => isFill || isReplay) // that its line is here
  val stale    = tagGone || (lastWroteTag && sameSet)
  val conflict = stale && !isSure
  val word     = Mux(lastWroteWord && sameSet && sameWord && !isFill, lastBits, wordRead)
  val newTag   = WireDefault(tag)
  newTag.epoch := epoch
  newTag.line  := Mux(s2.op === Op.Clean, tag.line, s2.mark.line)
  val writeTag = WireDefault(false.B)
  val turn     = WireDefault(false.B) // the bit

  val line     = s2.mark.line
  val bit      = s2.mark.bit(5, 0)
  val here     = held && !tag.coming
  val hit      = isSure || (here && sameLine)
  val isSet    = word(bit)
  val missFree = Word.lowestIndex(~missValid)
  val missRoom = !missValid.andR
  // Of the line that is being replayed, or that the reference waits for.
  val missOf  = Mux(isFill || isReplay, s2.miss, tag.miss)
  val waiting = missCount.read(missOf)
  // Compared in s1. What is evicted in the cycle before has another tag now.
  val wbHits = RegNext(VecInit(wbSet.map(_ === s1.set)).asUInt)
  val wbHit  = (wbValid & wbHits).orR
  // A line stays until all that waited for it are replayed.
  val replayedSet = replaying && RegNext(setOf(replayLine) === s1.set)
  // A fill is the replay of its first waiter as well.
  val isRef     = s2Valid && s2.op =/= Op.Clean
  val clean     = isFill || !pipelined.fold(tag.dirty)(r => Mux(isReplay, r.dirty, tag.dirty))
  val later     = WireDefault(false.B) // the operation in s2 must be tried again
  val evictRoom = wbRoom && !wbHit

  io.grey.valid      := isRef && !conflict && hit && !isSet && (!clean || dirtyRoom)
  io.grey.bits.obj   := io.config.objectOf(s2.mark.bit)
  io.grey.bits.count := true.B
  io.drop.valid      := false.B
  io.drop.bits       := s2.mark.flag
  io.answer.valid    := false.B
  io.answer.bits     := false.B
  io.marked          := io.grey.fire
  io.already         := isRef && !conflict && hit && isSet
  dirty.io.put.valid := false.B
  dirty.io.put.bits  := s2.set
  dirty.io.deq.ready := false.B
  val evict  = WireDefault(false.B)
  val joins  = WireDefault(false.B) // those that wait for a line already
  val enter  = WireDefault(false.B) // a line is asked for
  val ends   = WireDefault(false.B) // the last that waited was replayed
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
        dirty.io.put.valid := clean
        io.answer.valid    := s2.mark.host
        // So it is anyway, by what is asserted below. Told of it, synthesis takes 300 LUT less for four banks.
        pipelined.foreach(_ => newTag.coming := false.B)
      }.elsewhen(io.greyFull) {
        io.drop.valid   := !s2.mark.host
        io.answer.valid := s2.mark.host
        io.answer.bits  := true.B
      }.otherwise {
        later := true.B
      }
    }.elsewhen(held && tag.coming) {
      joins := sameLine && waiting < p.bitmapWaiters.U && !(replaying && replayMiss === tag.miss)
      later := !joins
    }.elsewhen(!missRoom || wbHit || replayedSet || (held && tag.dirty && !wbRoom)) {
      later := true.B
    }.otherwise {
      evict         := held && tag.dirty
      newTag.dirty  := false.B
      newTag.coming := true.B
      newTag.miss   := missFree
      writeTag      := true.B
      enter         := true.B
    }
  }
  fetches.io.put.valid     := enter
  fetches.io.put.bits.miss := missFree
  fetches.io.put.bits.line := line
  when(enter) { missLine.write(missFree, line) }
  // One writer each: two ports would make registers of the memory.
  when(joins || enter) {
    val at = Mux(joins, tag.miss, missFree)
    val i  = Mux(joins, waiting, 0.U)
    missCount.write(at, i + 1.U)
    waiters.write(slotOf(at, i), asking)
  }
  pipelined match {
    case None => when(isReplay && !conflict) { assert(hit, "a replayed reference misses its line") }
    case Some(r) =>
      when(writeTag && replayedSet) { r.dirty := newTag.dirty }
      // Whatever is ahead of it, and so close that its tag was not read, has left the line dirty.
      assert(!(isReplay && writeTag && stale), "a replay writes a tag that it has not read")
      when(isReplay && !stale) {
        assert(here && sameLine, "a replayed reference misses its line")
        assert(r.dirty === tag.dirty, "a replayed line became dirty or clean, and its replays do not know")
      }
  }
  when(isFill) {
    newTag.dirty  := io.grey.fire
    newTag.coming := false.B
    writeTag      := true.B
    installed     := true.B
    assert(held && tag.coming && tag.miss === s2.miss && sameLine, "a fill of a line that nobody asked for")
  }
  pipelined.zip(s2.replay) match {
    case None =>
      when((isFill || isReplay) && !later) {
        replayNext := replayNext + 1.U
        ends       := replayNext + 1.U === waiting
      }
    case Some((r, replay)) =>
      val again = isReplay && later
      ends := (isFill || isReplay) && !later && Mux(isFill, waiting === 1.U, replay.last)
      // One is in s1 then, and another one in s0.
      revoked1 := s1.op === Op.Replay && (again || RegNext(again, false.B))
      when(isFill) {
        r.last     := waiting - 1.U
        r.all      := false.B
        replayNext := Mux(later, 0.U, 1.U)
      }.elsewhen(again) {
        r.all      := false.B
        replayNext := replay.index
      }.elsewhen(wantReplay) {
        r.all      := replayNext === r.last
        replayNext := replayNext + 1.U
      }
  }
  when(ends) { replaying := false.B }
  val entered = Mux(enter, Word.lowest(~missValid), 0.U)
  val ended   = Mux(ends, UIntToOH(s2.miss, p.bitmapMisses), 0.U)
  missValid := (missValid | entered) & ~ended
  when(s2Valid && s2.op === Op.Clean && !conflict) {
    val needed = held && tag.dirty
    when(!needed || evictRoom) {
      dirty.io.deq.ready := true.B
      evict              := needed
      newTag.dirty       := false.B
      writeTag           := needed
    }
  }
  val leaves = Mux(evict, Word.lowest(~wbValid), 0.U)
  wbValid := (wbValid | leaves) & ~wbEnds
  when(evict) {
    wbSet(wbFree) := s2.set
    wbLine.write(wbFree, tag.line)
    assert(wbRoom, "an eviction without an entry")
  }
  evictions.io.put.valid      := evict
  evictions.io.put.bits.entry := wbFree
  evictions.io.put.bits.set   := s2.set

  parked.io.put.valid := s2Valid && s2.op === Op.Ref && later
  parked.io.put.bits  := s2.mark
  parked.io.deq.ready := s2Valid && s2.op === Op.Parked && !later

  val writeSet = Mux(sweeping, sweepNext, s2.set)
  val nothing  = 0.U.asTypeOf(new Tag)
  when(sweeping || writeTag) { tags.write(writeSet, Mux(sweeping, nothing, newTag)) }
  // A fill writes its word whether it turns a bit or not. With these it turns the bit or finds it set; and a word that is
  // written by another operation has its bit turned. So what is written does not wait for the decision.
  val settles = !isFill || (io.grey.ready && dirtyRoom)
  val newWord = word | Mux(settles, UIntToOH(bit, 64), 0.U)
  for ((row, w) <- rows.zipWithIndex) {
    val mine = s2.mark.word === w.U
    when(isFill || (turn && mine)) { row.write(s2.set, Mux(mine, newWord, arrived(w))) }
  }
  lastWroteTag  := writeTag
  lastWroteWord := turn || isFill
  lastSet       := s2.set
  lastWord      := s2.mark.word
  lastBits      := newWord

  io.quiet := !io.in.valid && !s1Valid && !s2Valid && !parked.io.deq.valid && !missValid.orR && !replaying &&
    !wbValid.orR
  io.cleaned := !dirty.io.deq.valid && io.quiet
  when(io.invalidate) { assert(io.cleaned, "bitmap lines dropped while some are dirty or awaited") }
}
