// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;

/**
 * The extremes of shape: a list a million deep, an array a million wide, arrays of arrays, a tree of tiny arrays, and
 * arrays of every primitive type and every small length, all read and partly rebuilt while marking runs.
 *
 * @flags -Xms224m -Xmx224m
 * @traces 6
 */
public final class ListsAndArrays {
    private static final int LENGTHS = 70;

    private final Stress.Node[] wide;
    private final Object[][][] cube;
    private final Object[] tree;
    private final Object[] primitives = new Object[8 * LENGTHS];
    private Stress.Node list;
    private final int depth;

    private ListsAndArrays(int size) {
        depth = size;
        for (int i = 0; i < depth; i++) {
            list = new Stress.Node(i, list);
        }
        wide = new Stress.Node[size];
        for (int i = 0; i < size; i += 3) {
            wide[i] = new Stress.Node(i, null);
        }
        cube = new Object[40][40][40];
        for (int i = 0; i < 40 * 40 * 40; i += 7) {
            cube[i / 1600][i / 40 % 40][i % 40] = new Stress.Node(i, null);
        }
        tree = tree(14, 1);
        for (int i = 0; i < primitives.length; i++) {
            primitives[i] = primitive(i);
        }
    }

    private static Object[] tree(int depth, long id) {
        if (depth == 0) {
            return new Object[] {new Stress.Node(id, null)};
        }
        return new Object[] {tree(depth - 1, 2 * id), tree(depth - 1, 2 * id + 1)};
    }

    private static int checkTree(Object[] node, long id) {
        if (node.length == 1) {
            ((Stress.Node) node[0]).intact(id);
            return 1;
        }
        return checkTree((Object[]) node[0], 2 * id) + checkTree((Object[]) node[1], 2 * id + 1);
    }

    private static Object primitive(int at) {
        int length = at / 8;
        Class<?>[] types = {boolean.class, byte.class, char.class, short.class, int.class, float.class, long.class,
            double.class};
        Object array = java.lang.reflect.Array.newInstance(types[at % 8], length);
        for (int i = 0; i < length; i++) {
            if (at % 8 == 0) {
                java.lang.reflect.Array.setBoolean(array, i, (at + i) % 3 == 0);
            } else if (at % 8 == 2) {
                java.lang.reflect.Array.setChar(array, i, (char) (at + i));
            } else {
                java.lang.reflect.Array.setByte(array, i, (byte) ((at + i) % 100));
            }
        }
        return array;
    }

    private void checkPrimitive(int at) {
        Object array = primitives[at];
        Stress.check(java.lang.reflect.Array.getLength(array) == at / 8, "primitive array %d has another length", at);
        for (int i = 0; i < at / 8; i++) {
            boolean same;
            if (at % 8 == 0) {
                same = java.lang.reflect.Array.getBoolean(array, i) == ((at + i) % 3 == 0);
            } else if (at % 8 == 2) {
                same = java.lang.reflect.Array.getChar(array, i) == (char) (at + i);
            } else {
                same = java.lang.reflect.Array.getDouble(array, i) == (at + i) % 100;
            }
            Stress.check(same, "primitive array %d differs at %d", at, i);
        }
    }

    private void step(SplittableRandom random) {
        for (int i = 0; i < 64; i++) {
            int at = random.nextInt(primitives.length);
            checkPrimitive(at);
            primitives[at] = primitive(at);
            int cell = random.nextInt(wide.length / 3) * 3;
            wide[cell] = new Stress.Node(wide[cell].intact(cell).id, null);
            int point = random.nextInt(40 * 40 * 40 / 7) * 7;
            Object[] row = cube[point / 1600][point / 40 % 40];
            ((Stress.Node) row[point % 40]).intact(point);
            cube[point / 1600][point / 40 % 40] = row.clone();
        }
        // The front of the deep list is cut off and grows back behind marking's back.
        Stress.Node at = list;
        for (int i = 0; i < 1000; i++) {
            at = at.intact(depth - 1L - i).next;
        }
        list = null;
        for (int i = depth - 1000; i < depth; i++) {
            at = new Stress.Node(i, at);
        }
        list = at;
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var test = new ListsAndArrays(stress.count("count", 700_000));
        stress.collectDuring(6, test::step);
        int left = test.depth;
        for (Stress.Node node = test.list; node != null; node = node.next) {
            node.intact(--left);
        }
        Stress.check(left == 0, "the list ends %d nodes early", left);
        for (int i = 0; i < test.wide.length; i++) {
            Stress.check((test.wide[i] != null) == (i % 3 == 0), "wide element %d", i);
            if (test.wide[i] != null) {
                test.wide[i].intact(i);
            }
        }
        for (int i = 0; i < 40 * 40 * 40; i += 7) {
            ((Stress.Node) test.cube[i / 1600][i / 40 % 40][i % 40]).intact(i);
        }
        Stress.check(checkTree(test.tree, 1) == 1 << 14, "the tree lost leaves");
        for (int i = 0; i < test.primitives.length; i++) {
            test.checkPrimitive(i);
        }
        stress.ok("depth %d width %d", test.depth, test.wide.length);
    }
}
