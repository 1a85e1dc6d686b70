// SPDX-License-Identifier: Apache-2.0

import java.lang.ref.Cleaner;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.WeakHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;

/**
 * WeakHashMap entries live exactly as long as their keys, and Cleaner actions run once, after their object died.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 6
 */
public final class WeakMapsAndCleaners {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final int RESOURCES = 2_000_000;

    private final Map<Stress.Node, Stress.Node> map = new WeakHashMap<>();
    private final Stress.Node[] keys;
    private final Stress.Node[] holders = new Stress.Node[4_000];
    private final AtomicIntegerArray cleaned = new AtomicIntegerArray(RESOURCES);
    private final AtomicInteger resources = new AtomicInteger();
    private final AtomicInteger cleanings = new AtomicInteger();

    private WeakMapsAndCleaners(int count) {
        keys = new Stress.Node[count];
        for (int i = 0; i < count; i++) {
            keys[i] = new Stress.Node(i, null);
            map.put(keys[i], new Stress.Node(i + 1L, null));
        }
    }

    private void useMap(SplittableRandom random) {
        for (int i = 0; i < 256; i++) {
            int at = random.nextInt(keys.length);
            Stress.Node value = map.get(keys[at]);
            Stress.check(value != null, "the entry of live key %d is gone", at);
            value.intact(at + 1L);
            if (random.nextInt(4) == 0) {
                keys[at] = new Stress.Node(at, null);
                map.put(keys[at], new Stress.Node(at + 1L, null));
            }
        }
    }

    private void useCleaner(SplittableRandom random) {
        for (int i = 0; i < 32 && resources.get() < RESOURCES; i++) {
            int at = random.nextInt(holders.length);
            Stress.Node old = holders[at];
            if (old != null) {
                Stress.check(cleaned.get((int) old.intact().id) == 0, "resource %d was cleaned while held", old.id);
                java.lang.ref.Reference.reachabilityFence(old);
            }
            int id = resources.getAndIncrement();
            var node = new Stress.Node(id, null);
            AtomicIntegerArray counts = cleaned;
            AtomicInteger total = cleanings;
            CLEANER.register(node, () -> {
                counts.incrementAndGet(id);
                total.incrementAndGet();
            });
            holders[at] = node;
        }
        Thread.yield();
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(250_000);
        var test = new WeakMapsAndCleaners(stress.count("count", 40_000));
        stress.collectDuring(8, test::useMap, test::useCleaner);

        Stress.collectUntil(() -> test.map.size() == test.keys.length, 40, "entries of dropped keys go");
        for (int i = 0; i < test.keys.length; i++) {
            test.map.get(test.keys[i]).intact(i + 1L);
        }
        java.util.Arrays.fill(test.holders, null);
        Stress.collectUntil(() -> {
            Thread.sleep(20);
            return test.cleanings.get() == test.resources.get();
        }, 40, "every resource is cleaned");
        for (int i = 0; i < test.resources.get(); i++) {
            Stress.check(test.cleaned.get(i) == 1, "resource %d was cleaned %d times", i, test.cleaned.get(i));
        }
        stress.ok("entries %d resources %d", test.map.size(), test.resources.get());
    }
}
