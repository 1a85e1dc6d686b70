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

    private static void fill() {
        var blocks = new Object[FULL];
        for (int i = 0; i < FULL; i++) {
            blocks[i] = new byte[MIB - 64];
        }
        kept = blocks;
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        int empty = 0;
        int full = 0;
        for (int round = 0; round < stress.count("cycles", 2); round++) {
            fill();
            full = residentMib();
            Stress.check(trackedMib() >= FULL, "%d MiB are tracked with %d in use", trackedMib(), FULL);
            kept = null;
            // Regions are uncommitted concurrently, some time after a cycle.
            for (int i = 0; i < 100 && (residentMib() > full - FULL / 2 || trackedMib() > FULL / 2); i++) {
                System.gc();
                Thread.sleep(50);
            }
            empty = residentMib();
            int committed = (int) (Runtime.getRuntime().totalMemory() / MIB);
            Stress.check(empty <= full - FULL / 2, "%d MiB stay resident of %d", empty, full);
            Stress.check(trackedMib() <= FULL / 2 && committed <= FULL / 2, "%d MiB tracked, %d committed", trackedMib(), committed);
        }
        stress.ok("resident MiB %d and %d", full, empty);
    }
}
