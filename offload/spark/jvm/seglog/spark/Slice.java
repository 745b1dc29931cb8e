package seglog.spark;

/** A run of bytes within an array. */
record Slice(byte[] bytes, int start, int length) {
    Slice {
        java.util.Objects.checkFromIndexSize(start, length, bytes.length);
    }

    static Slice of(byte[] bytes) {
        return new Slice(bytes, 0, bytes.length);
    }
}
