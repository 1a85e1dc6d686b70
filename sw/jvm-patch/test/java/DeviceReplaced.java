// SPDX-License-Identifier: Apache-2.0

import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Lists that stay as they are while collections move them, each node looked at after each step of {@code plan}: c a
 * cycle, f a full collection, r whoever watches replaces the device: the program makes the file {@code asked} and waits
 * until it is gone.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 4
 */
public final class DeviceReplaced {
    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        // Leaves room below the lists, into which the next one moves them.
        Stress.fullCollection();
        var lists = new Stress.Node[stress.count("lists", 40)];
        int length = stress.count("count", 5_000);
        for (int i = 0; i < lists.length; i++) {
            for (int j = 0; j < length; j++) {
                lists[i] = new Stress.Node(j, lists[i]);
            }
        }
        for (char step : stress.option("plan", "cfccfc").toCharArray()) {
            switch (step) {
                case 'c':
                    System.gc();
                    break;
                case 'f':
                    Stress.fullCollection();
                    break;
                case 'r':
                    Path asked = Files.createFile(Path.of(stress.option("asked", (String) null)));
                    while (Files.exists(asked)) {
                        Thread.sleep(10);
                    }
                    break;
                default:
                    throw new IllegalArgumentException("expected a plan of c, f and r, found " + step);
            }
            for (Stress.Node list : lists) {
                int left = length;
                for (Stress.Node node = list; node != null; node = node.next) {
                    node.intact(--left);
                }
                Stress.check(left == 0, "%d nodes of a list are gone", left);
            }
        }
        stress.ok("nodes %d", lists.length * length);
    }
}
