// SPDX-License-Identifier: Apache-2.0

import java.util.IdentityHashMap;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Objects that come from the class-data archive: strings, mirrors, the module graph, caches. They are locked, hashed,
 * pointed at and pointing elsewhere like others, and what hangs on them must survive.
 *
 * @flags -Xms96m -Xmx96m
 * @traces 6
 */
public final class ArchivedObjects {
    private static final List<Class<?>> CLASSES = List.of(Object.class, String.class, Integer.class, Thread.class,
        java.util.HashMap.class, java.util.ArrayList.class, int[].class, Object[].class, Class.class);
    private static final String[] CONSTANTS = {"", "java", "hashCode", "java.base", "toString", "value", "main"};

    private final IdentityHashMap<Object, Stress.Node> beside = new IdentityHashMap<>();
    private final Integer[] cached = new Integer[256];
    private final int[] hashes = new int[256];
    private final int modules;

    private ArchivedObjects() {
        long id = 0;
        for (Class<?> klass : CLASSES) {
            beside.put(klass, new Stress.Node(id++, null));
        }
        for (String constant : CONSTANTS) {
            beside.put(constant.intern(), new Stress.Node(id++, null));
        }
        for (Module module : ModuleLayer.boot().modules()) {
            beside.put(module, new Stress.Node(id++, null));
        }
        modules = ModuleLayer.boot().modules().size();
        for (int i = 0; i < 256; i++) {
            cached[i] = Integer.valueOf(i - 128);
            hashes[i] = System.identityHashCode(cached[i]);
        }
    }

    private void step(SplittableRandom random) {
        for (int i = 0; i < 64; i++) {
            int at = random.nextInt(256);
            Integer value = Integer.valueOf(at - 128);
            Stress.check(value == cached[at] && value == at - 128, "the cached integer %d changed", at - 128);
            Stress.check(System.identityHashCode(value) == hashes[at], "the hash of %d changed", value);
            Class<?> klass = CLASSES.get(random.nextInt(CLASSES.size()));
            synchronized (klass) {
                beside.get(klass).intact();
            }
            String constant = CONSTANTS[random.nextInt(CONSTANTS.length)];
            Stress.check(new String(constant.toCharArray()).intern() == constant, "%s was interned twice", constant);
            beside.get(constant).intact();
        }
        for (Module module : ModuleLayer.boot().modules()) {
            Stress.check(module.getLayer() == ModuleLayer.boot(), "%s left the boot layer", module);
            Stress.check(module.getDescriptor().name().equals(module.getName()), "%s lost its descriptor", module);
        }
        Stress.check(ModuleLayer.boot().configuration().findModule("java.base").isPresent(), "java.base is gone");
        // Reflection data hang on archived mirrors by soft references.
        Stress.check(CLASSES.get(random.nextInt(3)).getDeclaredMethods().length > 0, "methods are gone");
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(200_000);
        var test = new ArchivedObjects();
        stress.collectDuring(8, test::step);
        for (Stress.Node node : test.beside.values()) {
            node.intact();
        }
        Stress.check(ModuleLayer.boot().modules().size() == test.modules, "the boot layer lost modules");
        stress.ok("objects %d modules %d", test.beside.size(), test.modules);
    }
}
