package seglog.spark;

/**
 * The stored form of a chunk's bytes: unchanged, or as one zstd frame.
 *
 * <p>The decoder compares the checksum of the stored bytes before it decompresses them. It takes memory only if the
 * frame's content size equals the chunk table's.
 */
final class ChunkCodec {
    private ChunkCodec() {}

    /**
     * Return the chunk's entries. They may lie in {@code scratch}.
     *
     * @param stored what was read at the chunk's place in the data object {@code key}
     */
    static Slice decode(Slice stored, Chunk chunk, Codec codec, Verify verify, String key, Scratch scratch) {
        if (stored.length() != chunk.storedLength()) {
            throw new InvalidChunk(key, chunk.offset(), stored.length() + " bytes of " + chunk.storedLength());
        }
        if (verify != Verify.NONE && XxHash3.hash(stored) != chunk.xxh3()) {
            throw new InvalidChunk(key, chunk.offset(), "its checksum does not match");
        }
        if (codec == Codec.NONE) {
            return stored;
        }
        if (chunk.rawLength() > Integer.MAX_VALUE - 8) {
            throw new FormatUnsupported(key, "a chunk of " + chunk.rawLength() + " bytes");
        }
        try {
            if (ZstdFrame.contentSize(stored) != chunk.rawLength()) {
                throw new InvalidChunk(
                        key, chunk.offset(), "it does not decompress to " + chunk.rawLength() + " bytes");
            }
            int size = (int) chunk.rawLength();
            byte[] content = scratch.ofAtLeast(size);
            ZstdFrame.decompress(stored, content, size);
            return new Slice(content, 0, size);
        } catch (ZstdFrame.BadFrame bad) {
            throw new InvalidChunk(key, chunk.offset(), bad.getMessage());
        }
    }
}
