// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;

/**
 * References to the same few objects are overwritten as fast as a thread can, and nothing is allocated meanwhile: marking
 * hears of each object again and again until it has marked it.
 *
 * @flags -Xms160m -Xmx160m
 * @traces 4
 */
public final class OverwrittenReferences {
    private static void step(Stress.Node[] nodes, SplittableRandom random) {
        for (int i = 0; i < 4_096; i++) {
            int a = random.nextInt(nodes.length);
            int b = random.nextInt(nodes.length);
            Stress.Node node = nodes[a];
            nodes[a] = nodes[b];
            nodes[b] = node;
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(300_000);
        var nodes = new Stress.Node[stress.count("count", 20_000)];
        for (int i = 0; i < nodes.length; i++) {
            nodes[i] = new Stress.Node(i, new Stress.Node(~i, null));
        }
        // Old, so that marking has to find them.
        Stress.fullCollection();
        stress.collectDuring(6, random -> step(nodes, random));
        long sum = 0;
        for (Stress.Node node : nodes) {
            sum += node.intact().id;
            node.next.intact(~node.id);
        }
        Stress.check(sum == (long) nodes.length * (nodes.length - 1) / 2, "the nodes' ids add up to %d", sum);
        stress.ok("nodes %d", nodes.length);
    }
}
