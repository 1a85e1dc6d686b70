// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;

/**
 * Hundreds of marking cycles back to back over a heap so small that hand-over and hand-back are most of each.
 *
 * @flags -Xms32m -Xmx32m
 * @traces 100
 */
public final class ShortCycles {
    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var ring = new Stress.Node[stress.count("count", 3_000)];
        for (int i = 0; i < ring.length; i++) {
            ring[i] = new Stress.Node(i, null);
        }
        stress.collectDuring(150, (SplittableRandom random) -> {
            for (int i = 0; i < 64; i++) {
                int at = random.nextInt(ring.length);
                ring[at] = new Stress.Node(ring[at].intact(at).id, random.nextBoolean() ? null : new Stress.Node(5, null));
            }
        });
        for (int i = 0; i < ring.length; i++) {
            ring[i].intact(i);
        }
        stress.ok("nodes %d", ring.length);
    }
}
