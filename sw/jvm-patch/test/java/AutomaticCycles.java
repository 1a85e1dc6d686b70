// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * No System.gc(): occupancy starts the cycles, mixed collections follow them, and humongous allocations start more.
 * Maps, trees and queues change hands between threads meanwhile.
 *
 * @flags -Xms128m -Xmx128m -XX:InitiatingHeapOccupancyPercent=15 -XX:-G1UseAdaptiveIHOP -XX:MaxGCPauseMillis=20
 * @traces 1
 */
public final class AutomaticCycles {
    private final ConcurrentHashMap<Long, Stress.Node> map = new ConcurrentHashMap<>();
    private final LinkedBlockingQueue<Stress.Node> queue = new LinkedBlockingQueue<>();
    private final TreeMap<Long, Stress.Node> tree = new TreeMap<>();
    private final int keys;

    private AutomaticCycles(int keys) {
        this.keys = keys;
        for (long key = 0; key < keys; key++) {
            map.put(key, new Stress.Node(key, null));
            tree.put(key, new Stress.Node(~key, null));
        }
        for (int i = 0; i < 10_000; i++) {
            queue.add(new Stress.Node(i, null));
        }
    }

    private void churn(SplittableRandom random) throws InterruptedException {
        for (int i = 0; i < 256; i++) {
            long key = random.nextInt(keys);
            map.compute(key, (k, node) -> new Stress.Node(node.intact(k).id, null));
            Stress.Node passed = queue.take();
            queue.put(new Stress.Node(passed.intact().id, null));
        }
    }

    private void replant(SplittableRandom random) {
        for (int i = 0; i < 64; i++) {
            long key = random.nextInt(keys);
            tree.remove(key).intact(~key);
            tree.put(key, new Stress.Node(~key, null));
        }
        var brief = new Object[random.nextInt(100_000, 400_000)];
        brief[7] = tree.get((long) random.nextInt(keys));
        ((Stress.Node) brief[7]).intact();
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var test = new AutomaticCycles(stress.count("count", 150_000));
        stress.during(() -> Thread.sleep(stress.option("millis", 4_000)), test::churn, test::replant);
        for (long key = 0; key < test.keys; key++) {
            test.map.get(key).intact(key);
            test.tree.get(key).intact(~key);
        }
        var seen = new java.util.BitSet();
        for (Stress.Node node : test.queue) {
            seen.set((int) node.intact().id);
        }
        Stress.check(seen.cardinality() == 10_000, "the queue has %d different nodes", seen.cardinality());
        stress.ok("keys %d", test.keys);
    }
}
