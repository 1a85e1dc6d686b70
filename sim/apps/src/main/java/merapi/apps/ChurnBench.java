// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

import java.util.Random;

/**
 * A fixed amount of allocating work over a live set that changes all the time: a table of small trees of which random
 * ones are replaced, and many more that are dropped at once, as most objects of programs are. Makes young collections
 * during and outside marking, SATB entries and remembered-set work.
 *
 * <p>Usage: ChurnBench SLOTS REPLACEMENTS
 */
public final class ChurnBench {
  /** A binary tree's node. */
  static final class Tree {
    final Tree left;
    final Tree right;
    final long[] payload;

    Tree(int depth, long seed) {
      left = depth > 0 ? new Tree(depth - 1, seed * 31 + 1) : null;
      right = depth > 0 ? new Tree(depth - 1, seed * 31 + 2) : null;
      payload = new long[] {seed, depth};
    }

    long sum() {
      return payload[0] + (left == null ? 0 : left.sum()) + (right == null ? 0 : right.sum());
    }
  }

  private static final int DEPTH = 4;
  private static final int DROPPED_AT_ONCE = 8;

  private ChurnBench() {}

  public static void main(String[] args) {
    if (args.length != 2) {
      System.err.println("usage: ChurnBench SLOTS REPLACEMENTS");
      System.exit(2);
    }
    Tree[] slots = new Tree[Integer.parseInt(args[0])];
    int replacements = Integer.parseInt(args[1]);
    Random random = new Random(7);
    for (int i = 0; i < slots.length; i++) {
      slots[i] = new Tree(DEPTH, i);
    }
    long begin = System.nanoTime();
    long sum = 0;
    for (int i = 0; i < replacements; i++) {
      int slot = random.nextInt(slots.length);
      sum += slots[slot].sum();
      for (int j = 0; j < DROPPED_AT_ONCE; j++) {
        sum += new Tree(DEPTH, j).sum();
      }
      slots[slot] = new Tree(DEPTH, i);
    }
    System.out.println("checksum " + sum);
    System.out.println("work_ms " + (System.nanoTime() - begin) / 1_000_000);
  }
}
