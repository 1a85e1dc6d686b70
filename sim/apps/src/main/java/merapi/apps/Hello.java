// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

/** Prints one line: what a start of the JVM costs. */
public final class Hello {
  private Hello() {}

  public static void main(String[] args) {
    System.out.println("hello");
  }
}
