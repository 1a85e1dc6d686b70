// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * What only threads hold: locals in frames hundreds deep, thread-local values, monitors that are entered, inflated and
 * waited on, and identity hashes that live in headers. Threads come and go while marking runs.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 8
 */
public final class ThreadRoots {
    private static final ThreadLocal<Stress.Node> LOCAL = new ThreadLocal<>();
    private static final InheritableThreadLocal<Stress.Node> INHERITED = new InheritableThreadLocal<>();

    private final AtomicBoolean stop = new AtomicBoolean();
    private final AtomicInteger frames = new AtomicInteger();

    /** Each frame holds one node on the stack alone, lets the deeper ones run for a while, and then looks at it. */
    private long descend(int depth, long id, CountDownLatch bottom) throws InterruptedException {
        var mine = new Stress.Node(id * 1000 + depth, new Stress.Node(~(id * 1000 + depth), null));
        long below;
        if (depth == 0) {
            bottom.countDown();
            while (!stop.get()) {
                Thread.sleep(5);
            }
            below = 0;
        } else {
            below = descend(depth - 1, id, bottom);
        }
        mine.intact(id * 1000 + depth).next.intact(~(id * 1000 + depth));
        frames.incrementAndGet();
        return below + 1;
    }

    private static final class Lock {
        final Stress.Node beside;
        int value;

        Lock(long id) {
            beside = new Stress.Node(id, null);
        }
    }

    private final Lock[] locks = new Lock[2000];
    private final int[] hashes = new int[locks.length];

    private void fight(SplittableRandom random) throws InterruptedException {
        for (int i = 0; i < 64; i++) {
            int at = random.nextInt(locks.length);
            Lock lock = locks[at];
            synchronized (lock) {
                lock.beside.intact(at);
                lock.value++;
                Stress.check(System.identityHashCode(lock) == hashes[at], "the hash of lock %d changed", at);
                if (random.nextInt(64) == 0) {
                    lock.wait(1);
                } else {
                    lock.notifyAll();
                }
            }
            // A lock that nothing but its own monitor and this frame know.
            var own = new Stress.Node(at, null);
            synchronized (own) {
                own.wait(0, 1);
                own.intact(at);
            }
        }
    }

    private static void useThreadLocals(SplittableRandom random) throws Exception {
        if (LOCAL.get() == null) {
            LOCAL.set(new Stress.Node(1, null));
            INHERITED.set(new Stress.Node(2, new Stress.Node(3, null)));
        }
        LOCAL.get().intact();
        INHERITED.get().intact(2).next.intact(3);
        LOCAL.set(new Stress.Node(random.nextInt(1000), null));
        var failed = new AtomicBoolean(true);
        var child = new Thread(() -> {
            INHERITED.get().intact(2).next.intact(3);
            LOCAL.set(new Stress.Node(7, null));
            Thread.yield();
            LOCAL.get().intact(7);
            failed.set(false);
        });
        child.start();
        child.join();
        Stress.check(!failed.get(), "a child thread did not find its thread-local values");
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(250_000);
        var test = new ThreadRoots();
        for (int i = 0; i < test.locks.length; i++) {
            test.locks[i] = new Lock(i);
            test.hashes[i] = System.identityHashCode(test.locks[i]);
        }
        int depth = stress.count("depth", 400);
        var threads = new Thread[6];
        var depths = new long[threads.length];
        var bottom = new CountDownLatch(threads.length);
        for (int i = 0; i < threads.length; i++) {
            int id = i + 1;
            threads[i] = new Thread(null, () -> {
                try {
                    depths[id - 1] = test.descend(depth, id, bottom);
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }, "deep-" + id, 16 << 20);
            threads[i].start();
        }
        bottom.await();
        stress.collectDuring(10, test::fight, test::fight, ThreadRoots::useThreadLocals);
        test.stop.set(true);
        for (int i = 0; i < threads.length; i++) {
            threads[i].join();
            Stress.check(depths[i] == depth + 1, "thread %d came back from %d frames", i, depths[i]);
        }
        for (int i = 0; i < test.locks.length; i++) {
            test.locks[i].beside.intact(i);
            Stress.check(System.identityHashCode(test.locks[i]) == test.hashes[i], "the hash of lock %d changed", i);
        }
        stress.ok("frames %d locks %d", test.frames.get(), test.locks.length);
    }
}
