// SPDX-License-Identifier: Apache-2.0

import java.util.Arrays;
import java.util.SplittableRandom;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * Native code holds arrays in place (the compression library works in critical sections), which delays young
 * collections and starts them from odd places while marking runs.
 *
 * @flags -Xms96m -Xmx96m
 * @traces 6
 */
public final class CriticalArrays {
    private static void pack(SplittableRandom random) throws Exception {
        var text = new byte[random.nextInt(20_000, 400_000)];
        for (int i = 0; i < text.length; i++) {
            text[i] = (byte) (i * i >>> 7);
        }
        var packed = new byte[text.length + 100];
        var deflater = new Deflater(1);
        deflater.setInput(text);
        deflater.finish();
        int length = deflater.deflate(packed);
        deflater.end();
        var unpacked = new byte[text.length];
        var inflater = new Inflater();
        inflater.setInput(packed, 0, length);
        int back = inflater.inflate(unpacked);
        inflater.end();
        Stress.check(back == text.length && Arrays.equals(text, unpacked), "%d bytes came back as %d", text.length, back);
    }

    public static void main(String[] args) throws Exception {
        var stress = new Stress(args);
        var ring = new Stress.Node[stress.count("count", 200_000)];
        Arrays.setAll(ring, i -> new Stress.Node(i, null));
        stress.collectDuring(8, CriticalArrays::pack, CriticalArrays::pack, random -> {
            for (int i = 0; i < 256; i++) {
                int at = random.nextInt(ring.length);
                ring[at] = new Stress.Node(ring[at].intact(at).id, null);
            }
        });
        for (int i = 0; i < ring.length; i++) {
            ring[i].intact(i);
        }
        stress.ok("nodes %d", ring.length);
    }
}
