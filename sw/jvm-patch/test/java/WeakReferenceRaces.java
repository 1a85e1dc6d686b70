// SPDX-License-Identifier: Apache-2.0

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Weak references whose referents lose and regain their only strong reference while marking runs.
 *
 * get() during marking must keep what it returned; a strongly held referent is never cleared; a reference is enqueued
 * once, and never after clear(); its own strong fields are followed like anybody's.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 6
 */
public final class WeakReferenceRaces {
    private static final ReferenceQueue<Stress.Node> QUEUE = new ReferenceQueue<>();

    private static final class Ref extends WeakReference<Stress.Node> {
        final long id;
        final Stress.Node beside;
        final AtomicInteger enqueued = new AtomicInteger();
        volatile boolean cleared;

        Ref(Stress.Node referent) {
            super(referent, QUEUE);
            id = referent.id;
            beside = new Stress.Node(~referent.id, null);
        }
    }

    /** One referent's places. Its lock orders the mutators; the collector does not know it. */
    private static final class Slot {
        Stress.Node strong;
        Ref weak;
    }

    private final Slot[] slots;
    private final ArrayList<Ref> dropped = new ArrayList<>();
    private final AtomicInteger nextId = new AtomicInteger();
    private final AtomicInteger regained = new AtomicInteger();
    private final AtomicInteger lost = new AtomicInteger();

    private WeakReferenceRaces(int count) {
        slots = new Slot[count];
        for (int i = 0; i < count; i++) {
            slots[i] = new Slot();
            refill(slots[i]);
        }
    }

    private void refill(Slot slot) {
        slot.strong = new Stress.Node(nextId.incrementAndGet(), null);
        slot.weak = new Ref(slot.strong);
    }

    private void step(SplittableRandom random) {
        for (int i = 0; i < 256; i++) {
            Slot slot = slots[random.nextInt(slots.length)];
            synchronized (slot) {
                move(slot, random.nextInt(16));
            }
        }
    }

    private void move(Slot slot, int choice) {
        Ref ref = slot.weak;
        if (slot.strong != null) {
            Stress.check(ref.refersTo(slot.strong), "reference %d lost a strongly held referent", ref.id);
            slot.strong.intact(ref.id);
            if (choice < 10) {
                slot.strong = null;
            } else if (choice == 10) {
                Stress.Node kept = slot.strong;
                ref.cleared = true;
                ref.clear();
                Reference.reachabilityFence(kept);
                Stress.check(ref.get() == null, "reference %d has a referent after clear()", ref.id);
                refill(slot);
            } else if (choice == 11) {
                Stress.check(ref.enqueue(), "reference %d could not be enqueued", ref.id);
                drop(slot);
            }
            return;
        }
        Stress.Node found = ref.get();
        ref.beside.intact(~ref.id);
        if (found == null) {
            lost.incrementAndGet();
            drop(slot);
        } else if (choice < 12) {
            slot.strong = found.intact(ref.id);
            regained.incrementAndGet();
        }
    }

    private void drop(Slot slot) {
        synchronized (dropped) {
            dropped.add(slot.weak);
        }
        refill(slot);
    }

    private void drain(long millis) throws InterruptedException {
        Reference<? extends Stress.Node> polled;
        while ((polled = millis == 0 ? QUEUE.poll() : QUEUE.remove(millis)) != null) {
            Ref ref = (Ref) polled;
            Stress.check(ref.enqueued.incrementAndGet() == 1, "reference %d was enqueued twice", ref.id);
            Stress.check(!ref.cleared, "reference %d was enqueued after clear()", ref.id);
            Stress.check(ref.get() == null, "reference %d was enqueued with a referent", ref.id);
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(150_000);
        var races = new WeakReferenceRaces(stress.count("count", 60_000));
        stress.collectDuring(8, races::step, races::step, random -> races.drain(10));

        for (Slot slot : races.slots) {
            if (slot.strong != null) {
                slot.strong.intact(slot.weak.id);
            }
            slot.strong = null;
            races.dropped.add(slot.weak);
        }
        Stress.collectUntil(() -> {
            races.drain(50);
            return races.dropped.stream().allMatch(ref -> ref.enqueued.get() == 1);
        }, 40, "every dropped referent is found dead and its reference enqueued");
        Stress.check(races.regained.get() > 0 && races.lost.get() > 0, "nothing raced: regained %d, lost %d",
            races.regained.get(), races.lost.get());
        stress.ok("weak %d regained %d lost %d", races.dropped.size(), races.regained.get(), races.lost.get());
    }
}
