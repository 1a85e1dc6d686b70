// SPDX-License-Identifier: Apache-2.0

import java.util.concurrent.CountDownLatch;

/**
 * The program ends while a cycle runs. {@code how} says the way: exit, halt, hook (exit, with a shutdown hook that
 * collects), garbage (exit, with a shutdown hook from which on a thread fills the young generation) or return (from
 * main, with a daemon thread collecting); {@code micros} says how late. With {@code full=1} a full collection is asked
 * for after half of that time.
 *
 * @flags -Xms192m -Xmx192m
 * @traces 0
 */
public final class ExitInMidCycle {
    private static volatile boolean fills;
    private static volatile Object garbage;

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        Stress.Node list = null;
        var fan = new Stress.Node[stress.count("count", 600_000)];
        for (int i = 0; i < fan.length; i++) {
            list = i % 2 == 0 ? new Stress.Node(i, list) : list;
            fan[fan.length - 1 - i] = new Stress.Node(i, list);
        }
        System.gc();
        for (int i = 0; i < fan.length; i += 101) {
            fan[fan.length - 1 - i].intact(i);
        }
        boolean full = stress.count("full", 0) != 0;
        if (full) {
            // The first one takes its time to find the way to it.
            Stress.fullCollection();
        }
        var filler = new Thread(() -> {
            while (true) {
                if (fills) {
                    garbage = new byte[20_000];
                }
            }
        });
        filler.setDaemon(true);
        if (stress.option("how", "exit").equals("garbage")) {
            filler.start();
        }
        var started = new CountDownLatch(1);
        var collector = new Thread(() -> {
            started.countDown();
            while (true) {
                System.gc();
            }
        });
        collector.setDaemon(true);
        collector.start();
        started.await();
        long micros = stress.option("micros", 30_000);
        if (full) {
            var breaker = new Thread(() -> {
                try {
                    Thread.sleep(micros / 2000);
                    Stress.fullCollection();
                } catch (Exception e) {
                    throw new AssertionError(e);
                }
            });
            breaker.setDaemon(true);
            breaker.start();
        }
        if (!full) {
            Thread.sleep(micros / 1000, (int) (micros % 1000) * 1000);
        }
        stress.ok("nodes %d", fan.length);
        System.out.flush();
        if (full) {
            // Nothing that has the VM thread do anything comes between: it may be waiting for the cycle.
            Thread.sleep(micros / 1000, (int) (micros % 1000) * 1000);
        }
        switch (stress.option("how", "exit")) {
            case "exit":
                System.exit(0);
                break;
            case "halt":
                Runtime.getRuntime().halt(0);
                break;
            case "hook":
                Runtime.getRuntime().addShutdownHook(new Thread(System::gc));
                System.exit(0);
                break;
            case "garbage":
                Runtime.getRuntime().addShutdownHook(new Thread(() -> fills = true));
                System.exit(0);
                break;
            default:
                return;
        }
    }
}
