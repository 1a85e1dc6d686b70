// SPDX-License-Identifier: Apache-2.0

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/**
 * Classes come and go while the tracer is told of thousands: some are defined and dropped, some redefined, which leaves
 * classes of the JVM's own to be freed, and safepoints are asked for all the time.
 *
 * @flags -Xms192m -Xmx192m -Djdk.attach.allowAttachSelf=true
 * @traces 8
 * @log made way for [1-9]\d* safepoints
 */
public final class ClassesInMotion {
    private static final int FIELDS = 6;
    private static final int FAMILY = 100;
    private static final int KEPT = 50;

    /** A class with one block of references, the object that holds it, and what its fields must hold. */
    private record Instance(Object object, long id) {
        void check() throws ReflectiveOperationException {
            for (int i = 0; i < FIELDS; i++) {
                ((Stress.Node) object.getClass().getField("f" + i).get(object)).intact(id + i);
            }
        }
    }

    private final List<Instance> settled = new ArrayList<>();
    private final ArrayDeque<Instance> passing = new ArrayDeque<>();
    private final Map<String, byte[]> redefined = new HashMap<>();
    private final List<Class<?>> targets = new ArrayList<>();
    private long defined;

    /** Instances and metadata are of one size whichever fields are references, so that one class can take another's place. */
    private static byte[] bytes(String name, int references) {
        var bytes = new ClassBytes(name, "java.lang.Object");
        for (int i = 0; i < FIELDS; i++) {
            bytes.field("f" + i, i < references ? "Ljava/lang/Object;" : "I");
        }
        return bytes.bytes();
    }

    private static Instance instance(Class<?> type, long id) throws ReflectiveOperationException {
        Object object = type.getConstructor().newInstance();
        for (int i = 0; i < FIELDS; i++) {
            type.getField("f" + i).set(object, new Stress.Node(id + i, null));
        }
        return new Instance(object, id);
    }

    private ClassesInMotion(int classes) throws ReflectiveOperationException {
        for (int i = 0; i < classes; i += FAMILY) {
            var family = new HashMap<String, byte[]>();
            for (int j = i; j < Math.min(i + FAMILY, classes); j++) {
                family.put("gen.S" + j, bytes("gen.S" + j, FIELDS));
            }
            ClassLoader loader = new ClassBytes.Loader(family, null);
            for (String name : family.keySet()) {
                settled.add(instance(Class.forName(name, true, loader), settled.size()));
            }
        }
        for (int i = 0; i < 8; i++) {
            redefined.put("gen.R" + i, bytes("gen.R" + i, 1));
        }
        ClassLoader loader = new ClassBytes.Loader(redefined, null);
        for (String name : redefined.keySet()) {
            targets.add(Class.forName(name, true, loader));
        }
    }

    /** A loader and its class, the oldest of which is dropped. */
    private void define(SplittableRandom random) throws ReflectiveOperationException {
        String name = "gen.P" + defined;
        Class<?> type = Class.forName(name, true, new ClassBytes.Loader(Map.of(name, bytes(name, FIELDS)), null));
        passing.add(instance(type, defined++));
        if (passing.size() > KEPT) {
            passing.remove().check();
        }
        settled.get(random.nextInt(settled.size())).check();
    }

    private void redefine(SplittableRandom random) throws Exception {
        Class<?> type = targets.get(random.nextInt(targets.size()));
        Redefinition.redefine(type, redefined.get(type.getName()));
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(100_000);
        Redefinition.prepare();
        var test = new ClassesInMotion(stress.count("classes", 6_000));
        stress.collectDuring(16, test::define, test::redefine, random -> Thread.getAllStackTraces());
        for (Instance instance : test.settled) {
            instance.check();
        }
        for (Instance instance : test.passing) {
            instance.check();
        }
        stress.ok("settled %d defined %d", test.settled.size(), test.defined);
    }
}
