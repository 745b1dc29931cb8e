package seglog.spark;

/**
 * The records of a decoded chunk, each one whole and in its place.
 *
 * <p>No byte of a record is copied. A row is the number of a record in the chunk, from 0.
 */
final class Records {
    private final byte[] bytes;
    private final int[] starts;
    private final Chunk chunk;
    private final String key;

    private Records(byte[] bytes, int[] starts, Chunk chunk, String key) {
        this.bytes = bytes;
        this.starts = starts;
        this.chunk = chunk;
        this.key = key;
    }

    /**
     * Check the records of a chunk with these entry lengths.
     *
     * @param firstSeq the first seq of the data object
     */
    static Records decode(
            Slice raw, int[] lengths, Chunk chunk, long firstSeq, long topicId, Verify verify, String key) {
        int[] starts = starts(raw, lengths, chunk, key);
        Records records = new Records(raw.bytes(), starts, chunk, key);
        if (!records.areInPlace(lengths, firstSeq, topicId)) {
            throw records.misplaced(lengths, firstSeq, topicId);
        }
        if (verify == Verify.RECORD) {
            records.compareChecksums();
        }
        return records;
    }

    private static int[] starts(Slice raw, int[] lengths, Chunk chunk, String key) {
        int[] starts = new int[lengths.length + 1];
        long at = raw.start();
        boolean isSmall = false;
        for (int row = 0; row < lengths.length; row++) {
            starts[row] = (int) at;
            long length = lengths[row] & 0xFFFFFFFFL;
            isSmall |= length < Entry.MIN_DATA_LENGTH;
            at += Entry.HEAD_BYTES + length;
        }
        if (at != raw.start() + raw.length() || lengths.length != chunk.count() || isSmall) {
            throw new InvalidChunk(
                    key, chunk.offset(), lengths.length + " entries do not make " + raw.length() + " bytes");
        }
        starts[lengths.length] = (int) at;
        return starts;
    }

    private boolean areInPlace(int[] lengths, long firstSeq, long topicId) {
        long seq = chunk.firstSeq();
        for (int row = 0; row < lengths.length; row++, seq++) {
            int at = starts[row];
            if (Words.bigInt(bytes, at) != lengths[row]
                    || checksumStart(row) + Entry.CHECKSUM_BYTES != starts[row + 1]
                    || Words.littleLong(bytes, at + Entry.SEQ) != seq
                    || Words.bigLong(bytes, at + Entry.ID) != seq - firstSeq
                    || Words.littleLong(bytes, at + Entry.TOPIC_ID) != topicId
                    || bytes[at + Entry.TYPE] != Entry.APPEND) {
                return false;
            }
        }
        return true;
    }

    /** Return the error of the first record that fails the first of the checks, as the Python reader does. */
    private InvalidChunk misplaced(int[] lengths, long firstSeq, long topicId) {
        for (int check = 0; ; check++) {
            for (int row = 0; row < lengths.length; row++) {
                int at = starts[row];
                long seq = chunk.firstSeq() + row;
                String reason =
                        switch (check) {
                            case 0 -> Words.bigInt(bytes, at) != lengths[row] ? "another entry length" : null;
                            case 1 -> checksumStart(row) + Entry.CHECKSUM_BYTES != starts[row + 1]
                                    ? "lengths that contradict each other"
                                    : null;
                            case 2 -> Words.littleLong(bytes, at + Entry.SEQ) != seq ? "another seq" : null;
                            case 3 -> Words.bigLong(bytes, at + Entry.ID) != seq - firstSeq ? "another entry id" : null;
                            case 4 -> Words.littleLong(bytes, at + Entry.TOPIC_ID) != topicId
                                    ? "the id of another topic"
                                    : null;
                            default -> bytes[at + Entry.TYPE] != Entry.APPEND ? "another type than Append" : null;
                        };
                if (reason != null) {
                    return damaged("the record of seq " + Long.toUnsignedString(seq) + " has " + reason);
                }
            }
        }
    }

    private void compareChecksums() {
        for (int row = 0; row < count(); row++) {
            int body = starts[row] + Entry.HEAD_BYTES;
            int end = starts[row + 1] - Entry.CHECKSUM_BYTES;
            if (XxHash3.hash(bytes, body, end - body) != Words.littleLong(bytes, end)) {
                String seq = Long.toUnsignedString(chunk.firstSeq() + row);
                throw damaged("the record of seq " + seq + " does not match its checksum");
            }
        }
    }

    /** Return where the parts' lengths put the checksum. Until it is compared, it may be any number. */
    private long checksumStart(int row) {
        int at = starts[row];
        return (long) at
                + Entry.PARTS
                + Words.littleShort(bytes, at + Entry.NODE_LENGTH)
                + Words.littleShort(bytes, at + Entry.TAG_LENGTH)
                + (Words.littleInt(bytes, at + Entry.DATA_LENGTH) & 0xFFFFFFFFL);
    }

    InvalidChunk damaged(String reason) {
        return new InvalidChunk(key, chunk.offset(), reason);
    }

    int count() {
        return starts.length - 1;
    }

    long firstSeq() {
        return chunk.firstSeq();
    }

    byte[] bytes() {
        return bytes;
    }

    boolean isDeleted(int row) {
        return (flags(row) & Entry.DELETED) != 0;
    }

    int flags(int row) {
        return bytes[starts[row] + Entry.FLAGS];
    }

    long tsMs(int row) {
        return Words.littleLong(bytes, starts[row] + Entry.TS_MS);
    }

    /** Return where a part of the record begins in {@link #bytes}. */
    int start(Part part, int row) {
        int at = starts[row];
        int node = at + Entry.PARTS;
        if (part == Part.NODE) {
            return node;
        }
        int tag = node + Words.littleShort(bytes, at + Entry.NODE_LENGTH);
        return part == Part.TAG ? tag : tag + Words.littleShort(bytes, at + Entry.TAG_LENGTH);
    }

    int length(Part part, int row) {
        int at = starts[row];
        return switch (part) {
            case NODE -> Words.littleShort(bytes, at + Entry.NODE_LENGTH);
            case TAG -> Words.littleShort(bytes, at + Entry.TAG_LENGTH);
            case VALUE -> Words.littleInt(bytes, at + Entry.DATA_LENGTH);
        };
    }

    boolean has(Part part, int row) {
        return part == Part.VALUE || (flags(row) & (part == Part.TAG ? Entry.HAS_TAG : Entry.HAS_NODE)) != 0;
    }
}
