// SPDX-License-Identifier: Apache-2.0
package merapi.common

import chisel3.util._

/** Everything that distinguishes one tracer from another. Sizes are per lane unless they say otherwise.
  *
  * A lane and a mark bank share an index: bank b marks the objects of its bitmap lines and lane b scans what bank b
  * found grey, so that references are the only thing that crosses between them.
  */
case class TracerParameters(
    name: String,
    /** Scan lanes and mark banks; a power of two. */
    lanes: Int,
    /** Objects in flight per lane. */
    slots: Int,
    /** Heap lines kept per lane; a power of two. */
    heapLines: Int,
    /** Sets of the two-way shape cache; a power of two. */
    shapeSets: Int,
    /** Shapes looked up at a time (tracer-wide); a power of two. */
    shapeWalks: Int,
    /** Bitmap lines kept per bank (each covers 512 mark bits); a power of two. */
    bitmapLines: Int,
    /** Bitmap lines being fetched per bank. */
    bitmapMisses: Int,
    /** References that wait for one bitmap line. */
    bitmapWaiters: Int,
    /** Whether those of a line that has come are tried again in every cycle, or in every third. */
    pipelinedReplays: Boolean = false,
    /** Dirty bitmap lines per bank: bounds the time to a pause. A power of two. */
    dirtyBound: Int,
    /** Greys on chip per lane; a power of two. */
    greyDepth: Int,
    /** Recently tested references per lane; a power of two. */
    recentReferences: Int,
    /** Lines of the limit table (eight regions each) held by each checker; a power of two. */
    limitLines: Int,
    /** Lines of the live table (eight regions each) held by the tracer; a power of two. */
    liveLines: Int,
    /** AXI ports. */
    ports: Int,
    /** References that a lane sends in a cycle, each to a filter of its own: one or two. */
    scanPorts: Int = 1,
    /** Lines that have come and wait for their shapes; as many wait for their evaluation. A power of two, at least four;
      * up to 32 cost the same in distributed memory.
      */
    lineQueue: Int = 4,
    /** Heap lines of a lane that wait for their turn at the memory; an object whose line finds no place looks again. At least
      * two; up to 32 cost the same. (16 take 1.4 % fewer cycles for a hash map than four, and a tenth more for XML.)
      */
    askQueue: Int = 2,
    /** Whether a heap line that a lane finds in its cache stands in a register of its own before it goes on. Lines that the
      * memory brought then pass every look that finds none; else they wait until nobody looks.
      */
    foundRegister: Boolean = false,
    /** References that wait for a bank; half as many wait behind a filter. A power of two, at least four. */
    markQueue: Int = 4,
    /** Lines kept for running ahead along a chain (tracer-wide); a power of two, at least four. */
    chaseLines: Int = 16,
    /** Cycles that a chain waits for a lane to look at what it offered. */
    chasePatience: Int = 255,
    /** Limits, of the eight in a line of the table, that all checkers take in a cycle: one, two or four. */
    limitsTogether: Int = 1,
    /** Whether, of a line of the limit table that is asked for in a pause, those limits alone are handed to the checkers that
      * were asked for: with tens of thousands of regions all eight, `limitsTogether` in a cycle, take most of the pause.
      */
    loneLimits: Boolean = false,
    /** Lines of the limit table under way (tracer-wide); a power of two. */
    limitReads: Int = 8,
    /** Regions whose live words a lane adds up before they go to the table that all share; a power of two. */
    mergeRegions: Int = 4,
    /** Whether updates of the live table that concern one of its lines follow each other in every cycle, or in every third. */
    liveForwarding: Boolean = false,
    /** Lines of the live table on their way to the window (tracer-wide); a power of two. With `liveLines` they bound the time
      * to a pause.
      */
    liveLegs: Int = 8,
    /** Whether live words are written to the window as soon as no lane has an object left to size, while references of the
      * last ones are still on their way to a filter: with thousands of regions both take hundreds of cycles of a pause.
      */
    earlyFlush: Boolean = false,
    /** log2 of the bytes after which the next port's share begins. */
    interleaveLog2: Int = 8,
    /** log2 of the largest heap in bytes. */
    heapAddressBits: Int = 40,
    /** log2 of the largest window in bytes. */
    windowAddressBits: Int = 42,
    /** Bitmap lines prefetched by the sweep (tracer-wide); a power of two. */
    sweepReads: Int = 8,
    /** Entries of the submission ring read ahead (tracer-wide); a power of two. */
    submissionReads: Int = 4,
    /** GREY entries under way (tracer-wide); a power of two. */
    greyEntries: Int = 4,
    /** Rescan flags (tracer-wide); each stands for a power of two of regions. */
    rescanFlags: Int = 256,
    /** Klass words whose report is remembered (tracer-wide); a power of two. */
    seenKlasses: Int = 256,
    /** Cycles from the end of a look at the host's requests to the next one, at most, while there is work. */
    pollInterval: Int = 64
) {
  private def holds(rule: Boolean, what: => String): Unit = require(rule, s"preset $name: $what")
  private def powersOfTwo(least: Int, fields: (Int, String)*): Unit = fields.foreach { case (n, what) =>
    holds(n >= least && isPow2(n), s"expected $what to be a power of two, $least at least, found $n")
  }
  private def between(n: Int, least: Int, most: Int, what: String, why: String): Unit =
    holds(n >= least && n <= most, s"expected $what from $least to $most ($why), found $n")

  holds(TracerParameters.isName(name), s"expected ${TracerParameters.names}")
  powersOfTwo(1, lanes -> "lanes", ports -> "ports", limitsTogether -> "limitsTogether")
  powersOfTwo(
    2,
    heapLines        -> "heapLines",
    shapeSets        -> "shapeSets",
    shapeWalks       -> "shapeWalks",
    bitmapLines      -> "bitmapLines",
    dirtyBound       -> "dirtyBound",
    greyDepth        -> "greyDepth",
    recentReferences -> "recentReferences",
    limitLines       -> "limitLines",
    liveLines        -> "liveLines",
    limitReads       -> "limitReads",
    mergeRegions     -> "mergeRegions",
    liveLegs         -> "liveLegs",
    sweepReads       -> "sweepReads",
    submissionReads  -> "submissionReads",
    greyEntries      -> "greyEntries",
    rescanFlags      -> "rescanFlags",
    seenKlasses      -> "seenKlasses"
  )
  powersOfTwo(4, lineQueue -> "lineQueue", markQueue -> "markQueue", chaseLines -> "chaseLines")
  private val many = 1 << 16
  between(
    ports,
    1,
    8,
    "ports",
    "what they move in a cycle is counted in ten bits, and the simulator has pins for eight"
  )
  between(lanes, 1, 32, "lanes", "the slots that they read in a cycle are counted in ten bits")
  between(slots, TracerParameters.few, many, "slots", "as many objects as are few, at least")
  between(bitmapMisses, 2, many, "bitmapMisses", "one is known by its number")
  between(bitmapWaiters, 1, many, "bitmapWaiters", "the reference that missed waits")
  between(dirtyBound, 2, bitmapLines, "dirtyBound", "the bitmap's lines")
  between(askQueue, 2, many, "askQueue", "a lane asks for a line every other cycle")
  between(scanPorts, 1, 2, "scanPorts", "a lane sends one reference or two")
  between(limitsTogether, 1, 4, "limitsTogether", "of the eight in a line")
  between(chasePatience, 1, 1 << 20, "chasePatience", "a chain waits")
  between(pollInterval, 4, many, "pollInterval", "something is done between two looks")
  between(
    rescanFlags,
    2,
    (Contract.AreaCount * Contract.AreaCount).toInt,
    "rescanFlags",
    "they are cleared, one a cycle, while a cycle's configuration is checked: each area against each"
  )
  between(heapAddressBits, 32, Counters.stepBits + 2, "heapAddressBits", "an object's words are one step of a counter")
  between(windowAddressBits, heapAddressBits + 1, 62, "windowAddressBits", "a heap and what is beside it")
  between(
    interleaveLog2,
    6,
    windowAddressBits - log2Ceil(ports),
    "interleaveLog2",
    "a line at least, and each port has a share of the window"
  )

  /** Rows of limits held by each checker: `limitsTogether` of the eight in each of `limitLines`. */
  def limitRows: Int = 8 * limitLines / limitsTogether

  // Every 255th time that they are dropped, rows of these memories are swept, one a cycle. A resume is acknowledged when
  // bitmap lines and limits are through; a pause right behind it would wait for lanes that are not.
  private val sweptAtResume = bitmapLines max limitRows
  for ((n, what) <- Seq(heapLines -> "heapLines", shapeSets -> "shapeSets"))
    holds(
      n <= sweptAtResume,
      s"expected $what of at most $sweptAtResume (bitmapLines, or rows of limits: they are swept with them), " +
        s"found $n"
    )

  val lineBits: Int    = 512
  val lineLog2: Int    = 6
  val lineAddress: Int = windowAddressBits - lineLog2

  /** An object is known by its heap offset in units of eight bytes, whatever the alignment: one width for all. */
  val objectBits: Int = heapAddressBits - 3

  val laneLog2: Int   = log2Ceil(lanes)
  val regionBits: Int = heapAddressBits - Region.unitLog2
  val flagLog2: Int   = log2Ceil(rescanFlags)

  // What is indexed by some of a number's bits has no more entries than there are numbers.
  private def within(n: Int, bits: Int, what: String, of: String): Unit =
    holds(log2Ceil(n) <= bits, s"expected $what of at most 2^$bits ($of), found $n")
  within(limitLines, regionBits - 4, "limitLines", "half of the limit table's lines")
  within(liveLines, regionBits - 3, "liveLines", "the live table's lines")
  within(heapLines, heapAddressBits - lineLog2, "heapLines", "the heap's lines")
  within(chaseLines, heapAddressBits - lineLog2 - 2, "chaseLines", "a quarter of the heap's lines")
  within(recentReferences, objectBits, "recentReferences", "the heap's objects")
  within(bitmapLines, objectBits - 9 - laneLog2, "bitmapLines", "a bank's lines of the bitmap")
  holds(
    5 * laneLog2 <= objectBits - 9,
    s"expected a bitmap that $lanes banks share, found one of 2^${objectBits - 9} lines"
  )

  /** Greys of one spilled line: object and count flag each. */
  val greysPerLine: Int = lineBits / (objectBits + 1)

  /** Places of a grey store that are kept for objects that its lane gives back, one for each slot and each place before
    * its evaluation, and for a line that comes back while marks are pushed; four more for what is known a cycle late.
    */
  val greyReserve: Int = slots + lineQueue + 4 + greysPerLine
  holds(
    greyDepth >= 4 * (slots + greysPerLine) && greyDepth / 2 > greyReserve,
    s"expected greyDepth of ${4 * (slots + greysPerLine)} at least, and more than ${2 * greyReserve} " +
      s"(twice what $slots slots, a lineQueue of $lineQueue and a spilled line of $greysPerLine need), found $greyDepth"
  )

  /** A register more where all lanes meet and behind what they are told: with so many, what is decided there takes the
    * better part of a cycle.
    */
  val wide: Boolean = lanes > 4

  /** So many that the turn of a write or of the control unit's reads at one of them takes a cycle of its own. */
  val manyPorts: Boolean = ports > 4

  /** So many that which of them looks again is chosen a cycle before it does. */
  val manySlots: Boolean = slots > 32

  /** Lines that a lane asks for ahead of long objects. */
  val prefetches: Int = 4

  /** Widest tag of any memory client. */
  val tagBits: Int =
    Seq(
      log2Ceil(PageLine.count),
      log2Ceil(slots + prefetches),
      log2Ceil(bitmapMisses),
      log2Ceil(sweepReads),
      log2Ceil(shapeWalks),
      log2Ceil(submissionReads),
      log2Ceil(chaseLines),
      log2Ceil(limitReads),
      log2Ceil(liveLegs),
      log2Ceil(8) // write-backs and clears under way
    ).max
}

object TracerParameters {

  /** It names a folder, a class of C++ and a shared object. */
  def isName(name: String): Boolean = name.matches("[a-z0-9]+(-[a-z0-9]+)*")
  val names: String                 = "a name of the letters a to z, digits and single hyphens"

  /** So many objects in flight of a lane are few. */
  final val few = 4

  /** Of all presets. */
  def distinct(names: Seq[String]): Unit =
    names.diff(names.distinct).foreach(n => throw new IllegalArgumentException(s"expected one preset '$n', found more"))

  val simSmall: TracerParameters = TracerParameters(
    name = "sim-small",
    lanes = 1,
    slots = 8,
    heapLines = 16,
    shapeSets = 8,
    shapeWalks = 2,
    bitmapLines = 32,
    bitmapMisses = 4,
    bitmapWaiters = 2,
    dirtyBound = 16,
    greyDepth = 128,
    recentReferences = 64,
    limitLines = 16,
    liveLines = 16,
    ports = 1,
    chaseLines = 4
  )

  /** As small, with what `ddr4-1ch` alone has together: four lanes before one port, a register behind heap lines that are
    * found, room for more lines that are asked for, what waited for a bitmap line tried again in every cycle, an early
    * flush, and updates of live words that do not follow each other. Few dirty bitmap lines, so that their list is full.
    */
  val simLanes: TracerParameters = simSmall.copy(
    name = "sim-lanes",
    lanes = 4,
    bitmapWaiters = 8,
    pipelinedReplays = true,
    dirtyBound = 4,
    liveLines = 32,
    earlyFlush = true,
    lineQueue = 8,
    askQueue = 4,
    foundRegister = true
  )

  /** As small, with so many ports and slots as have ways of their own (`manyPorts`, `manySlots`), more than one group of
    * live lines (`LiveTable.group`), two scan ports, two limits together, updates of live words that follow each other, an
    * early flush, a register behind heap lines that are found, and what waited for a bitmap line tried again in every cycle.
    */
  val simPorts: TracerParameters = simSmall.copy(
    name = "sim-ports",
    lanes = 2,
    slots = 36,
    greyDepth = 256,
    liveLines = 32,
    ports = 8,
    scanPorts = 2,
    limitsTogether = 2,
    loneLimits = true,
    liveForwarding = true,
    earlyFlush = true,
    foundRegister = true,
    bitmapWaiters = 8,
    pipelinedReplays = true
  )

  val ddr4x1: TracerParameters = TracerParameters(
    name = "ddr4-1ch",
    lanes = 4,
    slots = 32,
    heapLines = 2048,
    shapeSets = 512,
    shapeWalks = 8,
    bitmapLines = 16384,
    bitmapMisses = 16,
    bitmapWaiters = 32,
    pipelinedReplays = true,
    dirtyBound = 64,
    greyDepth = 1024,
    recentReferences = 1024,
    limitLines = 512,
    liveLines = 256,
    liveLegs = 32,
    earlyFlush = true,
    ports = 1,
    lineQueue = 16,
    askQueue = 4,
    foundRegister = true,
    markQueue = 16,
    sweepReads = 64,
    submissionReads = 16,
    greyEntries = 32
  )

  val ddr4x4: TracerParameters =
    ddr4x1.copy(
      name = "ddr4-4ch",
      lanes = 8,
      pipelinedReplays = false,
      askQueue = 2,
      ports = 4,
      scanPorts = 2,
      limitsTogether = 2,
      loneLimits = true,
      limitReads = 16,
      mergeRegions = 8,
      liveForwarding = true,
      liveLegs = 64,
      markQueue = 8
    )

  val hbm2: TracerParameters = ddr4x4.copy(name = "hbm2", slots = 48, ports = 8)

  /** The smallest of everything, for proofs (hw/tracer-rtl/formal); nobody traces with it, nor with the two below. */
  val proof: TracerParameters = simSmall.copy(
    name = "proof",
    slots = 4,
    heapLines = 2,
    shapeSets = 2,
    bitmapLines = 2,
    bitmapMisses = 2,
    chasePatience = 3,
    dirtyBound = 2,
    recentReferences = 2,
    limitLines = 2,
    liveLines = 2,
    limitReads = 2,
    liveLegs = 2,
    sweepReads = 16,
    rescanFlags = 2,
    seenKlasses = 2
  )

  /** As small, with lanes and ways of `ddr4-1ch`. */
  val proof1ch: TracerParameters = proof.copy(
    name = "proof-1ch",
    lanes = ddr4x1.lanes,
    bitmapWaiters = 4,
    pipelinedReplays = ddr4x1.pipelinedReplays,
    earlyFlush = ddr4x1.earlyFlush,
    askQueue = ddr4x1.askQueue,
    foundRegister = ddr4x1.foundRegister
  )

  /** As small, with lanes and ways of `ddr4-4ch`. */
  val proof4ch: TracerParameters = proof1ch.copy(
    name = "proof-4ch",
    lanes = ddr4x4.lanes,
    pipelinedReplays = ddr4x4.pipelinedReplays,
    askQueue = ddr4x4.askQueue,
    scanPorts = ddr4x4.scanPorts,
    limitsTogether = ddr4x4.limitsTogether,
    loneLimits = ddr4x4.loneLimits,
    liveForwarding = ddr4x4.liveForwarding
  )

  val presets: Seq[TracerParameters] = Seq(simSmall, simLanes, simPorts, ddr4x1, ddr4x4, hbm2)

  private[common] val all: Seq[TracerParameters] = presets ++ Seq(proof, proof1ch, proof4ch)

  def preset(name: String): TracerParameters = all
    .find(_.name == name)
    .getOrElse(
      throw new IllegalArgumentException(
        s"expected one of the presets ${(presets.map(_.name) ++ ContextParameters.presets.map(_.name)).mkString(", ")}, " +
          s"found '$name'"
      )
    )
}
