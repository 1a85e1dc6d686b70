// SPDX-License-Identifier: Apache-2.0

/**
 * A full collection comes between any two marking cycles, and none ends one.
 *
 * @flags -Xms96m -Xmx96m
 * @traces 6
 * @log Pause Full \(Heap Inspection
 */
public final class FullBetweenCycles {
    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(100_000);
        int cycles = stress.count("cycles", 6);
        for (int i = 0; i < cycles; i++) {
            System.gc();
            Stress.fullCollection();
        }
        stress.ok("cycles and full collections %d", cycles);
    }
}
