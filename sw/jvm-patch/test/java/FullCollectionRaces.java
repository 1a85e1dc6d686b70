// SPDX-License-Identifier: Apache-2.0

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Full collections, from a class histogram and from heap dumps, break into marking cycles that explicit and automatic
 * requests start all the time.
 *
 * @flags -Xms160m -Xmx160m -XX:InitiatingHeapOccupancyPercent=10 -XX:-G1UseAdaptiveIHOP
 * @traces 2
 * @log Concurrent Mark Abort
 */
public final class FullCollectionRaces {
    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var graph = new Stress.Node[stress.count("count", 200_000)];
        for (int i = 0; i < graph.length; i++) {
            graph[i] = new Stress.Node(i, new Stress.Node(~i, null));
        }
        var full = new AtomicInteger();
        var dumps = new AtomicInteger();
        Path folder = Files.createTempDirectory("full-collection-races");
        var diagnostic = ManagementFactory.getPlatformMXBean(com.sun.management.HotSpotDiagnosticMXBean.class);
        Stress.Worker mutator = random -> {
            for (int i = 0; i < 512; i++) {
                int a = random.nextInt(graph.length);
                int b = random.nextInt(graph.length);
                Stress.Node tail = graph[a].next;
                graph[a].next = graph[b].next;
                graph[b].next = tail;
                graph[a] = new Stress.Node(graph[a].intact(a).id, graph[a].next);
            }
        };
        Stress.Worker breaker = random -> {
            Thread.sleep(random.nextInt(10, 60));
            if (random.nextInt(6) == 0) {
                Path file = folder.resolve("heap-" + dumps.incrementAndGet() + ".hprof");
                diagnostic.dumpHeap(file.toString(), true);
                Files.delete(file);
            } else {
                Stress.fullCollection();
            }
            full.incrementAndGet();
        };
        stress.collectDuring(14, mutator, breaker);
        System.gc();
        System.gc();
        Files.delete(folder);
        long sum = 0;
        for (int i = 0; i < graph.length; i++) {
            sum += graph[i].intact(i).next.intact().id;
        }
        Stress.check(sum == -(long) graph.length * (graph.length + 1) / 2, "the tails' ids add up to %d", sum);
        stress.ok("nodes %d full collections %d", graph.length, full.get());
    }
}
