package seglog.spark;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdException;

/**
 * One zstd frame that states its content size, and nothing behind it.
 *
 * <p>The header and the lengths of the blocks are read here (RFC 8878, 3.1.1), because the zstd of Spark 3.5 and 4.0
 * tells neither for a part of an array.
 */
final class ZstdFrame {
    private static final int MAGIC = 0xFD2FB528;

    /** The magic of frames that decoders skip, but for its last four bits. */
    private static final int SKIPPABLE = 0x184D2A50;

    /** The bytes of a dictionary's id and of the content size, by their flags. */
    private static final int[] OF_DICTIONARY = {0, 1, 2, 4};

    private static final int[] OF_SIZE = {0, 2, 4, 8};
    private static final int RLE = 1;
    private static final int RESERVED = 0x08;

    /** The window of 2 GiB and seven eighths, which is more than any zstd takes, as its byte in the header. */
    private static final int LARGEST_WINDOW = (31 - 10) << 3 | 7;

    private ZstdFrame() {}

    /**
     * Return the content size that the frame states.
     *
     * @return -1 if the frame states none; 0 for a frame that decoders skip
     * @throws BadFrame if the bytes are no frame
     */
    static long contentSize(Slice stored) throws BadFrame {
        if (((int) number(stored, 0, 4) & ~0xF) == SKIPPABLE) {
            return 0;
        }
        int flags = flags(stored);
        int bytes = sizeBytes(flags);
        long size = number(stored, headerLength(flags) - bytes, bytes);
        return bytes == 0 ? -1 : bytes == 2 ? size + 256 : size;
    }

    /**
     * Put the content into the front of an array.
     *
     * @param size the size of the content, which the caller has compared with the one that it expects
     */
    static void decompress(Slice stored, byte[] content, int size) throws BadFrame {
        long unused = stored.length() - length(stored);
        if (unused > 0) {
            throw new BadFrame("compressed input contains " + unused + " bytes of unused data, which is disallowed");
        }
        try {
            long written = Zstd.decompressByteArray(content, 0, size, stored.bytes(), stored.start(), stored.length());
            if (written != size) {
                throw new BadFrame("decompression error: " + Zstd.getErrorName(written));
            }
        } catch (ZstdException bad) {
            throw new BadFrame("decompression error: " + bad.getMessage());
        }
    }

    /** Return the length of the frame: its header, its blocks, and its checksum if it has one. */
    private static int length(Slice stored) throws BadFrame {
        int flags = flags(stored);
        int end = headerLength(flags);
        long block;
        do {
            block = number(stored, end, 3);
            int kind = (int) (block >> 1) & 3;
            end += 3 + (kind == RLE ? 1 : (int) (block >> 3));
        } while ((block & 1) == 0);
        return end + ((flags & 4) == 0 ? 0 : 4);
    }

    private static int flags(Slice stored) throws BadFrame {
        int flags = (int) number(stored, 4, 1);
        boolean isFrame = (int) number(stored, 0, 4) == MAGIC && (flags & RESERVED) == 0;
        if (!isFrame || !isOneSegment(flags) && number(stored, 5, 1) > LARGEST_WINDOW) {
            throw new BadFrame("error when determining content size");
        }
        return flags;
    }

    /** The magic, the flags, the window unless the content is one segment, the dictionary, the content size. */
    private static int headerLength(int flags) {
        return 5 + (isOneSegment(flags) ? 0 : 1) + OF_DICTIONARY[flags & 3] + sizeBytes(flags);
    }

    private static int sizeBytes(int flags) {
        int kind = flags >> 6;
        return kind == 0 && isOneSegment(flags) ? 1 : OF_SIZE[kind];
    }

    private static boolean isOneSegment(int flags) {
        return (flags & 0x20) != 0;
    }

    /** Return a little-endian number of at most eight bytes. */
    private static long number(Slice stored, int place, int bytes) throws BadFrame {
        if (place + bytes > stored.length()) {
            throw new BadFrame("error when determining content size");
        }
        long number = 0;
        for (int at = bytes - 1; at >= 0; at--) {
            number = number << 8 | stored.bytes()[stored.start() + place + at] & 0xFF;
        }
        return number;
    }

    /** The bytes are no whole frame. The message says why. */
    static final class BadFrame extends Exception {
        private static final long serialVersionUID = 1;

        BadFrame(String message) {
            super(message);
        }
    }
}
