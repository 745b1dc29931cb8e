package seglog.spark;

/**
 * The places of an entry's fields, from its first byte. {@code offload/format/entry.py} has the layout.
 *
 * <p>The first two fields are big-endian, the others little-endian. Node, tag, data and checksum follow the head.
 */
final class Entry {
    static final int LENGTH = 0;
    static final int ID = 4;
    static final int TYPE = 12;
    static final int FLAGS = 13;
    static final int TOPIC_ID = 14;
    static final int SEQ = 22;
    static final int TS_MS = 30;
    static final int NODE_LENGTH = 38;
    static final int TAG_LENGTH = 40;
    static final int DATA_LENGTH = 42;
    static final int PARTS = 46;

    /** Entry length and entry id, which the frame's checksum does not cover. */
    static final int HEAD_BYTES = 12;

    static final int CHECKSUM_BYTES = 8;
    static final int MIN_DATA_LENGTH = PARTS - HEAD_BYTES + CHECKSUM_BYTES;

    static final int APPEND = 1;
    static final int HAS_TAG = 1;
    static final int HAS_NODE = 2;
    static final int DELETED = 8;

    private Entry() {}
}
