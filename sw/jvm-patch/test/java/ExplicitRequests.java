// SPDX-License-Identifier: Apache-2.0

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.ref.WeakReference;

/**
 * A System.gc() that returned has examined the whole heap: what was dead when it was called is found dead, whatever
 * humongous allocations ask for at the same time, and whether or not its marking had to be done again.
 *
 * @flags -Xms160m -Xmx160m -XX:G1HeapRegionSize=1m -XX:InitiatingHeapOccupancyPercent=45 -XX:-G1UseAdaptiveIHOP -XX:MaxTenuringThreshold=0
 * @traces 40
 * @log Pause Young .*\(G1 Humongous Allocation\)
 */
public final class ExplicitRequests {
    private static byte[] last;

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        // A third of the heap: humongous objects pass the threshold, and no longer once a pause reclaimed them.
        var filling = new byte[stress.count("filling", 100)][];
        for (int i = 0; i < filling.length; i++) {
            filling[i] = new byte[400 << 10];
        }
        int requests = stress.count("cycles", 60) / 2;
        Stress.Worker churn = random -> last = new byte[random.nextInt(600 << 10, 3 << 20)];
        stress.during(() -> {
            for (int i = 0; i < requests && !stress.failed(); i++) {
                if (i % 5 == 0) {
                    waitForPause();
                }
                var dead = new WeakReference<>(new Stress.Node[] {new Stress.Node(i, null)});
                var kept = dead.get();
                // Makes it old: what is young is collected by the pause that starts a cycle, marking or none.
                System.gc();
                Stress.check(kept[0].intact(i).id == i, "node %d is another", i);
                kept = null;
                System.gc();
                Stress.check(dead.get() == null, "request %d: an old object that was dead is still there", i);
            }
        }, churn);
        stress.ok("requests %d, arrays %d", requests, filling.length);
    }

    /** Between two requests: until the allocations have brought a pause by themselves, however slow this machine is. */
    private static void waitForPause() throws InterruptedException {
        long before = pauses();
        for (int i = 0; i < 10_000 && pauses() == before; i++) {
            Thread.sleep(1);
        }
    }

    private static long pauses() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream()
            .filter(bean -> bean.getName().equals("G1 Young Generation"))
            .mapToLong(GarbageCollectorMXBean::getCollectionCount)
            .sum();
    }
}
