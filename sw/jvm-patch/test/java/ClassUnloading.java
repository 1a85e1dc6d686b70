// SPDX-License-Identifier: Apache-2.0

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Class loaders that are made, held by a single thread of references and dropped, while marking runs.
 *
 * A loader stays alive through whichever one of these is left: itself, a class, an array class, an instance of a class
 * without references, an array instance. Its classes' statics, reachable through mirrors alone, must then be whole.
 * Dropped loaders must really go and give their metaspace back.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 6
 */
public final class ClassUnloading {
    private static final int CLASSES = 8;
    private static final int CHAIN = 6;

    /** One loader, held by `thread` alone. */
    private static final class Family {
        final int id;
        final Object thread;
        final WeakReference<ClassLoader> loader;

        Family(int id, int kind) throws ReflectiveOperationException {
            this.id = id;
            var loader = new ClassBytes.Loader(classes(), ClassUnloading.class.getClassLoader());
            loader.held = new Stress.Node(-id, null);
            Class<?> leaf = null;
            for (int i = 0; i < CLASSES; i++) {
                Class<?> generated = Class.forName("gen.C" + i, true, loader);
                Stress.Node chain = null;
                for (int j = 0; j < CHAIN; j++) {
                    chain = new Stress.Node(idOf(id, i, j), chain);
                }
                generated.getField("keep").set(null, chain);
                Object instance = generated.getConstructor().newInstance();
                generated.getField("own").set(instance, new Stress.Node(idOf(id, i, CHAIN), null));
                generated.getField("instance").set(null, instance);
                leaf = generated;
            }
            Class<?> bare = Class.forName("gen.Bare", true, loader);
            this.loader = new WeakReference<>(loader);
            switch (kind) {
                case 0: thread = loader; break;
                case 1: thread = leaf; break;
                case 2: thread = leaf.arrayType().arrayType(); break;
                case 3: thread = bare.getConstructor().newInstance(); break;
                case 4: thread = java.lang.reflect.Array.newInstance(bare, 0); break;
                default: thread = java.lang.reflect.Array.newInstance(leaf, 3, 0); break;
            }
        }

        private static long idOf(int family, int index, int position) {
            return ((long) family * CLASSES + index) * (CHAIN + 1) + position;
        }

        void intact() throws ReflectiveOperationException {
            ClassLoader found = loader.get();
            Stress.check(found != null, "family %d: the loader is gone while %s is held", id, thread.getClass());
            ((ClassBytes.Loader) found).held.intact(-id);
            for (int i = 0; i < CLASSES; i++) {
                Class<?> generated = Class.forName("gen.C" + i, true, found);
                int left = CHAIN;
                for (var node = (Stress.Node) generated.getField("keep").get(null); node != null; node = node.next) {
                    node.intact(idOf(id, i, --left));
                }
                Stress.check(left == 0, "family %d class %d: the static chain ends %d nodes early", id, i, left);
                Object instance = generated.getField("instance").get(null);
                ((Stress.Node) generated.getField("own").get(instance)).intact(idOf(id, i, CHAIN));
            }
        }
    }

    private static HashMap<String, byte[]> bytes;

    private static HashMap<String, byte[]> classes() {
        if (bytes == null) {
            var made = new HashMap<String, byte[]>();
            String parent = "java.lang.Object";
            for (int i = 0; i < CLASSES; i++) {
                made.put("gen.C" + i, new ClassBytes("gen.C" + i, parent)
                    .staticField("keep", "Ljava/lang/Object;").staticField("instance", "Ljava/lang/Object;")
                    .field("pad" + i, "J").field("own", "Ljava/lang/Object;").bytes());
                parent = "gen.C" + i;
            }
            made.put("gen.Bare", new ClassBytes("gen.Bare", "java.lang.Object").field("value", "I").bytes());
            bytes = made;
        }
        return bytes;
    }

    private final Family[] families;
    private final List<WeakReference<ClassLoader>> dropped = new ArrayList<>();
    private final AtomicInteger made = new AtomicInteger();

    private ClassUnloading(int count) throws ReflectiveOperationException {
        families = new Family[count];
        for (int i = 0; i < count; i++) {
            families[i] = new Family(made.incrementAndGet(), i % 6);
        }
    }

    private void step(SplittableRandom random) throws ReflectiveOperationException {
        for (int i = 0; i < 4; i++) {
            Family checked = families[random.nextInt(families.length)];
            checked.intact();
            // The loader's only reference moves: from a place that marking may have passed to one that it has not.
            int a = random.nextInt(families.length);
            int b = random.nextInt(families.length);
            Family moved = families[a];
            families[a] = families[b];
            families[b] = moved;
        }
        int at = random.nextInt(families.length);
        dropped.add(families[at].loader);
        families[at] = new Family(made.incrementAndGet(), random.nextInt(6));
    }

    private static long metaspaceUsed() {
        for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
            if (pool.getName().equals("Metaspace")) {
                return pool.getUsage().getUsed();
            }
        }
        throw new AssertionError("the VM has no memory pool called Metaspace");
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(150_000);
        var test = new ClassUnloading(stress.count("count", 60));
        stress.collectDuring(10, test::step);
        for (Family family : test.families) {
            family.intact();
        }
        boolean concurrently = Stress.unloadsConcurrently();
        Stress.collectUntil(() -> {
            if (!concurrently) {
                Stress.fullCollection();
            }
            return test.dropped.stream().allMatch(loader -> loader.refersTo(null));
        }, 40, "every dropped loader goes");
        long held = metaspaceUsed();
        for (Family family : test.families) {
            family.intact();
        }
        // The dead of one or two rounds may still wait for their cycle; a leak keeps the loaders of all rounds.
        int factor = 5;
        for (int round = 0; round < factor * 2; round++) {
            for (int i = 0; i < test.families.length; i++) {
                test.families[i] = new Family(test.made.incrementAndGet(), i % 6);
            }
            if (concurrently) {
                System.gc();
            } else {
                Stress.fullCollection();
            }
        }
        long later = metaspaceUsed();
        Stress.check(later < held * factor, "metaspace grew from %d to %d bytes with as many live loaders", held, later);
        stress.ok("loaders %d metaspace %d", test.made.get(), later);
    }
}
