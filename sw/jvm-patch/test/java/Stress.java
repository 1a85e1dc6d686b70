// SPDX-License-Identifier: Apache-2.0

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import javax.management.ObjectName;

/**
 * What all programs share: arguments, checks, and marking cycles that run while worker threads mutate.
 *
 * Arguments are {@code name=value}; {@code seed} and {@code cycles} are understood by all. With
 * -XX:+ExplicitGCInvokesConcurrent each System.gc() is one whole concurrent cycle and returns at its end;
 * without it, it is a full collection, which is a configuration worth running too.
 */
final class Stress {
    /** One step of a mutator; called again and again until the last cycle is over. */
    interface Worker {
        void step(SplittableRandom random) throws Exception;
    }

    private final String[] args;
    private final SplittableRandom root;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private Node ballast;
    private int ballastNodes;

    Stress(String[] args) {
        this.args = args;
        this.root = new SplittableRandom(option("seed", 1));
    }

    long option(String name, long otherwise) {
        String value = option(name, (String) null);
        return value == null ? otherwise : Long.parseLong(value);
    }

    /** The last one counts. */
    String option(String name, String otherwise) {
        String value = otherwise;
        for (String arg : args) {
            if (arg.startsWith(name + "=")) {
                value = arg.substring(name.length() + 1);
            }
        }
        return value;
    }

    int count(String name, int otherwise) {
        return Math.toIntExact(option(name, otherwise));
    }

    /** A generator of its own for each caller, the same ones in every run with the same seed. */
    SplittableRandom random() {
        return root.split();
    }

    static void check(boolean holds, String format, Object... arguments) {
        if (!holds) {
            throw new AssertionError(String.format(format, arguments));
        }
    }

    /** The last word of a program that found everything as it must be. */
    void ok(String format, Object... arguments) {
        checkBallast();
        System.out.println("OK " + String.format(format, arguments));
    }

    /**
     * Live objects that give marking something to do, so that there is something to race with: a list in random order,
     * which no tracer follows faster than memory answers.
     */
    void ballast(int count) {
        ballastNodes = count("ballast", count);
        var nodes = new Node[ballastNodes];
        SplittableRandom random = random();
        for (int i = 0; i < nodes.length; i++) {
            nodes[i] = new Node(i, null);
            int at = random.nextInt(i + 1);
            Node swapped = nodes[at];
            nodes[at] = nodes[i];
            nodes[i] = swapped;
        }
        for (Node node : nodes) {
            node.next = ballast;
            ballast = node;
        }
    }

    private void checkBallast() {
        long sum = 0;
        int length = 0;
        for (Node node = ballast; node != null; node = node.next) {
            sum += node.intact().id;
            length++;
        }
        check(length == ballastNodes && sum == (long) length * (length - 1) / 2, "%d of %d ballast nodes are left",
            length, ballastNodes);
    }

    /** With {@code until=FILE}: does the file exist? Whoever watches the program ends its cycles so. */
    private boolean asked() {
        String file = option("until", (String) null);
        return file != null && Files.exists(Path.of(file));
    }

    /** True once a worker threw; the body's loops end then. */
    boolean failed() {
        return failure.get() != null;
    }

    /** Runs {@code cycles} (or the argument of that name) collections while the workers step. */
    void collectDuring(int cycles, Worker... workers) throws Exception {
        int count = count("cycles", cycles);
        during(() -> {
            for (int i = 0; i < count && !failed() && !asked(); i++) {
                System.gc();
            }
        }, workers);
    }

    /** Steps the workers in threads of their own while {@code body} runs in this one; none with {@code quiet=1}. */
    void during(Body body, Worker... all) throws Exception {
        Worker[] workers = count("quiet", 0) == 0 ? all : new Worker[0];
        var stop = new AtomicBoolean();
        var threads = new Thread[workers.length];
        for (int i = 0; i < workers.length; i++) {
            Worker worker = workers[i];
            SplittableRandom random = random();
            threads[i] = new Thread(() -> {
                try {
                    do {
                        worker.step(random);
                    } while (!stop.get() && failure.get() == null);
                } catch (Throwable thrown) {
                    failure.compareAndSet(null, thrown);
                }
            }, "worker-" + i);
            threads[i].start();
        }
        try {
            body.run();
        } finally {
            stop.set(true);
            for (Thread thread : threads) {
                thread.join();
            }
        }
        if (failure.get() != null) {
            throw new AssertionError("a worker failed", failure.get());
        }
    }

    interface Body {
        void run() throws Exception;
    }

    /** Collects until {@code done} holds; fails after {@code most} collections. */
    static void collectUntil(java.util.concurrent.Callable<Boolean> done, int most, String what) throws Exception {
        for (int i = 0; i < most; i++) {
            System.gc();
            System.runFinalization();
            if (done.call()) {
                return;
            }
        }
        throw new AssertionError(what + ": not after " + most + " collections");
    }

    /** A full, stop-the-world collection whatever ExplicitGCInvokesConcurrent says. */
    static void fullCollection() throws Exception {
        ManagementFactory.getPlatformMBeanServer().invoke(
            new ObjectName("com.sun.management:type=DiagnosticCommand"), "gcClassHistogram",
            new Object[] {new String[0]}, new String[] {String[].class.getName()});
    }

    /** Value of a VM flag as text. */
    static String flag(String name) {
        return ManagementFactory.getPlatformMXBean(com.sun.management.HotSpotDiagnosticMXBean.class)
            .getVMOption(name).getValue();
    }

    /**
     * Whether marking cycles unload classes. With VerifyDuringGC they hardly do: verification at a cycle's pauses reads
     * weakly held classes through barriers that keep them alive until the next cycle, which does the same.
     */
    static boolean unloadsConcurrently() {
        boolean verifies = ManagementFactory.getRuntimeMXBean().getInputArguments().contains("-XX:+VerifyDuringGC");
        return Boolean.parseBoolean(flag("ClassUnloadingWithConcurrentMark")) && !verifies;
    }

    static long regionBytes() {
        return Long.parseLong(flag("G1HeapRegionSize"));
    }

    /**
     * An object that knows what it must look like. A node that was reclaimed while in use is overwritten or moved over
     * sooner or later, and intact() sees that.
     */
    static class Node {
        private static final long SALT = 0x9E3779B97F4A7C15L;
        final long id;
        Node next;
        final int[] body;
        final long seal;

        Node(long id, Node next) {
            this.id = id;
            this.next = next;
            this.body = new int[(int) (id & 7)];
            for (int i = 0; i < body.length; i++) {
                body[i] = (int) (id * SALT >>> 32) + i;
            }
            this.seal = id * SALT;
        }

        Node intact() {
            check(seal == id * SALT, "node %d: its seal is %x", id, seal);
            check(body.length == (int) (id & 7), "node %d: its body has %d elements", id, body.length);
            for (int i = 0; i < body.length; i++) {
                check(body[i] == (int) (id * SALT >>> 32) + i, "node %d: element %d is %x", id, i, body[i]);
            }
            return this;
        }

        Node intact(long expected) {
            check(id == expected, "expected node %d, found %d", expected, id);
            return intact();
        }
    }
}
