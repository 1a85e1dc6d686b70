// SPDX-License-Identifier: Apache-2.0

import java.lang.ref.WeakReference;
import java.util.SplittableRandom;

/**
 * A graph that nothing but a weak reference leads to, until a thread takes it from there while marking runs: the
 * device does not see it, and remark finds more in it than G1's mark stack holds. Marking must then go on and be
 * complete.
 *
 * @flags -Xms256m -Xmx256m -XX:ParallelGCThreads=1 -XX:MarkStackSize=1k -XX:MarkStackSizeMax=1k
 * @traces 4
 * @log Restart for Mark Stack Overflow
 */
public final class MarkStackOverflow {
    // The next array lies in the last slot and is followed first: a marking thread's queue has room for 131,072 of the
    // nodes that wait meanwhile.
    private static final int ARRAYS = 150;
    private static final int LENGTH = 2000;

    private WeakReference<Object[]> weak;
    private volatile Object[] held;
    private volatile boolean over;

    private static Object[] graph() {
        Object[] first = null;
        for (int i = 0; i < ARRAYS; i++) {
            var array = new Object[LENGTH];
            for (int j = 0; j < LENGTH - 1; j++) {
                array[j] = new Stress.Node(i * LENGTH + j, null);
            }
            array[LENGTH - 1] = first;
            first = array;
        }
        return first;
    }

    private static void check(Object[] array) {
        for (int i = ARRAYS - 1; i >= 0; i--) {
            for (int j = 0; j < LENGTH - 1; j++) {
                ((Stress.Node) array[j]).intact(i * LENGTH + j);
            }
            array = (Object[]) array[LENGTH - 1];
        }
        Stress.check(array == null, "expected %d arrays, found more", ARRAYS);
    }

    /** The thread's SATB buffer has room for what it reads here: only remark looks into it. */
    private void take(long millis) {
        try {
            Thread.sleep(millis);
            Object[] mine = weak.get();
            while (!over) {
                Thread.sleep(1);
            }
            held = mine;
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        }
    }

    private boolean cycle(SplittableRandom random) throws Exception {
        if (held == null) {
            held = graph();
            weak = new WeakReference<>(held);
            // Both old: a collection would clear the reference to a young graph, and a young reference counts as strong.
            Stress.fullCollection();
        }
        held = null;
        over = false;
        long millis = random.nextInt(10, 50);
        var thread = new Thread(() -> take(millis), "taker");
        thread.start();
        System.gc();
        over = true;
        thread.join();
        if (held != null) {
            check(held);
        }
        return held != null;
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(500_000);
        var program = new MarkStackOverflow();
        SplittableRandom random = stress.random();
        int cycles = stress.count("cycles", 8);
        int taken = 0;
        for (int i = 0; i < cycles; i++) {
            taken += program.cycle(random) ? 1 : 0;
        }
        stress.ok("%d cycles, the graph taken in %d", cycles, taken);
    }
}
