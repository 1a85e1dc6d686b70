// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;

/**
 * Objects that live until they are old and become garbage then, at the same rate for ever: while no marking finishes,
 * the heap is full again and again.
 *
 * @flags -Xms96m -Xmx96m -XX:MaxTenuringThreshold=1
 * @traces 3
 */
public final class SteadyGarbage {
    private static final int LENGTH = 30;
    private static final int STEP = 300;

    private final long[][] held;

    private SteadyGarbage(int count) {
        held = new long[count][];
        for (int i = 0; i < count; i++) {
            held[i] = made(i);
        }
    }

    private static long[] made(int place) {
        var object = new long[LENGTH];
        object[0] = place;
        object[LENGTH - 1] = place;
        return object;
    }

    private void step(SplittableRandom random) throws Exception {
        for (int i = 0; i < STEP; i++) {
            int place = random.nextInt(held.length);
            Stress.check(held[place][0] == place && held[place][LENGTH - 1] == place, "object %d is another", place);
            held[place] = made(place);
        }
        Thread.sleep(1);
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var test = new SteadyGarbage(stress.count("count", 100_000));
        stress.collectDuring(5, test::step);
        stress.ok("held %d", test.held.length);
    }
}
