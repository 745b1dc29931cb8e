package seglog.spark;

import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The labels that a task met last, as Spark wants them. Labels repeat, so most rows cost a comparison: no copy, no
 * object and no check of UTF-8.
 *
 * <p>A label's hash chooses its place. Another label of the same place replaces it.
 */
final class Labels {
    private static final int PLACES = 4096;
    private static final long FACTOR = 0x9E3779B97F4A7C15L;

    private final byte[][] bytes = new byte[PLACES][];
    private final UTF8String[] texts = new UTF8String[PLACES];

    /** Return the label in {@code length} bytes from {@code start}; null if it is not UTF-8. */
    UTF8String label(byte[] from, int start, int length) {
        int place = place(from, start, length);
        byte[] known = bytes[place];
        if (known != null && Arrays.equals(known, 0, known.length, from, start, start + length)) {
            return texts[place];
        }
        if (!Utf8.isValid(from, start, length)) {
            return null;
        }
        bytes[place] = Arrays.copyOfRange(from, start, start + length);
        texts[place] = UTF8String.fromBytes(bytes[place]);
        return texts[place];
    }

    private static int place(byte[] from, int start, int length) {
        long hash = length;
        int at = start;
        for (int end = start + length - Long.BYTES; at <= end; at += Long.BYTES) {
            hash = (hash ^ Words.littleLong(from, at)) * FACTOR;
            hash ^= hash >>> 29;
        }
        for (; at < start + length; at++) {
            hash = (hash ^ from[at]) * FACTOR;
        }
        return (int) (hash >>> 40) & PLACES - 1;
    }
}
