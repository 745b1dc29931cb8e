package seglog.spark;

/** The place of a chunk's entry lengths. The offset is from the trailer's first byte. */
record LengthsRef(long offset, long storedLength, long xxh3) {
    long end() {
        return offset + storedLength;
    }
}
