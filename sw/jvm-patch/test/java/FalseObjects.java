// SPDX-License-Identifier: Apache-2.0

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * A large array of numbers, each of which is the klass word and the length of an array of references that goes far
 * beyond the heap's end: from every place in it on the memory looks like such an array. With {@code beyond=N} the
 * klass word is larger by N, and that of no class.
 *
 * @flags -Xms128m -Xmx128m
 * @traces 3
 */
public final class FalseObjects {
    private static final int LENGTH = 0x1000_0000;

    /** The 32 bits at offset 8 of an array of references, where objects have their klass word. */
    private static long klassWord() throws Exception {
        Class<?> type = Class.forName("sun.misc.Unsafe");
        Field instance = type.getDeclaredField("theUnsafe");
        instance.setAccessible(true);
        Method read = type.getMethod("getInt", Object.class, long.class);
        return Integer.toUnsignedLong((int) read.invoke(instance.get(null), new Object[1], 8L));
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        stress.ballast(200_000);
        long number = (long) LENGTH << 32 | klassWord() + stress.count("beyond", 0);
        var numbers = new long[stress.count("count", 400_000)];
        Arrays.fill(numbers, number);
        stress.collectDuring(5, random -> Thread.sleep(1));
        for (int i = 0; i < numbers.length; i++) {
            Stress.check(numbers[i] == number, "number %d is %x", i, numbers[i]);
        }
        stress.ok("numbers %d", numbers.length);
    }
}
