// SPDX-License-Identifier: Apache-2.0

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Instances with every number of reference blocks: inheritance up to {@code depth} classes deep, each class adding
 * primitives between its references and its parent's, and classes with hundreds of references in a row. Every field is
 * the only way to its node; nodes move between fields while marking runs.
 *
 * @flags -Xms192m -Xmx192m
 * @traces 6
 */
public final class ReferenceBlocks {
    /** An object and its reference fields; ids[i] is what fields[i] must hold. */
    private static final class Holder {
        final Object object;
        final Field[] fields;
        final long[] ids;

        Holder(Object object, Field[] fields) {
            this.object = object;
            this.fields = fields;
            this.ids = new long[fields.length];
        }

        void check(int at) throws IllegalAccessException {
            var node = (Stress.Node) fields[at].get(object);
            Stress.check(node != null, "%s.%s is null", object.getClass(), fields[at].getName());
            node.intact(ids[at]).next.intact(~ids[at]);
        }
    }

    private final List<Holder> holders = new ArrayList<>();

    private ReferenceBlocks(int depth, int instances) throws ReflectiveOperationException {
        var bytes = new HashMap<String, byte[]>();
        var names = new ArrayList<String>();
        // Two references and a long per class keep the blocks apart with 4-byte and with 8-byte references alike.
        String parent = "java.lang.Object";
        for (int i = 0; i < depth; i++) {
            String name = "gen.Deep" + i;
            bytes.put(name, new ClassBytes(name, parent).field("x" + i, "J").field("a" + i, "Ljava/lang/Object;")
                .field("b" + i, "Ljava/lang/Object;").bytes());
            names.add(name);
            parent = name;
        }
        for (int width : new int[] {0, 1, 2, 3, 7, 31, 64, 255, 700}) {
            String name = "gen.Wide" + width;
            var wide = new ClassBytes(name, "java.lang.Object").field("i", "I").field("s", "S").field("b", "B");
            for (int i = 0; i < width; i++) {
                wide.field("r" + i, "Ljava/lang/Object;");
            }
            bytes.put(name, wide.bytes());
            names.add(name);
        }
        var loader = new ClassBytes.Loader(bytes, ReferenceBlocks.class.getClassLoader());
        long id = 0;
        for (String name : names) {
            Class<?> generated = Class.forName(name, true, loader);
            var fields = new ArrayList<Field>();
            for (Field field : generated.getFields()) {
                if (!field.getType().isPrimitive()) {
                    fields.add(field);
                }
            }
            for (int i = 0; i < instances; i++) {
                Object object = generated.getConstructor().newInstance();
                var holder = new Holder(object, fields.toArray(new Field[0]));
                for (int j = 0; j < holder.ids.length; j++) {
                    holder.ids[j] = id;
                    holder.fields[j].set(object, new Stress.Node(id, new Stress.Node(~id, null)));
                    id++;
                }
                if (holder.ids.length > 0) {
                    holders.add(holder);
                }
            }
        }
    }

    private void step(SplittableRandom random) throws IllegalAccessException {
        for (int i = 0; i < 256; i++) {
            Holder a = holders.get(random.nextInt(holders.size()));
            Holder b = holders.get(random.nextInt(holders.size()));
            int from = random.nextInt(a.ids.length);
            int to = random.nextInt(b.ids.length);
            a.check(from);
            b.check(to);
            Object moved = a.fields[from].get(a.object);
            Object back = b.fields[to].get(b.object);
            a.fields[from].set(a.object, null);
            b.fields[to].set(b.object, moved);
            a.fields[from].set(a.object, back);
            long id = a.ids[from];
            a.ids[from] = b.ids[to];
            b.ids[to] = id;
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(200_000);
        var test = new ReferenceBlocks(stress.count("depth", 40), stress.count("instances", 60));
        stress.collectDuring(8, test::step);
        int fields = 0;
        for (Holder holder : test.holders) {
            for (int i = 0; i < holder.ids.length; i++) {
                holder.check(i);
                fields++;
            }
        }
        stress.ok("holders %d fields %d", test.holders.size(), fields);
    }
}
