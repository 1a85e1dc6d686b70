// SPDX-License-Identifier: Apache-2.0
package merapi.common

import org.scalatest.funsuite.AnyFunSuite

import merapi.Tracer
import merapi.mark.LiveTable

/** Presets that cannot be: each is refused with its name and what was expected, before anything is elaborated. The least
  * and some of the most that is allowed can be elaborated.
  */
class ParametersTest extends AnyFunSuite {
  private val small = TracerParameters.simSmall.copy(name = "some")

  private def refused(what: String)(make: => Any): Unit = {
    val said = intercept[IllegalArgumentException](make).getMessage
    assert(said.contains("some") && said.contains(what) && said.contains("expected"), said)
  }
  private def elaborates(p: TracerParameters): Unit = circt.stage.ChiselStage.emitCHIRRTL(new Tracer(p))

  test("what no tracer can be made of is refused") {
    for (n <- Seq(0, 3)) {
      refused("lanes")(small.copy(lanes = n))
      refused("ports")(small.copy(ports = n))
      refused("limitsTogether")(small.copy(limitsTogether = n))
    }
    refused("limitsTogether")(small.copy(limitsTogether = 8))
    for (n <- Seq(0, 1, 3)) {
      refused("heapLines")(small.copy(heapLines = n))
      refused("shapeSets")(small.copy(shapeSets = n))
      refused("shapeWalks")(small.copy(shapeWalks = n))
      refused("bitmapLines")(small.copy(bitmapLines = n))
      refused("dirtyBound")(small.copy(dirtyBound = n))
      refused("recentReferences")(small.copy(recentReferences = n))
      refused("limitLines")(small.copy(limitLines = n))
      refused("liveLines")(small.copy(liveLines = n))
      refused("limitReads")(small.copy(limitReads = n))
      refused("mergeRegions")(small.copy(mergeRegions = n))
      refused("liveLegs")(small.copy(liveLegs = n))
      refused("sweepReads")(small.copy(sweepReads = n))
      refused("submissionReads")(small.copy(submissionReads = n))
      refused("greyEntries")(small.copy(greyEntries = n))
      refused("rescanFlags")(small.copy(rescanFlags = n))
      refused("seenKlasses")(small.copy(seenKlasses = n))
      refused("lineQueue")(small.copy(lineQueue = n))
      refused("markQueue")(small.copy(markQueue = n))
      refused("chaseLines")(small.copy(chaseLines = n))
    }
    refused("chaseLines")(small.copy(chaseLines = 2))
    refused("slots")(small.copy(slots = 3))
    refused("bitmapMisses")(small.copy(bitmapMisses = 1))
    refused("bitmapWaiters")(small.copy(bitmapWaiters = 0))
    refused("dirtyBound")(small.copy(dirtyBound = 2 * small.bitmapLines))
    refused("askQueue")(small.copy(askQueue = 1))
    refused("scanPorts")(small.copy(scanPorts = 3))
    refused("chasePatience")(small.copy(chasePatience = 0))
    refused("pollInterval")(small.copy(pollInterval = 3))
    for (name <- Seq("", "Some", "some one", "some--one", "some/one", "-some"))
      assertThrows[IllegalArgumentException](small.copy(name = name))
  }

  test("what would be counted, cleared or addressed wrongly is refused") {
    refused("ports")(small.copy(ports = 16))
    refused("lanes")(small.copy(lanes = 64))
    refused("rescanFlags")(small.copy(rescanFlags = 512))
    refused("heapAddressBits")(small.copy(heapAddressBits = 31))
    refused("heapAddressBits")(small.copy(heapAddressBits = 44, windowAddressBits = 46))
    refused("windowAddressBits")(small.copy(windowAddressBits = small.heapAddressBits))
    refused("windowAddressBits")(small.copy(windowAddressBits = 63))
    refused("interleaveLog2")(small.copy(interleaveLog2 = 5))
    refused("interleaveLog2")(small.copy(ports = 8, interleaveLog2 = 40))
    refused("limitLines")(small.copy(heapAddressBits = 32, limitLines = 1 << 13))
    refused("liveLines")(small.copy(heapAddressBits = 32, liveLines = 1 << 14))
    refused("bitmapLines")(small.copy(heapAddressBits = 32, bitmapLines = 1 << 21))
    refused("bitmap")(small.copy(heapAddressBits = 32, lanes = 32))
    // What a pause would wait for.
    refused("heapLines")(small.copy(heapLines = 256))
    refused("shapeSets")(small.copy(shapeSets = 256))
    // A store that keeps half of its places for what is given back.
    refused("greyDepth")(small.copy(greyDepth = 64))
    refused("greyDepth")(small.copy(slots = 16, lineQueue = 32))
    refused("greyDepth")(small.copy(lineQueue = 64))
  }

  private val waysOfCore = Seq[TracerParameters => Boolean](
    _.scanPorts > 1,
    _.limitsTogether > 1,
    _.liveForwarding,
    _.loneLimits,
    _.earlyFlush,
    _.foundRegister,
    _.pipelinedReplays
  )
  private val ways = waysOfCore ++ Seq[TracerParameters => Boolean](
    _.ports > 1,
    _.manyPorts,
    _.manySlots,
    _.liveLines > LiveTable.group
  )
  private val waysOfProducts = Seq[TracerParameters => Boolean](_.wide, _.askQueue > 2)
  test("what parameters decide is tested either way") {
    val tested = Seq("sim-small", "sim-ports").map(TracerParameters.preset)
    for (way <- ways) assert(tested.map(way) == Seq(false, true))
  }
  test("what they decide of ddr4-1ch is tested together, where everything overflows") {
    val Seq(tested, product) = Seq("sim-lanes", "ddr4-1ch").map(TracerParameters.preset)
    assert(tested.lanes == product.lanes)
    for (way <- ways ++ waysOfProducts) assert(way(tested) == way(product))
    assert(tested.greyDepth < product.greyDepth && tested.dirtyBound < product.dirtyBound)
  }
  test("what they decide of the core of ddr4-1ch and ddr4-4ch is in the cores that are proved") {
    for ((proved, of) <- Seq("proof-1ch" -> "ddr4-1ch", "proof-4ch" -> "ddr4-4ch")) {
      val Seq(small, product) = Seq(proved, of).map(TracerParameters.preset)
      assert(small.lanes == product.lanes)
      for (way <- waysOfCore ++ waysOfProducts) assert(way(small) == way(product))
    }
  }

  test("several contexts") {
    def several(p: TracerParameters = small, n: Int = 2, bits: Int = 44) = ContextParameters("some", p, n, bits)
    several()
    refused("memory")(several(bits = 21))
    refused("memory")(several(bits = 64))
    assert(intercept[IllegalArgumentException](several(n = 1)).getMessage.contains("some"))
    assertThrows[IllegalArgumentException](ContextParameters("Some", small, 2, 44))
    assertThrows[IllegalArgumentException](TracerParameters.distinct(Seq("one", "two", "one")))
    assert(intercept[IllegalArgumentException](TracerParameters.preset("none")).getMessage.contains("sim-pair"))
  }

  test("the least of everything is elaborated") {
    elaborates(
      small.copy(
        slots = 4,
        heapLines = 2,
        shapeSets = 2,
        shapeWalks = 2,
        bitmapLines = 2,
        bitmapMisses = 2,
        bitmapWaiters = 1,
        dirtyBound = 2,
        recentReferences = 2,
        limitLines = 2,
        liveLines = 2,
        sweepReads = 2,
        submissionReads = 2,
        greyEntries = 2,
        rescanFlags = 2,
        seenKlasses = 2,
        chasePatience = 1,
        pollInterval = 4,
        heapAddressBits = 32,
        windowAddressBits = 33
      )
    )
  }

  test("odd numbers, and addresses as wide as they may be, are elaborated") {
    elaborates(
      small.copy(
        lanes = 2,
        slots = 37,
        greyDepth = 256,
        bitmapMisses = 3,
        bitmapWaiters = 5,
        askQueue = 3,
        scanPorts = 2,
        ports = 8,
        interleaveLog2 = 59,
        heapAddressBits = 43,
        windowAddressBits = 62
      )
    )
  }
}
