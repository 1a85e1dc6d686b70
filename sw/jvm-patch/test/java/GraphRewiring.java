// SPDX-License-Identifier: Apache-2.0

import java.util.BitSet;
import java.util.SplittableRandom;

/**
 * A graph whose chains change hands all the time. Two mutators cut the only reference to a chain, hold it on their
 * stacks, and hang it elsewhere: from what marking has not scanned to what it has. The set of nodes never changes.
 *
 * @flags -Xms160m -Xmx160m
 * @traces 4
 */
public final class GraphRewiring {
    private static final int WIDTH = 64;
    private static final int CHAIN = 5;

    /** A lock, and the only way to WIDTH chains. */
    private static final class Bucket {
        final int rank;
        final Stress.Node[] heads = new Stress.Node[WIDTH];

        Bucket(int rank) {
            this.rank = rank;
        }
    }

    private final Bucket[] buckets;

    private GraphRewiring(int count) {
        buckets = new Bucket[count];
        long id = 0;
        for (int i = 0; i < count; i++) {
            buckets[i] = new Bucket(i);
            for (int j = 0; j < WIDTH; j++) {
                for (int k = 0; k < CHAIN; k++) {
                    buckets[i].heads[j] = new Stress.Node(id++, buckets[i].heads[j]);
                }
            }
        }
    }

    private void step(SplittableRandom random) {
        for (int i = 0; i < 512; i++) {
            Bucket a = buckets[random.nextInt(buckets.length)];
            Bucket b = buckets[random.nextInt(buckets.length)];
            Bucket first = a.rank < b.rank ? a : b;
            Bucket second = first == a ? b : a;
            synchronized (first) {
                synchronized (second) {
                    exchange(a.heads, random.nextInt(WIDTH), b.heads, random.nextInt(WIDTH), random.nextInt(3));
                }
            }
        }
    }

    private static void exchange(Stress.Node[] from, int i, Stress.Node[] to, int j, int choice) {
        Stress.Node a = from[i];
        Stress.Node b = to[j];
        if (a == b) {
            return;
        }
        if (choice == 0) {
            from[i] = null;
            to[j] = null;
            to[j] = a.intact();
            from[i] = b.intact();
        } else if (choice == 1) {
            Stress.Node tail = a.next;
            a.next = null;
            Stress.Node other = b.next;
            b.next = tail;
            a.next = other;
        } else {
            // The whole chain goes behind the other's head; a fresh node keeps the place and takes over the old id.
            Stress.Node copy = new Stress.Node(a.intact().id, a.next);
            a.next = null;
            from[i] = b;
            to[j] = copy;
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(0);
        var test = new GraphRewiring(stress.count("count", 2_500));
        stress.collectDuring(5, test::step, test::step);
        int total = test.buckets.length * WIDTH * CHAIN;
        var seen = new BitSet(total);
        for (Bucket bucket : test.buckets) {
            for (Stress.Node head : bucket.heads) {
                for (Stress.Node node = head; node != null; node = node.next) {
                    node.intact();
                    Stress.check(!seen.get((int) node.id), "node %d is in the graph twice", node.id);
                    seen.set((int) node.id);
                }
            }
        }
        Stress.check(seen.cardinality() == total, "%d nodes of %d are left", seen.cardinality(), total);
        stress.ok("nodes %d", total);
    }
}
