// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;

/**
 * A heap so tight that young collections find no room for survivors while marking runs: objects stay where they are,
 * self-forwarded for a moment, and full collections abort cycles.
 *
 * @flags -Xms64m -Xmx64m -XX:G1ReservePercent=0 -XX:G1HeapRegionSize=1m
 * @traces 1
 * @log To-space exhausted|Evacuation Failure
 */
public final class EvacuationFailure {
    private static final int BURST = 400;

    private final Stress.Node[] resident;
    private final Stress.Node[] ring;
    private final int[] generation;

    private EvacuationFailure(int residents, int bursts) {
        resident = new Stress.Node[residents];
        for (int i = 0; i < residents; i++) {
            resident[i] = new Stress.Node(i, null);
        }
        ring = new Stress.Node[bursts];
        generation = new int[bursts];
        for (int i = 0; i < bursts; i++) {
            ring[i] = burst(i, 0);
        }
    }

    private Stress.Node burst(int slot, int round) {
        Stress.Node head = null;
        for (int i = 0; i < BURST; i++) {
            head = new Stress.Node(((long) slot << 32) + ((long) round * BURST) + i, head);
        }
        return head;
    }

    private void check(int slot) {
        int left = BURST;
        for (Stress.Node node = ring[slot]; node != null; node = node.next) {
            node.intact(((long) slot << 32) + ((long) generation[slot] * BURST) + --left);
        }
        Stress.check(left == 0, "burst %d ends %d nodes early", slot, left);
    }

    private void step(SplittableRandom random) {
        for (int i = 0; i < 8; i++) {
            int slot = random.nextInt(ring.length);
            check(slot);
            ring[slot] = burst(slot, ++generation[slot]);
            int a = random.nextInt(resident.length);
            int b = random.nextInt(resident.length);
            Stress.Node moved = resident[a];
            resident[a] = resident[b];
            resident[b] = moved.intact();
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        // Live: about 70 % of the heap, at some 72 bytes a node; more with wide references, so the share is measured.
        long perNode = bytesPerNode();
        long heap = Runtime.getRuntime().maxMemory();
        int residents = (int) (heap * 40 / 100 / perNode);
        int bursts = (int) (heap * 30 / 100 / perNode / BURST);
        var test = new EvacuationFailure(residents, bursts);
        stress.during(() -> {
            for (int i = 0; i < stress.count("cycles", 10); i++) {
                System.gc();
            }
            Thread.sleep(500);
        }, test::step);
        long sum = 0;
        for (Stress.Node node : test.resident) {
            sum += node.intact().id;
        }
        Stress.check(sum == (long) residents * (residents - 1) / 2, "the residents' ids add up to %d", sum);
        for (int i = 0; i < bursts; i++) {
            test.check(i);
        }
        stress.ok("residents %d bursts %d", residents, bursts);
    }

    private static long bytesPerNode() {
        System.gc();
        Runtime runtime = Runtime.getRuntime();
        long before = runtime.totalMemory() - runtime.freeMemory();
        var sample = new Stress.Node[40_000];
        for (int i = 0; i < sample.length; i++) {
            sample[i] = new Stress.Node(i, null);
        }
        System.gc();
        long used = runtime.totalMemory() - runtime.freeMemory() - before;
        java.lang.ref.Reference.reachabilityFence(sample);
        return Math.max(56, used / sample.length);
    }
}
