// SPDX-License-Identifier: Apache-2.0
import mill._
import mill.scalalib._

/** The tracer in Chisel: sources in hw/tracer-rtl/src, made with hw/tracer-rtl/rtl.mk. */
object tracer extends ScalaModule { outer =>
  override def millSourcePath = build.millSourcePath / "hw" / "tracer-rtl"
  def scalaVersion            = "2.13.16"
  def chiselVersion           = "7.14.0"
  def sources                 = T.sources(millSourcePath / "src" / "main" / "scala")
  def scalacOptions =
    Seq(
      "-deprecation",
      "-feature",
      "-unchecked",
      "-Xfatal-warnings",
      "-language:reflectiveCalls",
      "-Ymacro-annotations"
    )
  def ivyDeps = Agg(
    ivy"org.chipsalliance::chisel:$chiselVersion",
    // Brings firtool itself, so that nothing has to be installed.
    ivy"org.chipsalliance:llvm-firtool:1.155.0"
  )
  def scalacPluginIvyDeps = Agg(ivy"org.chipsalliance:::chisel-plugin:$chiselVersion")
  object test extends ScalaTests with TestModule.ScalaTest {
    def sources = T.sources(outer.millSourcePath / "src" / "test" / "scala")
    def ivyDeps = outer.ivyDeps() ++ Agg(ivy"org.scalatest::scalatest:3.2.20")
  }
}
