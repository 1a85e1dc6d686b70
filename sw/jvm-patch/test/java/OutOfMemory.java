// SPDX-License-Identifier: Apache-2.0

import java.util.ArrayList;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory runs out again and again, in small objects and in humongous ones, in several threads and while marking runs.
 * The program goes on each time and its own data stay whole.
 *
 * Escape analysis is off because deoptimisation allocates what it left out, and may then fail in any frame.
 *
 * @flags -Xms48m -Xmx48m -XX:-DoEscapeAnalysis
 * @traces 1
 */
public final class OutOfMemory {
    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var kept = new Stress.Node[stress.count("count", 60_000)];
        for (int i = 0; i < kept.length; i++) {
            kept[i] = new Stress.Node(i, new Stress.Node(~i, null));
        }
        var survived = new AtomicInteger();
        Stress.Worker hungry = random -> exhaust(random, survived);
        Stress.Worker reader = random -> {
            try {
                for (int i = 0; i < 1000; i++) {
                    int at = random.nextInt(kept.length);
                    kept[at].intact(at).next.intact(~at);
                }
            } catch (OutOfMemoryError expected) {
                // The arguments of a check are objects too.
                survived.incrementAndGet();
            }
            Thread.sleep(1);
        };
        stress.during(() -> {
            int wanted = stress.count("cycles", 3);
            for (int i = 0; i < 400 && survived.get() < wanted && !stress.failed(); i++) {
                try {
                    System.gc();
                    Thread.sleep(50);
                } catch (OutOfMemoryError expected) {
                    survived.incrementAndGet();
                }
            }
        }, hungry, reader);
        System.gc();
        for (int i = 0; i < kept.length; i++) {
            kept[i].intact(i).next.intact(~i);
        }
        Stress.check(survived.get() > 0, "memory never ran out");
        stress.ok("kept %d survived %d", kept.length, survived.get());
    }

    private static void exhaust(SplittableRandom random, AtomicInteger survived) throws InterruptedException {
        boolean large = random.nextBoolean();
        Stress.Node chain = null;
        var arrays = new ArrayList<Object>();
        try {
            for (long i = 0;; i++) {
                if (large) {
                    arrays.add(random.nextBoolean() ? new byte[3 << 20] : new Object[400_000]);
                } else {
                    chain = new Stress.Node(i, chain);
                }
            }
        } catch (OutOfMemoryError expected) {
            arrays.clear();
            // The first ones go unread: a check's arguments need memory too.
            for (int i = 0; chain != null; chain = chain.next) {
                if (++i > 100_000) {
                    chain.intact();
                }
            }
            survived.incrementAndGet();
        }
        Thread.sleep(20);
    }
}
