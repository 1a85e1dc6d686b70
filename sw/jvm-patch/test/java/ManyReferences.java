// SPDX-License-Identifier: Apache-2.0

import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.SoftReference;
import java.lang.ref.WeakReference;
import java.util.SplittableRandom;

/**
 * Hundreds of thousands of Reference objects: more than a completion ring holds, and chains of references to
 * references, so that what only the host can scan is most of the graph.
 *
 * @flags -Xms192m -Xmx192m -XX:SoftRefLRUPolicyMSPerMB=100000
 * @traces 6
 */
public final class ManyReferences {
    private static final ReferenceQueue<Object> QUEUE = new ReferenceQueue<>();

    private final Stress.Node[] nodes;
    private final Reference<?>[] direct;
    private final Reference<?>[] chains;

    private ManyReferences(int count) {
        nodes = new Stress.Node[count];
        direct = new Reference<?>[count];
        chains = new Reference<?>[count / 16];
        for (int i = 0; i < count; i++) {
            set(i);
        }
        for (int i = 0; i < chains.length; i++) {
            chains[i] = chain(i);
        }
    }

    private void set(int i) {
        nodes[i] = new Stress.Node(i, null);
        switch (i % 3) {
            case 0: direct[i] = new WeakReference<>(nodes[i]); break;
            case 1: direct[i] = new SoftReference<>(nodes[i]); break;
            default: direct[i] = new PhantomReference<>(nodes[i], QUEUE);
        }
    }

    /** Eight soft references, each the only way to the next, and a node at the end. */
    private static Reference<?> chain(long id) {
        Reference<?> head = new SoftReference<>(new Stress.Node(id, null));
        for (int i = 0; i < 7; i++) {
            head = new SoftReference<Object>(head);
        }
        return head;
    }

    private void checkChain(int at) {
        Object found = chains[at];
        for (int i = 0; i < 8; i++) {
            found = ((Reference<?>) found).get();
            if (found == null) {
                chains[at] = chain(at);  // memory was short; a soft reference may go, half a chain may not be wrong
                return;
            }
        }
        ((Stress.Node) found).intact(at);
    }

    private void step(SplittableRandom random) {
        for (int i = 0; i < 256; i++) {
            int at = random.nextInt(nodes.length);
            if (at % 3 != 2) {
                Stress.check(direct[at].get() == nodes[at], "reference %d lost its referent", at);
            }
            if (random.nextInt(8) == 0) {
                set(at);
            }
            checkChain(random.nextInt(chains.length));
        }
        while (QUEUE.poll() != null) {
            continue;
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var test = new ManyReferences(stress.count("count", 300_000));
        stress.collectDuring(6, test::step);
        for (int i = 0; i < test.nodes.length; i++) {
            test.nodes[i].intact(i);
            Stress.check(i % 3 == 2 || test.direct[i].get() == test.nodes[i], "reference %d lost its referent", i);
        }
        for (int i = 0; i < test.chains.length; i++) {
            test.checkChain(i);
        }
        stress.ok("references %d chains %d", test.direct.length, test.chains.length);
    }
}
