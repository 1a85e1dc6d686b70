// SPDX-License-Identifier: Apache-2.0

import java.util.SplittableRandom;

/**
 * Interned strings, small and of a hundred kilobytes, held by the string table's weak entries and by mutators that look
 * them up during marking; and equal strings for deduplication to merge. An interned string that anybody holds is the
 * one that intern() gives.
 *
 * @flags -Xms128m -Xmx128m -XX:+UseStringDeduplication -XX:StringDeduplicationAgeThreshold=1
 * @traces 8
 */
public final class StringTables {
    private static final String LONG = "merapi".repeat(20_000);

    private final String[] interned;
    private final String[] copies;

    private StringTables(int count) {
        interned = new String[count];
        copies = new String[count];
        for (int i = 0; i < count; i++) {
            interned[i] = text(i).intern();
            copies[i] = text(i % 97);
        }
    }

    private static String text(int i) {
        return i % 500 == 0 ? i + LONG : "string " + i * 31L;
    }

    private void step(SplittableRandom random) {
        for (int i = 0; i < 128; i++) {
            int at = random.nextInt(interned.length);
            if (interned[at] == null) {
                interned[at] = text(at).intern();  // perhaps the dead one's successor, perhaps itself, just saved
            } else {
                Stress.check(text(at).intern() == interned[at], "string %d was interned twice", at);
                if (random.nextInt(3) == 0) {
                    interned[at] = null;
                }
            }
            if (interned[at] != null) {
                Stress.check(interned[at].equals(text(at)), "interned string %d changed", at);
            }
            int copy = random.nextInt(copies.length);
            Stress.check(copies[copy].equals(text(copy % 97)), "string %d changed", copy);
            copies[copy] = text(copy % 97);
        }
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(200_000);
        var test = new StringTables(stress.count("count", 60_000));
        stress.collectDuring(10, test::step);
        int left = 0;
        for (int i = 0; i < test.interned.length; i++) {
            if (test.interned[i] != null) {
                Stress.check(test.interned[i].equals(text(i)), "interned string %d changed", i);
                Stress.check(text(i).intern() == test.interned[i], "string %d was interned twice", i);
                left++;
            }
            Stress.check(test.copies[i].equals(text(i % 97)), "string %d changed", i);
        }
        stress.ok("interned %d copies %d", left, test.copies.length);
    }
}
