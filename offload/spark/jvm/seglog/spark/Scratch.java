package seglog.spark;

/**
 * An array that one scan uses for one chunk after the other. A new array of 1 MiB for each chunk costs more than its
 * pages: G1 gives it regions of its own.
 */
final class Scratch {
    private byte[] bytes = new byte[0];

    /** Return an array of this size or more. The content of the last one is lost. */
    byte[] ofAtLeast(int size) {
        if (bytes.length < size) {
            bytes = new byte[size];
        }
        return bytes;
    }
}
