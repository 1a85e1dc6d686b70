// SPDX-License-Identifier: Apache-2.0
package merapi

import org.scalatest.{Args, Reporter}
import org.scalatest.events.{Event, TestFailed}
import org.scalatest.funsuite.AnyFunSuite

import scala.collection.mutable

/** A failure of a block's test ends with the command that runs it again. */
class BlockTestTest extends AnyFunSuite {
  test("a failure ends with the command that runs it again") {
    class Failing extends BlockTest {
      test("no seeds") { fail("bad") }
      test("seeds") { seeds(4).foreach(seed => fail(s"bad $seed")) }
      test("another exception") { throw new IllegalStateException("worse") }
    }
    val said = mutable.ArrayBuffer.empty[String]
    new Failing().run(
      None,
      Args(new Reporter {
        def apply(event: Event): Unit = event match {
          case failed: TestFailed => said += failed.message
          case _                  =>
        }
      })
    )
    val seed  = sys.env.getOrElse("MERAPI_SEED", "1")
    val again = s"; again: make test-rtl-units UNIT=${classOf[Failing].getSimpleName}"
    assert(said == Seq(s"bad$again", s"bad $seed$again MERAPI_SEED=$seed", s"worse$again"))
  }
}
