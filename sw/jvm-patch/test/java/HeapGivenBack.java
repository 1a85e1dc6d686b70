// SPDX-License-Identifier: Apache-2.0

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;
import javax.management.ObjectName;

/**
 * Memory of a heap that has shrunk goes back to the system, and everybody who counts what is committed says the same.
 *
 * @flags -Xms16m -Xmx256m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=15 -XX:G1HeapRegionSize=1m -XX:NativeMemoryTracking=summary
 * @traces 2
 */
public final class HeapGivenBack {
    private static final int MIB = 1 << 20;
    private static final int FULL = 160;
    private static Object kept;

    private static int find(String pattern, String text) {
        var matcher = Pattern.compile(pattern).matcher(text);
        Stress.check(matcher.find(), "%s is not in %s", pattern, text);
        return Integer.parseInt(matcher.group(1));
    }

    private static int residentMib() throws Exception {
        return find("VmRSS:\\s+(\\d+) kB", Files.readString(Path.of("/proc/self/status"))) >> 10;
    }

    private static int trackedMib() throws Exception {
        Object text = ManagementFactory.getPlatformMBeanServer().invoke(
            new ObjectName("com.sun.management:type=DiagnosticCommand"), "vmNativeMemory",
            new Object[] {new String[] {"summary"}}, new String[] {String[].class.getName()});
        return find("Java Heap \\(reserved=\\d+KB, committed=(\\d+)KB\\)", text.toString()) >> 10;
    }

    private static int committedMib() {
        return (int) (Runtime.getRuntime().totalMemory() / MIB);
    }

    /** A good part of what was in use and is no longer committed is no longer resident, and all of it is no longer tracked. */
    private static boolean givenBack(int full, int before) throws Exception {
        return full - residentMib() >= Math.min(before - committedMib(), FULL) / 4 && trackedMib() == committedMib();
    }

    private static void fill() {
        var blocks = new Object[FULL];
        for (int i = 0; i < FULL; i++) {
            blocks[i] = new byte[MIB - 64];
        }
        kept = blocks;
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        // A heap that was made larger for large regions or objects may not shrink that far.
        int least = Runtime.getRuntime().maxMemory() <= 256L * MIB ? FULL / 2 : 0;
        int empty = 0;
        int full = 0;
        for (int round = 0; round < stress.count("cycles", 2); round++) {
            fill();
            full = residentMib();
            int before = committedMib();
            Stress.check(trackedMib() >= FULL, "%d MiB are tracked, %d committed", trackedMib(), before);
            kept = null;
            for (int i = 0; i < 20 && before - committedMib() < FULL / 2; i++) {
                System.gc();
            }
            // Regions are uncommitted concurrently, some time after a cycle.
            for (int i = 0; i < 200 && !givenBack(full, before); i++) {
                Thread.sleep(50);
            }
            empty = residentMib();
            int after = committedMib();
            Stress.check(before - after >= least, "%d MiB stay committed of %d", after, before);
            Stress.check(givenBack(full, before), "%d MiB are resident of %d, %d tracked, %d committed of %d", empty, full,
                trackedMib(), after, before);
        }
        stress.ok("resident MiB %d and %d", full, empty);
    }
}
