// SPDX-License-Identifier: Apache-2.0
package merapi

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path}

/** `Elaborate PRESET DIRECTORY`: the tracer of a preset as SystemVerilog, one file per module, and preset.json for the
  * simulation.
  */
object Elaborate {
  def main(arguments: Array[String]): Unit = {
    if (arguments.length != 2) {
      System.err.println(s"expected PRESET DIRECTORY, found ${arguments.length} arguments")
      sys.exit(2)
    }
    val p         = TracerParameters.preset(arguments(0))
    val directory = Path.of(arguments(1))
    Files.createDirectories(directory)
    circt.stage.ChiselStage.emitSystemVerilogFile(
      new Tracer(p),
      Array("--target-dir", directory.toString, "--split-verilog"),
      Array(
        "--lowering-options=disallowLocalVariables,disallowPackedArrays,locationInfoStyle=none",
        "--disable-all-randomization",
        "--strip-debug-info",
        "-O=release"
      )
    )
    val json =
      s"""{"name": "${p.name}", "ports": ${p.ports}, "lanes": ${p.lanes}, "interleaveLog2": ${p.interleaveLog2}}\n"""
    Files.write(directory.resolve("preset.json"), json.getBytes(StandardCharsets.UTF_8))
  }
}
