// SPDX-License-Identifier: Apache-2.0
package merapi

import chisel3._
import chisel3.util._

import merapi.common._
import merapi.control.{CoreOrders, CoreStatus, GreyEnds}
import merapi.lane.{Chaser, ScanLane, ShapeWalker}
import merapi.mark._
import merapi.primitives.{Fifo, RoundArbiter}

object CorePorts {

  /** Readers: per lane lines, bitmap, spill; then shapes, live, sweep, limits, chaser. */
  def readers(p: TracerParameters): Int = ofTile * p.lanes + 5
  val ofTile: Int                       = 3

  /** Writers: per lane bitmap and spill; then live words and clearing. */
  def writers(p: TracerParameters): Int    = 2 * p.lanes + 2
  def liveWriter(p: TracerParameters): Int = 2 * p.lanes
}

/** Everything that traces: lanes, filters, the crossing, mark banks, grey stores and what they share.
  *
  * Its reset is also the abort: with no request outstanding, the state after reset is right whatever was before.
  *
  * The core loop is grey store -> lane -> filter -> crossing -> bank -> grey store of the same index. It has no
  * deadlock because a bank always ends what it is given (marked, found marked, refused, dropped) with nothing but the
  * memory's help; see MarkBank and docs/microarchitecture.md.
  */
class TracerCore(p: TracerParameters) extends Module {
  val io = IO(new Bundle {
    val powerUp  = Input(Bool())
    val config   = Input(new TraceConfig(p))
    val orders   = Input(new CoreOrders(p))
    val status   = Output(new CoreStatus(p))
    val slice    = Flipped(Valid(new Slice(p))) // when no sweep is under way
    val clear    = Flipped(Valid(new ClearRange(p)))
    val grey     = Flipped(Decoupled(new RawReference(p)))
    val greyEnds = Output(new GreyEnds(p))
    val seen     = Vec(p.lanes, Decoupled(UInt(64.W)))
    val deferred = Vec(p.lanes, Decoupled(new Deferred(p)))
    val reads    = Vec(CorePorts.readers(p), new ReadPort(p))
    val writes   = Vec(CorePorts.writers(p), new WritePort(p))
    val fault    = Valid(new FaultReport)
    val events   = Output(new CounterEvents)
  })
  val c = io.config

  private def all(xs: Seq[Bool]): Bool = xs.reduce(_ && _)
  private def any(xs: Seq[Bool]): Bool = xs.reduce(_ || _)
  private def late(x: Bool): Bool      = RegNext(x, false.B)
  // Whether all rested a cycle before. With many lanes each is asked on its own: the ways that lead here are long.
  private def rested(kinds: Seq[Seq[Bool]]): Bool =
    if (p.wide) all(kinds.flatten.map(late)) else late(all(kinds.map(all)))

  val lanes = Seq.tabulate(p.lanes)(i => Module(new ScanLane(p)).suggestName(s"lane_$i"))
  val filters = Seq.tabulate(p.lanes * p.scanPorts)(i =>
    Module(new ReferenceFilter(p, p.recentReferences)).suggestName(s"filter_$i")
  )
  val banks      = Seq.tabulate(p.lanes)(i => Module(new MarkBank(p)).suggestName(s"bank_$i"))
  val stores     = Seq.tabulate(p.lanes)(i => Module(new GreyStore(p)).suggestName(s"store_$i"))
  val merges     = Seq.tabulate(p.lanes)(i => Module(new LiveMerge(p)).suggestName(s"merge_$i"))
  val hostFilter = Module(new ReferenceFilter(p, 2))
  val walker     = Module(new ShapeWalker(p))
  val live       = Module(new LiveTable(p))
  val sweep      = Module(new BitmapSweep(p))
  val clearer    = Module(new Clearer(p))
  val chaser     = Module(new Chaser(p))
  val limits     = Module(new LimitLoader(p, lanes.size + filters.size + 3))

  // Lanes rest while a sweep looks for greys, so that it does not meet marks of this cycle; they run as soon as it
  // waits for room, until it ends.
  val stop     = RegNext(io.orders.hold, false.B)
  val pausing  = RegNext(io.orders.pausing, false.B)
  val released = RegInit(false.B)
  released := sweep.io.busy && (released || sweep.io.blocked)
  val hold = stop || RegNext(sweep.io.busy && !released, false.B)

  // Lanes are the first that come to rest. What they have counted is written while filters and banks end; early, while the
  // lanes' last references leave as well.
  private val lanesQuiet = rested(Seq(lanes.map(_.io.quiet)))
  private val allCounted = if (p.earlyFlush) rested(Seq(lanes.map(_.io.allCounted))) else lanesQuiet
  private val drain      = late(io.orders.drain)
  private val flushLive  = late(drain && late(stop) && allCounted)
  // From a flush to the hold's end.
  if (p.earlyFlush) layer.block(layers.Verification.Assert) {
    val flushed = RegInit(false.B)
    flushed := stop && (flushed || flushLive)
    assert(!((flushed || flushLive) && any(lanes.map(_.io.live.valid))), "live words come after a flush")
  }

  val arraysWait = RegNext(stores.map(_.io.deep).reduce(_ || _), false.B)

  // Chunks whose marked objects are to be scanned again.
  val flags = Module(new RescanFlags(p))
  // With eight lanes a cycle later: whether a store is full, which makes a bank drop, is known late. A drop that is on its way
  // counts as a flag to be looked for.
  private val drops = banks.map { bank =>
    if (!p.wide) bank.io.drop
    else {
      val drop = Wire(chiselTypeOf(bank.io.drop))
      drop.valid := RegNext(bank.io.drop.valid, false.B)
      drop.bits  := RegNext(bank.io.drop.bits)
      drop
    }
  }
  private val searching = if (p.wide) flags.io.searching || drops.map(_.valid).reduce(_ || _) else flags.io.searching
  flags.io.drops.zip(drops).foreach { case (to, drop) => to := drop }
  flags.io.unflag  := io.orders.unflag
  flags.io.resumed := io.orders.invalidate
  flags.io.settled := io.orders.settled
  flags.io.regions := c.regionCount
  flags.io.shift   := c.flagShift

  // The crossing: of each port of the lanes one of its own, which meet before the bank. The host's references take the
  // first.
  private val crossings = Seq.tabulate(p.scanPorts)(j =>
    filters.indices.filter(_ % p.scanPorts == j).map(filters(_)) ++ (if (j == 0) Some(hostFilter) else None)
  )
  private val picks = crossings.map(sources =>
    banks.indices.map { b =>
      val pick = Module(new RoundArbiter(new Reference(p), sources.size))
      for ((in, source) <- pick.io.in.zip(sources)) {
        in.valid := source.io.bank(b)
        in.bits  := source.io.out.bits
      }
      pick
    }
  )
  for ((sources, of) <- crossings.zip(picks); (source, i) <- sources.zipWithIndex)
    source.io.out.ready := of.map(_.io.in(i).ready).reduce(_ || _)
  for ((bank, b) <- banks.zipWithIndex) {
    val queues = picks.map(of => Fifo(of(b).io.out, p.markQueue))
    if (queues.size == 1) bank.io.in <> queues.head
    else {
      val meet = Module(new RRArbiter(new Reference(p), queues.size))
      meet.io.in.zip(queues).foreach { case (in, queue) => in <> queue }
      bank.io.in <> meet.io.out
    }
  }

  for (i <- 0 until p.lanes) {
    val (lane, bank, store) = (lanes(i), banks(i), stores(i))
    lane.io.powerUp    := io.powerUp
    lane.io.config     := c
    lane.io.hold       := hold
    lane.io.stop       := stop
    lane.io.pausing    := pausing
    lane.io.arraysWait := arraysWait
    lane.io.invalidate := io.orders.invalidate
    lane.io.fill       := limits.io.fill
    limits.io.ask((1 + p.scanPorts) * i) <> lane.io.ask
    lane.io.dropShapes := io.orders.dropShapes
    lane.io.redefined  := io.orders.redefined
    lane.io.grey <> store.io.take
    store.io.giveBack := lane.io.giveBack
    for ((port, j) <- lane.io.references.zipWithIndex) {
      val filter = filters(p.scanPorts * i + j)
      filter.io.in <> (if (p.wide) Fifo(port, 2) else port) // ready by its registers
      filter.io.config     := c
      filter.io.invalidate := io.orders.invalidate || io.orders.forget
      filter.io.fill       := limits.io.fill
      limits.io.ask((1 + p.scanPorts) * i + 1 + j) <> filter.io.ask
    }
    merges(i).io.in <> lane.io.live
    merges(i).io.flush := flushLive
    live.io.in(i) <> merges(i).io.out
    io.seen(i) <> lane.io.seen
    io.deferred(i) <> lane.io.deferred
    walker.io.lanes(i) <> lane.io.shapes
    lane.io.shareOut <> lanes((i + 1) % p.lanes).io.shareIn
    bank.io.powerUp    := io.powerUp
    bank.io.config     := c
    bank.io.clean      := io.orders.flush
    bank.io.cleanEarly := drain
    bank.io.invalidate := io.orders.invalidate
    bank.io.greyFull   := store.io.full
    store.io.mark <> bank.io.grey
    store.io.sweep <> sweep.io.greys(i)
    store.io.regionLog2 := c.regionLog2
    store.io.hold       := hold
    store.io.spillFirst := (c.spill + (c.spillPerLane * i.U)).take(p.lineAddress)
    store.io.spillLines := c.spillPerLane
    io.reads(3 * i) <> lane.io.lines
    io.reads(3 * i + 1) <> bank.io.fill
    io.reads(3 * i + 2) <> store.io.read
    io.writes(2 * i) <> bank.io.writeBack
    io.writes(2 * i + 1) <> store.io.write
  }
  private val shared = 3 * p.lanes
  io.reads(shared) <> walker.io.read
  io.reads(shared + 1) <> live.io.read
  io.reads(shared + 2) <> sweep.io.read
  io.reads(shared + 3) <> limits.io.read
  io.reads(shared + 4) <> chaser.io.read
  io.writes(CorePorts.liveWriter(p)) <> live.io.write
  io.writes(2 * p.lanes + 1) <> clearer.io.write

  hostFilter.io.config     := c
  hostFilter.io.invalidate := io.orders.invalidate || io.orders.forget
  private val offered = Module(new Arbiter(new RawReference(p), 2))
  offered.io.in(0) <> io.grey
  offered.io.in(1) <> chaser.io.references
  hostFilter.io.in <> offered.io.out
  chaser.io.config := c
  chaser.io.looked.zip(lanes).foreach { case (to, lane) => to := lane.io.looked }
  chaser.io.starved    := RegNext(all(lanes.map(l => l.io.few && !l.io.grey.valid)), false.B)
  chaser.io.crowded    := arraysWait
  chaser.io.hold       := hold
  chaser.io.invalidate := io.orders.invalidate
  chaser.io.dropShapes := io.orders.dropShapes
  chaser.io.fill       := limits.io.fill
  limits.io.ask(lanes.size + filters.size + 2) <> chaser.io.ask
  private val greysEnded = hostFilter.io.ended.asBools ++ banks.map(b => late(b.io.answer.valid))
  io.greyEnds.count   := RegNext(PopCount(greysEnded), 0.U)
  io.greyEnds.refused := RegNext(any(banks.map(b => late(b.io.answer.valid && b.io.answer.bits))), false.B)
  hostFilter.io.fill  := limits.io.fill
  limits.io.ask(lanes.size + filters.size) <> hostFilter.io.ask
  limits.io.ask(lanes.size + filters.size + 1) <> sweep.io.ask
  sweep.io.fill          := limits.io.fill
  limits.io.config       := c
  limits.io.powerUp      := io.powerUp
  limits.io.invalidate   := io.orders.invalidate
  limits.io.draining     := drain
  walker.io.config       := c
  live.io.config         := c
  live.io.flush          := flushLive && late(all(merges.map(_.io.empty))) // no update comes
  sweep.io.config        := c
  sweep.io.slice         := io.slice
  sweep.io.hold          := stop
  sweep.io.resumed       := io.orders.invalidate
  clearer.io.range.valid := io.clear.valid
  clearer.io.range.bits  := io.clear.bits
  clearer.io.hold        := stop

  private val others = Seq(filters.map(_.io.quiet), Seq(hostFilter.io.quiet), banks.map(_.io.quiet)) ++
    Seq(walker.io.quiet, live.io.quiet, limits.io.quiet, chaser.io.quiet).map(Seq(_))
  io.status.moving := Cat(
    Seq(
      all(lanes.map(_.io.quiet)),
      all(filters.map(_.io.quiet)),
      hostFilter.io.quiet,
      all(banks.map(_.io.quiet)),
      walker.io.quiet,
      live.io.quiet,
      all(stores.map(_.io.quiet)),
      sweep.io.quiet,
      clearer.io.quiet,
      chaser.io.quiet
    ).map(!_)
  )
  // Of two cycles before, all three: what was quiet and held still is, and who finds nothing left sees the flags of the
  // same cycle; while one is looked for, something is left.
  private val lanesEmpty = late(all(lanes.map(_.io.empty)))
  private val othersPass = rested(others)
  io.status.quiet := late(
    lanesQuiet && othersPass &&
      late(stop && all(stores.map(_.io.quiet)) && sweep.io.quiet && clearer.io.quiet)
  )
  io.status.empty := late(
    lanesQuiet && lanesEmpty && othersPass &&
      late(all(stores.map(_.io.empty)) && !sweep.io.busy && !clearer.io.busy && !searching)
  )
  // As old as `empty`: who sees that all is written sees in the same cycle that nothing is left.
  io.status.cleaned       := late(late(all(banks.map(_.io.cleaned))))
  io.status.liveFlushed   := late(late(live.io.flushed))
  io.status.sweeping      := limits.io.fill.sweeping || any(banks.map(_.io.sweeping))
  io.status.sweepBusy     := sweep.io.busy
  io.status.clearBusy     := clearer.io.busy
  io.status.flagged.valid := late(late(flags.io.found.valid))
  io.status.flagged.bits  := RegNext(RegNext(flags.io.found.bits))

  // A cycle or two late, like those of the lanes and filters already: what goes wrong is far from any effect at the memory.
  // What many report is made a report once: the first of their kind is chosen before.
  private val allFilters   = filters :+ hostFilter
  private val crooked      = FaultReport.firstLate(allFilters.map(_.io.crooked))
  private val crookedFault = Wire(Valid(new FaultReport))
  crookedFault.valid := crooked.valid
  crookedFault.bits  := crooked.bits.report(c)
  private val inHeap    = FaultReport.firstLate(lanes.map(_.io.fault))
  private val laneFault = Wire(Valid(new FaultReport))
  laneFault.valid        := inHeap.valid
  laneFault.bits         := inHeap.bits
  laneFault.bits.address := c.heapBase + inHeap.bits.address
  private val badLimit   = FaultReport.firstLate(lanes.map(_.io.limitFault) ++ allFilters.map(_.io.fault))
  private val limitFault = Wire(Valid(new FaultReport))
  limitFault.valid := badLimit.valid
  limitFault.bits  := badLimit.bits.report(c)
  io.fault         := FaultReport.firstLate(Seq(laneFault, limitFault, crookedFault, walker.io.fault, sweep.io.fault))

  // Counters.
  private val events = WireDefault(Counters.none)
  io.events := RegNext(events, Counters.none)
  private def event(counter: Int, step: UInt): Unit = events.add(counter) := step
  // What happened in many places is counted in the cycle after.
  private val laneEvents               = lanes.map(l => RegNext(l.io.events, 0.U.asTypeOf(l.io.events)))
  private val marked                   = banks.map(b => late(b.io.marked))
  private val already                  = banks.map(b => late(b.io.already))
  private val outside                  = allFilters.map(_.io.outside)
  private val above                    = allFilters.map(_.io.above)
  private val filtered                 = filters.map(_.io.filtered)
  private def sum(xs: Seq[UInt]): UInt = xs.map(_.pad(10)).reduce(_ + _)
  import Contract.Counter
  event(Counter.ObjectsMarked, PopCount(marked))
  event(Counter.ObjectsScanned, PopCount(laneEvents.map(_.scanned)))
  event(Counter.ReferencesRead, sum(laneEvents.map(_.slotsRead)))
  event(Counter.RefsNull, sum(laneEvents.map(_.slotsNull)))
  event(Counter.RefsOutside, PopCount(outside))
  event(Counter.RefsAboveLimit, PopCount(above))
  event(Counter.RefsMarked, PopCount(already ++ filtered))
  event(Counter.RefsFiltered, PopCount(filtered))
  event(Counter.LiveWords, Mux(live.io.words.valid, live.io.words.bits, 0.U))
  event(Counter.ShapeHits, PopCount(laneEvents.map(_.hit)))
  event(Counter.ShapeMisses, PopCount(laneEvents.map(_.missed)))
  event(Counter.ShapeAbsent, walker.io.absent)
  event(Counter.BitmapReads, PopCount((banks.map(_.io.fill.request.fire) :+ sweep.io.lines).map(late)))
  event(Counter.BitmapWrites, PopCount(banks.map(b => late(b.io.writeBack.request.fire))))
  event(Counter.SpillWrites, PopCount(stores.map(s => late(s.io.spilled))))
  event(Counter.SpillReads, PopCount(stores.map(s => late(s.io.refilled))))
  event(Counter.GreysDropped, PopCount(drops.map(_.valid)))
  event(Counter.GreysStale, PopCount(laneEvents.map(_.stale)))
  event(Counter.HeapLines, PopCount(laneEvents.map(_.fetched) :+ late(chaser.io.read.request.fire)))
  event(Counter.StallMemory, PopCount(laneEvents.map(_.stallMemory)))
  event(Counter.StallBitmap, PopCount(laneEvents.map(_.stallMark)))
  event(Counter.StallGrey, PopCount(laneEvents.map(_.stallGrey)))
  event(Counter.StallShape, PopCount(laneEvents.map(_.stallShape)))
}
