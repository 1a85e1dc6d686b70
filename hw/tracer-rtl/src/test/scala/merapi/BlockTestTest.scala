// SPDX-License-Identifier: Apache-2.0
package merapi

import org.scalatest.{Failed, Succeeded}
import org.scalatest.exceptions.TestFailedException
import org.scalatest.funsuite.AnyFunSuite

/** A failure of a block's test ends with the command that runs it again. */
class BlockTestTest extends AnyFunSuite {
  private def said(e: Throwable, seed: Option[Int]): String = BlockTest.withCommand(Failed(e), "Unit", seed) match {
    case Failed(told) => told.getMessage
    case other        => other.toString
  }

  test("a failure ends with the command that runs it again") {
    val bad = intercept[TestFailedException](fail("bad"))
    assert(said(bad, None) == "bad; again: make test-rtl-units UNIT=Unit")
    assert(said(bad, Some(3)) == "bad; again: make test-rtl-units UNIT=Unit MERAPI_SEED=3")
    val worse = new IllegalStateException("worse")
    assert(said(worse, Some(3)) == "worse; again: make test-rtl-units UNIT=Unit MERAPI_SEED=3")
    assert(BlockTest.withCommand(Succeeded, "Unit", None) == Succeeded)
  }
}
