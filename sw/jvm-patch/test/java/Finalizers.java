// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Finalizers that read their whole subgraph and sometimes bring it back to life while marking runs.
 *
 * What only a final reference reaches must be marked from it: the finalizer runs on it after the cycle.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 4
 */
public final class Finalizers {
    private static final int TAIL = 12;
    private static final ConcurrentLinkedQueue<Mortal> RISEN = new ConcurrentLinkedQueue<>();
    private static final AtomicInteger MADE = new AtomicInteger();
    private static final AtomicInteger FINALIZED = new AtomicInteger();
    private static volatile Throwable failure;

    private static final class Mortal {
        final int id;
        final Stress.Node chain;
        final Mortal companion;
        boolean finalized;

        Mortal(int id, Mortal companion) {
            this.id = id;
            this.companion = companion;
            Stress.Node node = null;
            for (int i = 0; i < TAIL; i++) {
                node = new Stress.Node((long) id * TAIL + i, node);
            }
            chain = node;
        }

        void intact() {
            int i = TAIL;
            for (Stress.Node node = chain; node != null; node = node.next) {
                node.intact((long) id * TAIL + --i);
            }
            Stress.check(i == 0, "mortal %d: its chain ends %d nodes early", id, i);
        }

        @Override
        @SuppressWarnings({"deprecation", "removal"})
        protected void finalize() {
            try {
                Stress.check(!finalized, "mortal %d was finalized twice", id);
                finalized = true;
                intact();
                if (companion != null) {
                    companion.intact();
                }
                if ((id & 3) == 0) {
                    RISEN.add(this);
                }
                FINALIZED.incrementAndGet();
            } catch (Throwable thrown) {
                failure = thrown;
            }
        }
    }

    private static void make(Mortal[] window, SplittableRandom random) throws InterruptedException {
        if (MADE.get() - FINALIZED.get() > 12_000) {
            Thread.sleep(1);  // let the finalizer thread catch up: the dead wait in memory
            return;
        }
        for (int i = 0; i < 64; i++) {
            int at = random.nextInt(window.length);
            if (window[at] != null) {
                Stress.check(!window[at].finalized, "mortal %d was finalized while held", window[at].id);
                window[at].intact();
            }
            // The companion dies with or before its holder: finalizers in any order must find it whole.
            window[at] = new Mortal(MADE.getAndIncrement(), window[random.nextInt(window.length)]);
        }
        int risen = 0;
        for (Mortal mortal; risen < 32 && (mortal = RISEN.poll()) != null; risen++) {
            Stress.check(mortal.finalized, "mortal %d rose without a finalizer", mortal.id);
            mortal.intact();
        }
        // Companions form chains through the dead; cut them now and then.
        if (random.nextInt(8) == 0) {
            java.util.Arrays.fill(window, random.nextInt(window.length), window.length, null);
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(150_000);
        var window = new Mortal[stress.count("count", 2_000)];
        stress.collectDuring(8, random -> make(window, random));
        java.util.Arrays.fill(window, null);
        Stress.collectUntil(() -> {
            for (Mortal mortal; (mortal = RISEN.poll()) != null;) {
                mortal.intact();
            }
            return FINALIZED.get() == MADE.get();
        }, 60, "every dropped object is finalized");
        if (failure != null) {
            throw new AssertionError("a finalizer failed", failure);
        }
        stress.ok("finalized %d", FINALIZED.get());
    }
}
