package seglog.spark;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdException;

/** One zstd frame that states its content size, and nothing behind it. */
final class ZstdFrame {
    private ZstdFrame() {}

    /**
     * Return the content size that the frame states.
     *
     * @return -1 if the frame states none
     * @throws BadFrame if the bytes are no frame
     */
    static long contentSize(Slice stored) throws BadFrame {
        long size = stored.length() == 0
                ? Long.MIN_VALUE
                : Zstd.getFrameContentSize(stored.bytes(), stored.start(), stored.length());
        if (size < -1) {
            throw new BadFrame("error when determining content size");
        }
        return size;
    }

    /**
     * Put the content into the front of an array.
     *
     * @param size the size of the content, which the caller has compared with the one that it expects
     */
    static void decompress(Slice stored, byte[] content, int size) throws BadFrame {
        byte[] bytes = stored.bytes();
        int start = stored.start();
        int length = stored.length();
        try {
            long frame = Zstd.findFrameCompressedSize(bytes, start, length);
            if (frame != length) {
                throw new BadFrame("compressed input contains " + (length - frame)
                        + " bytes of unused data, which is disallowed");
            }
            long written = Zstd.decompressByteArray(content, 0, size, bytes, start, length);
            if (written != size) {
                throw new BadFrame("decompression error: " + Zstd.getErrorName(written));
            }
        } catch (ZstdException bad) {
            throw new BadFrame("decompression error: " + bad.getMessage());
        }
    }

    /** The bytes are no whole frame. The message says why. */
    static final class BadFrame extends Exception {
        private static final long serialVersionUID = 1;

        BadFrame(String message) {
            super(message);
        }
    }
}
