// SPDX-License-Identifier: Apache-2.0
package merapi.common

/** Several contexts on one memory: tracers of one kind and what they share. */
case class ContextParameters(
    name: String,
    tracer: TracerParameters,
    /** Tracers, each with a window of its own; two at least. */
    contexts: Int,
    /** log2 of the memory's bytes, all ports together. */
    memoryAddressBits: Int
) {
  require(TracerParameters.isName(name), s"preset $name: expected ${TracerParameters.names}")
  require(contexts >= 2, s"preset $name has $contexts contexts; one alone is a Tracer and needs nothing around it")

  /** What a window's base is a multiple of: what devdax maps, and a whole turn of the ports at least, so that a line is
    * at the same port whether it is counted from the window's first byte or from the memory's.
    */
  val granule: Long = Contract.MappedAlignment.toLong max (tracer.ports.toLong << tracer.interleaveLog2)
  require((granule & (granule - 1)) == 0, s"preset $name: expected a granule that is a power of two, found $granule")
  val granuleLog2: Int = java.lang.Long.numberOfTrailingZeros(granule)
  require(
    memoryAddressBits > granuleLog2 && memoryAddressBits < 64,
    s"preset $name: expected a memory of more than $granule bytes and less than 2^64, found 2^$memoryAddressBits"
  )
  val baseBits: Int = memoryAddressBits - granuleLog2
}

object ContextParameters {

  /** For tests: the largest windows, two of them and room beside them. */
  val simPair: ContextParameters =
    ContextParameters("sim-pair", TracerParameters.simSmall, contexts = 2, memoryAddressBits = 44)

  val presets: Seq[ContextParameters] = Seq(simPair)
  TracerParameters.distinct(presets.map(_.name) ++ TracerParameters.all.map(_.name))
}
