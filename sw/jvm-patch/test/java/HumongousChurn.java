// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;

/**
 * Arrays of every size around the humongous threshold and around whole regions, made and dropped during marking:
 * primitive ones are reclaimed eagerly, arrays of references carry nodes that nothing else holds.
 *
 * @flags -Xms192m -Xmx192m -XX:G1HeapRegionSize=1m
 * @traces 4
 */
public final class HumongousChurn {
    private final Object[] slots;
    private final int[] sizes;
    private final long[] ids;
    private final long region = Stress.regionBytes();
    private final long budget = Runtime.getRuntime().maxMemory() / 5;
    private long used;
    private long next;

    private HumongousChurn(int count) {
        slots = new Object[count];
        sizes = new int[count];
        ids = new long[count];
    }

    /** Bytes of an array object: at, just below and just above multiples of half a region. */
    private long bytes(SplittableRandom random) {
        long halves = 1 + random.nextInt(5);
        return Math.max(64, halves * region / 2 + 8L * random.nextInt(-6, 7));
    }

    private void make(int at, SplittableRandom random) {
        used -= sizes[at];
        slots[at] = null;
        sizes[at] = 0;
        long bytes = Math.min(bytes(random), budget / 4);
        if (used + bytes > budget) {
            return;
        }
        int payload = (int) (bytes - 16);
        long id = next++;
        switch (random.nextInt(4)) {
            case 0: {
                var array = new byte[payload];
                for (int i = 0; i < payload; i += 509) {
                    array[i] = (byte) (id + i);
                }
                slots[at] = array;
                break;
            }
            case 1: {
                var array = new long[payload / 8];
                for (int i = 0; i < array.length; i += 61) {
                    array[i] = id + i;
                }
                slots[at] = array;
                break;
            }
            default: {
                // 8 bytes each is right without compressed references and half the size with them: both are wanted.
                var array = new Object[payload / (random.nextBoolean() ? 4 : 8)];
                for (int i = 0; i < array.length; i += 1021) {
                    array[i] = new Stress.Node(id + i, null);
                }
                array[array.length - 1] = new Stress.Node(~id, null);
                slots[at] = array;
            }
        }
        ids[at] = id;
        sizes[at] = (int) bytes;
        used += bytes;
    }

    private void check(int at) {
        Object slot = slots[at];
        long id = ids[at];
        if (slot instanceof byte[] array) {
            for (int i = 0; i < array.length; i += 509) {
                Stress.check(array[i] == (byte) (id + i), "byte[%d] %d: element %d", array.length, id, i);
            }
        } else if (slot instanceof long[] array) {
            for (int i = 0; i < array.length; i += 61) {
                Stress.check(array[i] == id + i, "long[%d] %d: element %d", array.length, id, i);
            }
        } else if (slot instanceof Object[] array) {
            for (int i = 0; i < array.length - 1; i += 1021) {
                ((Stress.Node) array[i]).intact(id + i);
            }
            ((Stress.Node) array[array.length - 1]).intact(~id);
        }
    }

    private void step(SplittableRandom random) {
        int at = random.nextInt(slots.length);
        check(at);
        make(at, random);
        // Slower than eager reclaim, or full collections would take the place of most cycles.
        java.util.concurrent.locks.LockSupport.parkNanos(300_000);
        // Short-lived ones beside those kept: these are what eager reclaim takes.
        int length = (int) Math.min(bytes(random), budget / 4) - 16;
        Object brief = random.nextBoolean() ? new byte[length] : new Object[length / 8];
        if (brief instanceof Object[] array) {
            array[array.length / 2] = slots[random.nextInt(slots.length)];
        }
        java.lang.ref.Reference.reachabilityFence(brief);
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(200_000);
        var test = new HumongousChurn(stress.count("count", 64));
        stress.collectDuring(12, test::step);
        for (int i = 0; i < test.slots.length; i++) {
            test.check(i);
        }
        stress.ok("arrays %d region %d", test.next, test.region);
    }
}
