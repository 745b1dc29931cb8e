package seglog.spark;

/** A run of whole entries of a data object, for one ranged GET. {@code number} counts the segment's chunks from 0. */
record Chunk(
        int number,
        long offset,
        long storedLength,
        long rawLength,
        long firstSeq,
        long count,
        long minTsMs,
        long maxTsMs,
        long xxh3) {

    /** The bytes of a packed row of the chunk table. {@code offload/spark/messages.py} has the layout. */
    static final int ROW_BYTES = 56;

    /** Return the chunk of a row in a run of packed big-endian rows. */
    static Chunk unpack(byte[] rows, int row) {
        int at = row * ROW_BYTES;
        return new Chunk(
                Words.bigInt(rows, at),
                Words.bigLong(rows, at + 4),
                Words.bigInt(rows, at + 12) & 0xFFFFFFFFL,
                Words.bigInt(rows, at + 16) & 0xFFFFFFFFL,
                Words.bigLong(rows, at + 20),
                Words.bigInt(rows, at + 28) & 0xFFFFFFFFL,
                Words.bigLong(rows, at + 32),
                Words.bigLong(rows, at + 40),
                Words.bigLong(rows, at + 48));
    }

    long end() {
        return offset + storedLength;
    }
}
