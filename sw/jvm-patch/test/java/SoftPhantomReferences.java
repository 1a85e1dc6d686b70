// SPDX-License-Identifier: Apache-2.0

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A cache of soft references read while marking runs, and phantom references that must come exactly once, after death.
 * At the end memory is used up: no OutOfMemoryError while a softly reachable object is still there.
 *
 * @flags -Xms96m -Xmx96m -XX:SoftRefLRUPolicyMSPerMB=2
 * @traces 6
 */
public final class SoftPhantomReferences {
    private static final ReferenceQueue<Stress.Node> QUEUE = new ReferenceQueue<>();

    private static final class Tombstone extends PhantomReference<Stress.Node> {
        final long id;

        Tombstone(Stress.Node node) {
            super(node, QUEUE);
            id = node.id;
        }
    }

    private static List<SoftReference<Stress.Node>> cache(int count) {
        var cache = new ArrayList<SoftReference<Stress.Node>>();
        for (int i = 0; i < count; i++) {
            cache.add(new SoftReference<>(new Stress.Node(i, new Stress.Node(~i, null))));
        }
        return cache;
    }

    private static final class Phantoms {
        final Stress.Node[] alive = new Stress.Node[20_000];
        final Set<Tombstone> waiting = new HashSet<>();
        final AtomicInteger buried = new AtomicInteger();

        void step(SplittableRandom random) {
            for (int i = 0; i < 64; i++) {
                int at = random.nextInt(alive.length);
                Tombstone stone;
                synchronized (waiting) {
                    alive[at] = new Stress.Node(at, null);
                    stone = new Tombstone(alive[at]);
                    waiting.add(stone);
                }
                Stress.check(stone.refersTo(alive[at]), "phantom %d lost a live object", at);
                Stress.check(stone.get() == null, "phantom %d gave its referent away", at);
            }
            poll();
        }

        void poll() {
            Tombstone stone;
            while ((stone = (Tombstone) QUEUE.poll()) != null) {
                boolean first;
                synchronized (waiting) {
                    first = waiting.remove(stone);
                }
                Stress.check(first, "phantom %d came twice", stone.id);
                Stress.check(stone.refersTo(null), "phantom %d came with its referent", stone.id);
                buried.incrementAndGet();
            }
        }

        /** A live object's phantom is still waiting. */
        void checkAlive() {
            int present = 0;
            for (Stress.Node node : alive) {
                if (node != null) {
                    node.intact();
                    present++;
                }
            }
            Stress.check(waiting.size() >= present, "%d live objects, %d phantoms waiting", present, waiting.size());
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(150_000);
        var cache = cache(stress.count("count", 50_000));
        var phantoms = new Phantoms();
        var hits = new AtomicInteger();
        Stress.Worker reader = random -> {
            for (int i = 0; i < 512; i++) {
                int at = random.nextInt(cache.size());
                Stress.Node found = cache.get(at).get();
                if (found != null) {
                    found.intact(at).next.intact(~at);
                    hits.incrementAndGet();
                } else {
                    cache.set(at, new SoftReference<>(new Stress.Node(at, new Stress.Node(~at, null))));
                }
            }
        };
        // One writer of phantoms: `alive` has no lock of its own.
        stress.collectDuring(8, reader, phantoms::step);
        phantoms.checkAlive();
        java.util.Arrays.fill(phantoms.alive, null);
        Stress.collectUntil(() -> {
            Thread.sleep(20);
            phantoms.poll();
            return phantoms.waiting.isEmpty();
        }, 40, "every dropped object's phantom comes");

        int softlyLeft = 0;
        var ballast = new ArrayList<byte[]>();
        try {
            while (true) {
                ballast.add(new byte[256 << 10]);
            }
        } catch (OutOfMemoryError expected) {
            // Not an iterator: there is no memory for one until the ballast goes.
            for (int i = 0; i < cache.size(); i++) {
                softlyLeft += cache.get(i).get() == null ? 0 : 1;
            }
            ballast.clear();
        }
        Stress.check(softlyLeft == 0, "OutOfMemoryError came with %d softly reachable objects left", softlyLeft);
        stress.ok("soft %d hits %d phantoms %d", cache.size(), hits.get(), phantoms.buried.get());
    }
}
