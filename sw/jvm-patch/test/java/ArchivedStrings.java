// SPDX-License-Identifier: Apache-2.0

import java.io.DataInputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Strings of the class-data archive that nothing refers to until the string table gives them out in mid-cycle:
 * constants of classes that this program does not load.
 *
 * @flags -Xms48m -Xmx48m
 * @traces 6
 */
public final class ArchivedStrings {
    private static final int STRING = 8;

    /** The string constants of a class file (JVMS 4.4). */
    private static void collect(Path file, List<char[]> found) throws IOException {
        try (var in = new DataInputStream(Files.newInputStream(file))) {
            in.skipBytes(8);
            int count = in.readUnsignedShort();
            var text = new String[count];
            var constants = new ArrayList<Integer>();
            for (int i = 1; i < count; i++) {
                int tag = in.readUnsignedByte();
                switch (tag) {
                    case 1 -> text[i] = in.readUTF();
                    case STRING -> constants.add(in.readUnsignedShort());
                    case 7, 16, 19, 20 -> in.skipBytes(2);
                    case 15 -> in.skipBytes(3);
                    case 5, 6 -> {
                        in.skipBytes(8);
                        i++;
                    }
                    default -> in.skipBytes(4);
                }
            }
            for (int constant : constants) {
                found.add(text[constant].toCharArray());
            }
        }
    }

    private final List<char[]> constants;
    private final Object[] taken;
    private int next;

    private ArchivedStrings(List<char[]> constants) {
        this.constants = constants;
        this.taken = new Object[constants.size()];
    }

    private void step(SplittableRandom random) throws Exception {
        for (int i = 0; i < 20 && next < taken.length; i++, next++) {
            taken[next] = new String(constants.get(next)).intern();
        }
        int at = random.nextInt(Math.max(next, 1));
        Stress.check(next == 0 || new String(constants.get(at)).equals(taken[at]), "constant %d changed", at);
        Thread.sleep(1);
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var constants = new ArrayList<char[]>();
        try (var files = Files.walk(FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules/java.base/sun"))) {
            for (Path file : (Iterable<Path>) files::iterator) {
                if (file.toString().endsWith(".class")) {
                    collect(file, constants);
                }
            }
        }
        var test = new ArchivedStrings(constants);
        int cycles = stress.count("cycles", 8);
        stress.during(() -> {
            for (int i = 0; i < cycles; i++) {
                System.gc();
            }
        }, test::step);
        stress.ok("strings %d of %d", test.next, constants.size());
    }
}
