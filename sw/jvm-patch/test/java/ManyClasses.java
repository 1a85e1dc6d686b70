// SPDX-License-Identifier: Apache-2.0

import java.util.HashMap;
import java.util.SplittableRandom;

/**
 * Thousands of classes that nothing but one instance keeps alive, instances moving while marking runs: every class is
 * seen, and every class-loader data is visited, once a cycle. Loaders are shared by {@code family} classes each.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 4
 */
public final class ManyClasses {
    private final Object[] instances;
    private final int family;

    private ManyClasses(int classes, int family) throws ReflectiveOperationException {
        this.family = family;
        instances = new Object[classes];
        ClassLoader loader = null;
        for (int i = 0; i < classes; i++) {
            if (i % family == 0) {
                var bytes = new HashMap<String, byte[]>();
                for (int j = i; j < Math.min(i + family, classes); j++) {
                    bytes.put("gen.M" + j, new ClassBytes("gen.M" + j, "java.lang.Object")
                        .staticField("keep", "Ljava/lang/Object;").field("own", "Ljava/lang/Object;").bytes());
                }
                loader = new ClassBytes.Loader(bytes, null);
            }
            Class<?> generated = Class.forName("gen.M" + i, true, loader);
            generated.getField("keep").set(null, new Stress.Node(i, null));
            instances[i] = generated.getConstructor().newInstance();
            generated.getField("own").set(instances[i], new Stress.Node(~i, null));
        }
    }

    private void check(Object instance) throws ReflectiveOperationException {
        Class<?> generated = instance.getClass();
        long id = Long.parseLong(generated.getName().substring(5));
        ((Stress.Node) generated.getField("keep").get(null)).intact(id);
        ((Stress.Node) generated.getField("own").get(instance)).intact(~id);
    }

    private void step(SplittableRandom random) throws ReflectiveOperationException {
        for (int i = 0; i < 64; i++) {
            int a = random.nextInt(instances.length);
            int b = random.nextInt(instances.length);
            Object moved = instances[a];
            instances[a] = instances[b];
            instances[b] = moved;
            check(moved);
            // A fresh instance takes the old one's place: the class's last old instance dies in mid-cycle.
            Object fresh = moved.getClass().getConstructor().newInstance();
            fresh.getClass().getField("own").set(fresh, moved.getClass().getField("own").get(moved));
            instances[b] = fresh;
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(200_000);
        var test = new ManyClasses(stress.count("classes", 4_000), stress.count("family", 7));
        stress.collectDuring(6, test::step);
        for (Object instance : test.instances) {
            test.check(instance);
        }
        stress.ok("classes %d loaders %d", test.instances.length, -Math.floorDiv(-test.instances.length, test.family));
    }
}
