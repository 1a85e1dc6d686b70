// SPDX-License-Identifier: Apache-2.0
package merapi.control

import chisel3._
import chisel3.util._

import merapi.common.TracerParameters

/** What the control unit sees of the tracing core. `quiet`, `empty`, `cleaned`, `liveFlushed` and `flagged` are facts of
  * the same cycle, two cycles ago; the others of the present one.
  */
class CoreStatus(p: TracerParameters) extends Bundle {
  val quiet       = Bool()     // held: nothing moves
  val moving      = UInt(10.W) // lanes, filters, host's filter, banks, walker, live, stores, sweep, clearer, chaser
  val empty       = Bool()     // no grey, no object, no reference, no sweep
  val cleaned     = Bool()     // no dirty bitmap line
  val liveFlushed = Bool()
  val sweeping    = Bool()     // on-chip memories are being cleared
  val sweepBusy   = Bool()
  val clearBusy   = Bool()
  val flagged = Valid(UInt(p.flagLog2.W)) // a chunk to be swept again
}

/** What it orders. Levels, except those called pulses. */
class CoreOrders(p: TracerParameters) extends Bundle {
  val hold       = Bool()                    // start nothing new
  val pausing    = Bool()                    // what hold is for: objects that have not begun go back to the store
  val suppress   = Bool()                    // no effect on memory any more
  val block      = Bool()                    // no request to memory any more
  val clear      = Bool()                    // pulse: back to the state after reset; with block, memory quiet
  val drain      = Bool()                    // with hold: what is dirty will have to be written back
  val flush      = Bool()                    // write it back (with hold, quiet)
  val invalidate = Bool()                    // pulse: drop clean copies
  val forget     = Bool()                    // pulse: what was recently tested is tested again
  val dropShapes = Bool()                    // pulse
  val redefined  = Bool()                    // pulse, before a hold ends: shapes may have been replaced
  val unflag     = Valid(UInt(p.flagLog2.W)) // pulse
  val settled    = Bool()                    // pulse: idle, nothing that was ever dropped is missing
}
