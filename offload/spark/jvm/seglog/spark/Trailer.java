package seglog.spark;

/**
 * The trailer of an index object: a directory with a checksum, then the entry lengths of each chunk.
 *
 * <p>{@code offload/format/trailer.py} has the layout. The caller names the index object and where its trailer begins,
 * for the errors.
 */
final class Trailer {
    private static final int MAGIC = 0x53474C54;
    private static final int VERSION = 1;
    private static final int HEADER_BYTES = 12;
    private static final int ROW_BYTES = 12;
    private static final int CHECKSUM_BYTES = 8;
    private static final int LENGTH_BYTES = 4;

    private Trailer() {}

    /** Return how many bytes of a trailer come before the first chunk's lengths. */
    static long directoryLength(long chunkCount) {
        return HEADER_BYTES + ROW_BYTES * chunkCount + CHECKSUM_BYTES;
    }

    /** Return the places of all lengths. {@code front} has the directory, and perhaps more. */
    static LengthsRef[] directory(byte[] front, int chunkCount, String key, long at) {
        long end = directoryLength(chunkCount);
        if (front.length < end) {
            throw new InvalidIndex(
                    key, at, "its trailer begins with " + end + " bytes of directory, here are " + front.length);
        }
        int magic = Words.bigInt(front, 0);
        if (magic != MAGIC) {
            throw new InvalidIndex(key, at, String.format("0x%08X is not the magic of a trailer", magic));
        }
        int version = Words.bigInt(front, 4);
        if (version != VERSION) {
            throw new FormatUnsupported(key, "trailer version " + Integer.toUnsignedString(version));
        }
        int found = Words.bigInt(front, 8);
        if (found != chunkCount) {
            throw new InvalidIndex(
                    key, at, "its trailer is of " + Integer.toUnsignedString(found) + " chunks, not " + chunkCount);
        }
        int checked = (int) end - CHECKSUM_BYTES;
        if (Words.bigLong(front, checked) != XxHash3.hash(front, 0, checked)) {
            throw new InvalidIndex(key, at, "its trailer's checksum does not match");
        }
        return rows(front, chunkCount, end);
    }

    private static LengthsRef[] rows(byte[] front, int chunkCount, long end) {
        LengthsRef[] refs = new LengthsRef[chunkCount];
        long offset = end;
        for (int number = 0; number < chunkCount; number++) {
            int row = HEADER_BYTES + ROW_BYTES * number;
            long stored = Words.bigInt(front, row) & 0xFFFFFFFFL;
            refs[number] = new LengthsRef(offset, stored, Words.bigLong(front, row + 4));
            offset += stored;
        }
        return refs;
    }

    /** Return the entry lengths of {@code chunk}. {@code stored} lies at {@code ref} of the trailer. */
    static int[] lengths(Slice stored, LengthsRef ref, Chunk chunk, String key, long at) {
        long place = at + ref.offset();
        if (stored.length() != ref.storedLength()) {
            throw new InvalidIndex(key, place, stored.length() + " bytes of " + ref.storedLength());
        }
        if (XxHash3.hash(stored) != ref.xxh3()) {
            throw new InvalidIndex(key, place, "the checksum of these entry lengths does not match");
        }
        byte[] raw = decompress(stored, chunk, key, place);
        int[] lengths = new int[(int) chunk.count()];
        long sum = Entry.HEAD_BYTES * chunk.count();
        boolean isSmall = false;
        for (int number = 0; number < lengths.length; number++) {
            lengths[number] = Words.littleInt(raw, LENGTH_BYTES * number);
            long length = lengths[number] & 0xFFFFFFFFL;
            isSmall |= length < Entry.MIN_DATA_LENGTH;
            sum += length;
        }
        if (isSmall || sum != chunk.rawLength()) {
            throw new InvalidIndex(
                    key, place, "the entry lengths do not make a chunk of " + chunk.rawLength() + " bytes");
        }
        return lengths;
    }

    private static byte[] decompress(Slice stored, Chunk chunk, String key, long place) {
        long size = LENGTH_BYTES * chunk.count();
        try {
            if (ZstdFrame.contentSize(stored) != size || size > Integer.MAX_VALUE - 8) {
                throw new InvalidIndex(key, place, "it does not hold " + chunk.count() + " entry lengths");
            }
            byte[] raw = new byte[(int) size];
            ZstdFrame.decompress(stored, raw, raw.length);
            return raw;
        } catch (ZstdFrame.BadFrame bad) {
            throw new InvalidIndex(key, place, bad.getMessage());
        }
    }
}
