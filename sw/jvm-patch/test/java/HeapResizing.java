// SPDX-License-Identifier: Apache-2.0

import java.util.ArrayDeque;
import java.util.SplittableRandom;

/**
 * The heap grows by tens of megabytes and shrinks again, several times, with marking cycles at every size; mutators
 * make it grow in mid-cycle.
 *
 * @flags -Xms8m -Xmx256m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=15 -XX:G1HeapRegionSize=1m
 * @traces 5
 */
public final class HeapResizing {
    private static final int BLOCK = 2_000;

    private static Stress.Node block(long id) {
        Stress.Node head = null;
        for (int i = 0; i < BLOCK; i++) {
            head = new Stress.Node(id * BLOCK + i, head);
        }
        return head;
    }

    private static void check(Stress.Node head, long id) {
        int left = BLOCK;
        for (Stress.Node node = head; node != null; node = node.next) {
            node.intact(id * BLOCK + --left);
        }
        Stress.check(left == 0, "block %d ends %d nodes early", id, left);
    }

    private final ArrayDeque<Stress.Node> blocks = new ArrayDeque<>();
    private long first;
    private long next;
    private volatile int target;

    private void step(SplittableRandom random) {
        if (blocks.size() < target) {
            blocks.addLast(block(next++));
        } else if (!blocks.isEmpty()) {
            check(blocks.pollFirst(), first++);
            if (random.nextInt(4) == 0) {
                blocks.addLast(block(next++));
            }
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var test = new HeapResizing();
        int most = (int) (Runtime.getRuntime().maxMemory() * 55 / 100 / (BLOCK * 76L));
        int rounds = stress.count("cycles", 2);
        long[] committed = {Long.MAX_VALUE, 0};
        stress.during(() -> {
            for (int round = 0; round < rounds; round++) {
                for (int target : new int[] {most / 8, most, most / 2, 4}) {
                    test.target = target;
                    Thread.sleep(100);
                    System.gc();
                    long now = Runtime.getRuntime().totalMemory();
                    committed[0] = Math.min(committed[0], now);
                    committed[1] = Math.max(committed[1], now);
                }
            }
        }, test::step);
        long id = test.first;
        for (Stress.Node block : test.blocks) {
            check(block, id++);
        }
        stress.ok("blocks %d committed MiB %d to %d", test.next, committed[0] >> 20, committed[1] >> 20);
    }
}
