// SPDX-License-Identifier: Apache-2.0

import java.lang.ref.Cleaner;
import java.lang.ref.WeakReference;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Long lists of Reference objects: those of Finalizer and Cleaner, and own ones whose links move from list to list while
 * marking runs. Each link is left to the host, which finds the next one in it.
 *
 * @flags -Xms160m -Xmx160m
 * @traces 4
 * @log "ahead":[0-9]{5}
 */
public final class ReferenceLists {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final AtomicInteger ENDED = new AtomicInteger();

    /** Its own next one apart, nothing leads to a link; its referent is held elsewhere if its id is even. */
    private static final class Link extends WeakReference<Stress.Node> {
        final int id;
        Link next;

        Link(int id, Stress.Node referent) {
            super(referent);
            this.id = id;
        }
    }

    private static final class Mortal {
        @Override
        @SuppressWarnings({"deprecation", "removal"})
        protected void finalize() {
            ENDED.incrementAndGet();
        }
    }

    private final Link[] lists = new Link[16];
    private final Stress.Node[] held;

    private ReferenceLists(int count) {
        held = new Stress.Node[count];
        for (int i = 0; i < count; i++) {
            var node = new Stress.Node(i, null);
            held[i] = i % 2 == 0 ? node : null;
            var link = new Link(i, node);
            link.next = lists[i * lists.length / count];
            lists[i * lists.length / count] = link;
        }
    }

    /** Moves the front of a list, links and all, to another. */
    private void move(SplittableRandom random) {
        int from = random.nextInt(lists.length);
        int to = random.nextInt(lists.length);
        if (from == to || lists[from] == null) {
            return;
        }
        Link last = lists[from];
        for (int i = random.nextInt(200); i > 0 && last.next != null; i--) {
            last = last.next;
        }
        Link rest = last.next;
        last.next = lists[to];
        lists[to] = lists[from];
        lists[from] = rest;
    }

    private void check() {
        var seen = new boolean[held.length];
        int length = 0;
        for (Link list : lists) {
            for (Link link = list; link != null; link = link.next) {
                Stress.check(!seen[link.id], "link %d is in two places", link.id);
                seen[link.id] = true;
                length++;
                Stress.Node referent = link.get();
                Stress.check(held[link.id] == null || referent == held[link.id], "referent %d was cleared while held", link.id);
                if (referent != null) {
                    referent.intact(link.id);
                }
            }
        }
        Stress.check(length == held.length, "%d of %d links are left", length, held.length);
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        int count = stress.count("count", 40_000);
        var lists = new ReferenceLists(count);
        var mortals = new Object[count];
        for (int i = 0; i < count; i++) {
            if (i % 2 == 0) {
                mortals[i] = new Mortal();
            } else {
                mortals[i] = new Object();
                CLEANER.register(mortals[i], ENDED::incrementAndGet);
            }
        }
        stress.collectDuring(6, random -> {
            for (int i = 0; i < 16; i++) {
                lists.move(random);
            }
        });
        lists.check();
        Stress.check(ENDED.get() == 0, "%d of the objects that are held were ended", ENDED.get());
        java.util.Arrays.fill(mortals, null);
        Stress.collectUntil(() -> ENDED.get() == count, 60, "every dropped object is finalized or cleaned");
        lists.check();
        stress.ok("links %d ended %d", count, ENDED.get());
    }
}
