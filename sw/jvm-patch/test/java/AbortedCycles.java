// SPDX-License-Identifier: Apache-2.0

/**
 * A full collection ends each marking cycle long before it is marked.
 *
 * @flags -Xms96m -Xmx96m
 * @traces 0
 * @log Concurrent Mark Abort
 */
public final class AbortedCycles {
    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(400_000);
        var full = new int[1];
        stress.collectDuring(12, random -> {
            Thread.sleep(2);
            Stress.fullCollection();
            full[0]++;
        });
        stress.ok("full collections %d", full[0]);
    }
}
