// SPDX-License-Identifier: Apache-2.0

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.BitSet;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * References moved without locks: exchange, compare-and-set, array copies and clones. Each thread always holds one
 * object on its stack alone; at the end all of them are there.
 *
 * @flags -Xms160m -Xmx160m
 * @traces 4
 */
public final class AtomicMoves {
    private static final VarHandle ELEMENT = MethodHandles.arrayElementVarHandle(Stress.Node[].class);
    private static final VarHandle NEXT;

    static {
        try {
            NEXT = MethodHandles.lookup().findVarHandle(Stress.Node.class, "next", Stress.Node.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final AtomicReferenceArray<Stress.Node> atomic;
    private final Stress.Node[] plain;

    private AtomicMoves(int count) {
        atomic = new AtomicReferenceArray<>(count);
        plain = new Stress.Node[count];
        for (int i = 0; i < count; i++) {
            atomic.set(i, new Stress.Node(i, new Stress.Node(3L * count + i, null)));
            plain[i] = new Stress.Node(count + i, new Stress.Node(4L * count + i, null));
        }
    }

    /** A mutator with one object in hand. */
    private final class Hand implements Stress.Worker {
        Stress.Node held;

        Hand(long id, long tail) {
            held = new Stress.Node(id, new Stress.Node(tail, null));
        }

        @Override
        public void step(SplittableRandom random) {
            Stress.Node hand = held;
            held = null;
            for (int i = 0; i < 1024; i++) {
                int at = random.nextInt(plain.length);
                hand.intact();
                switch (random.nextInt(3)) {
                    case 0:
                        hand = atomic.getAndSet(at, hand);
                        break;
                    case 1:
                        hand = (Stress.Node) ELEMENT.getAndSet(plain, at, hand);
                        break;
                    default: {
                        Stress.Node there = atomic.get(at);
                        if (atomic.compareAndSet(at, there, hand)) {
                            hand = there;
                        }
                    }
                }
                Stress.Node tail = (Stress.Node) NEXT.getAndSet(hand, null);
                tail.intact();
                NEXT.setVolatile(hand, tail);
            }
            held = hand;
        }
    }

    /** Its own array, turned, copied and cloned: bulk barriers. */
    private static final class Rotation implements Stress.Worker {
        Stress.Node[] array;

        Rotation(int count, long firstId) {
            array = new Stress.Node[count];
            Arrays.setAll(array, i -> new Stress.Node(firstId + i, null));
        }

        @Override
        public void step(SplittableRandom random) {
            for (int i = 0; i < 8; i++) {
                int by = random.nextInt(1, array.length);
                var head = Arrays.copyOf(array, by);
                System.arraycopy(array, by, array, 0, array.length - by);
                System.arraycopy(head, 0, array, array.length - by, by);
                if (random.nextInt(4) == 0) {
                    var copy = array.clone();
                    Arrays.fill(array, null);
                    array = copy;
                }
                array[random.nextInt(array.length)].intact();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        int count = stress.count("count", 100_000);
        var test = new AtomicMoves(count);
        Hand[] hands = {test.new Hand(2L * count, 5L * count), test.new Hand(2L * count + 1, 5L * count + 1)};
        var rotation = new Rotation(20_000, 6L * count);
        stress.collectDuring(5, hands[0], hands[1], rotation);

        var seen = new BitSet();
        for (int i = 0; i < count; i++) {
            add(seen, test.atomic.get(i));
            add(seen, test.plain[i]);
        }
        add(seen, hands[0].held);
        add(seen, hands[1].held);
        for (Stress.Node node : rotation.array) {
            add(seen, node);
        }
        int total = 2 * (2 * count + 2) + rotation.array.length;
        Stress.check(seen.cardinality() == total, "%d nodes of %d are left", seen.cardinality(), total);
        stress.ok("nodes %d", total);
    }

    private static void add(BitSet seen, Stress.Node head) {
        for (Stress.Node node = head; node != null; node = node.next) {
            node.intact();
            Stress.check(!seen.get((int) node.id), "node %d is there twice", node.id);
            seen.set((int) node.id);
        }
    }
}
