// SPDX-License-Identifier: Apache-2.0
package merapi

import merapi.common.{ContextParameters, TracerParameters}

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path}

/** `Elaborate PRESET DIRECTORY...`: of each preset the tracer, or several contexts, as SystemVerilog, one file per module,
  * and preset.json for the simulation.
  */
object Elaborate {
  private def stop(refused: Throwable): Nothing = {
    System.err.println(refused.getMessage.stripPrefix("requirement failed: "))
    sys.exit(1)
  }

  /** The preset of this name: how many contexts, if several, and the parameters of each tracer. */
  private def preset(name: String): (Option[ContextParameters], TracerParameters) = {
    val several = ContextParameters.presets.find(_.name == name)
    (several, several.map(_.tracer).getOrElse(TracerParameters.preset(name)))
  }

  private def elaborate(
      name: String,
      several: Option[ContextParameters],
      p: TracerParameters,
      directory: Path
  ): Unit = {
    Files.createDirectories(directory)
    // Of a tracer's own ids, which the context's number stands above.
    var ids = (0, 0)
    def contexts(c: ContextParameters): TracerContexts = {
      val made = new TracerContexts(c)
      ids = (made.readIdBits, made.writeIdBits)
      made
    }
    circt.stage.ChiselStage.emitSystemVerilogFile(
      several.map(contexts).getOrElse(new Tracer(p)),
      Array("--target-dir", directory.toString, "--split-verilog"),
      Array(
        "--lowering-options=disallowLocalVariables,disallowPackedArrays,locationInfoStyle=none",
        "--disable-all-randomization",
        "--strip-debug-info",
        "-O=release"
      )
    )
    val shared = several.map(c => s""""contexts": ${c.contexts}, "readIdBits": ${ids._1}, "writeIdBits": ${ids._2}""")
    val json =
      s"""{"name": "$name", "ports": ${p.ports}, "lanes": ${p.lanes}, "interleaveLog2": ${p.interleaveLog2}, """ +
        s"""${shared.getOrElse("\"contexts\": 1")}}\n"""
    Files.write(directory.resolve("preset.json"), json.getBytes(StandardCharsets.UTF_8))
  }

  def main(arguments: Array[String]): Unit = {
    if (arguments.isEmpty || arguments.length % 2 != 0) {
      System.err.println(s"expected PRESET DIRECTORY..., found ${arguments.length} arguments")
      sys.exit(2)
    }
    val wanted = arguments.toSeq.grouped(2).map(two => (two.head, Path.of(two.last))).toSeq
    val presets =
      try wanted.map { case (name, _) => preset(name) }
      catch {
        // A preset that keeps no rule: what it says is enough. (All presets are made when one is asked for.)
        case refused: ExceptionInInitializerError if refused.getCause.isInstanceOf[IllegalArgumentException] =>
          stop(refused.getCause)
        case refused: IllegalArgumentException => stop(refused)
      }
    for (((name, directory), (several, p)) <- wanted.zip(presets)) elaborate(name, several, p, directory)
  }
}
