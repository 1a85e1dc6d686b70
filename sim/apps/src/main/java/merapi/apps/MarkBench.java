// SPDX-License-Identifier: Apache-2.0
package merapi.apps;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Builds one large object graph and asks for concurrent marking cycles over it, for measuring marking alone. Run with
 * -XX:+ExplicitGCInvokesConcurrent: System.gc() then returns when the concurrent cycle has ended.
 *
 * <p>Usage: MarkBench hashmap|graph|list CYCLES [SIZE]
 */
public final class MarkBench {
  /** A node with two edges. */
  static final class Node {
    Node left;
    Node right;
  }

  /** An element of a singly linked list. */
  static final class Link {
    Link next;
    int value;
  }

  private MarkBench() {}

  public static void main(String[] args) throws Exception {
    if (args.length < 2 || args.length > 3) {
      System.err.println("usage: MarkBench hashmap|graph|list CYCLES [SIZE]");
      System.exit(2);
    }
    int cycles = Integer.parseInt(args[1]);
    Object heap = build(args[0], args.length > 2 ? Integer.parseInt(args[2]) : 0);
    long sum = checksum(heap);
    for (int i = 0; i < cycles; i++) {
      System.gc();
      // Lets the cycle's last concurrent step end before the next one is asked for.
      Thread.sleep(50);
    }
    if (checksum(heap) != sum) {
      System.err.println("MarkBench: the graph changed during marking");
      System.exit(1);
    }
    System.out.println("checksum " + sum);
  }

  private static Object build(String shape, int size) {
    switch (shape) {
      case "hashmap":
        return map(size > 0 ? size : 5_000_000);
      case "graph":
        return graph(size > 0 ? size : 10_000_000);
      case "list":
        return list(size > 0 ? size : 10_000_000);
      default:
        throw new IllegalArgumentException("expected hashmap, graph or list, found " + shape);
    }
  }

  private static Map<Integer, String> map(int size) {
    Map<Integer, String> map = new HashMap<>();
    for (int i = 0; i < size; i++) {
      map.put(i, "value " + i);
    }
    return map;
  }

  private static Node[] graph(int size) {
    Node[] nodes = new Node[size];
    for (int i = 0; i < size; i++) {
      nodes[i] = new Node();
    }
    Random random = new Random(42);
    for (Node node : nodes) {
      node.left = nodes[random.nextInt(size)];
      node.right = nodes[random.nextInt(size)];
    }
    return nodes;
  }

  private static Link list(int size) {
    Link head = null;
    for (int i = 0; i < size; i++) {
      Link link = new Link();
      link.next = head;
      link.value = i;
      head = link;
    }
    return head;
  }

  private static long checksum(Object heap) {
    long sum = 0;
    if (heap instanceof Map<?, ?> map) {
      List<Object> values = new ArrayList<>(map.values());
      for (Object value : values) {
        sum += value.hashCode();
      }
    } else if (heap instanceof Node[] nodes) {
      for (Node node : nodes) {
        sum += node.left == node.right ? 1 : 2;
      }
    } else {
      for (Link link = (Link) heap; link != null; link = link.next) {
        sum += link.value;
      }
    }
    return sum;
  }
}
