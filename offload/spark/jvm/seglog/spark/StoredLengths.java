package seglog.spark;

import java.io.IOException;
import java.util.List;

/**
 * The stored entry lengths of a piece's chunks: the trailer's directory, and the piece's part of the trailer.
 *
 * @param all the places of the lengths of all the segment's chunks
 * @param part the bytes from the lengths of the piece's first chunk to the end of the last one's
 * @param partOffset where the part begins in the trailer
 */
record StoredLengths(LengthsRef[] all, Slice part, long partOffset) {
    /** Up to this, one GET for the whole trailer is cheaper than two GETs for its parts. */
    private static final long SMALL_TRAILER_BYTES = 64 * 1024;

    static StoredLengths read(ByteSource source, Piece piece) throws IOException {
        long at = piece.trailerOffset();
        byte[] front = source.read(piece.index(), at, frontBytes(piece));
        LengthsRef[] all = Trailer.directory(front, piece.chunkCount(), piece.index(), at);
        List<Chunk> table = piece.table();
        long start = all[table.get(0).number()].offset();
        long end = all[table.get(table.size() - 1).number()].end();
        if (end <= front.length) {
            return new StoredLengths(all, new Slice(front, (int) start, (int) (end - start)), start);
        }
        byte[] part = source.read(piece.index(), at + start, (int) (end - start));
        return new StoredLengths(all, Slice.of(part), start);
    }

    /** Return how many bytes of the trailer the first GET brings. */
    static int frontBytes(Piece piece) {
        long wanted = Math.max(Trailer.directoryLength(piece.chunkCount()), SMALL_TRAILER_BYTES);
        return (int) Math.min(piece.trailerLength(), wanted);
    }

    int[] decode(Chunk chunk, Piece piece) {
        LengthsRef ref = all[chunk.number()];
        int start = part.start() + (int) (ref.offset() - partOffset);
        Slice stored = new Slice(part.bytes(), start, (int) ref.storedLength());
        return Trailer.lengths(stored, ref, chunk, piece.index(), piece.trailerOffset());
    }
}
