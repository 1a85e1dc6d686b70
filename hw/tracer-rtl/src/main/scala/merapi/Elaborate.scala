// SPDX-License-Identifier: Apache-2.0
package merapi

import merapi.common.{ContextParameters, TracerParameters}

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path}

/** `Elaborate PRESET DIRECTORY`: the tracer of a preset, or several contexts, as SystemVerilog, one file per module, and
  * preset.json for the simulation.
  */
object Elaborate {
  private def stop(refused: Throwable): Nothing = {
    System.err.println(refused.getMessage.stripPrefix("requirement failed: "))
    sys.exit(1)
  }

  def main(arguments: Array[String]): Unit = {
    if (arguments.length != 2) {
      System.err.println(s"expected PRESET DIRECTORY, found ${arguments.length} arguments")
      sys.exit(2)
    }
    val (several, p) =
      try {
        val found = ContextParameters.presets.find(_.name == arguments(0))
        (found, found.map(_.tracer).getOrElse(TracerParameters.preset(arguments(0))))
      } catch {
        // A preset that keeps no rule: what it says is enough. (All presets are made when one is asked for.)
        case refused: ExceptionInInitializerError if refused.getCause.isInstanceOf[IllegalArgumentException] =>
          stop(refused.getCause)
        case refused: IllegalArgumentException => stop(refused)
      }
    val directory = Path.of(arguments(1))
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
      s"""{"name": "${arguments(
          0
        )}", "ports": ${p.ports}, "lanes": ${p.lanes}, "interleaveLog2": ${p.interleaveLog2}, """ +
        s"""${shared.getOrElse("\"contexts\": 1")}}\n"""
    Files.write(directory.resolve("preset.json"), json.getBytes(StandardCharsets.UTF_8))
  }
}
