package seglog.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.roaringbitmap.RoaringBitmap;

/** The rows of a piece: inside its seqs, not hidden, not marked as deleted, and chosen by its conditions. */
final class VisibleRows {
    private final Piece piece;
    private final RoaringBitmap hidden = new RoaringBitmap();

    VisibleRows(Piece piece) {
        this.piece = piece;
        if (piece.hidden() != null) {
            try {
                hidden.deserialize(ByteBuffer.wrap(piece.hidden()));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }

    /** Return the rows of a decoded chunk, ascending. */
    int[] of(Records records) {
        int[] rows = shown(records.firstSeq(), records.count());
        int count = 0;
        for (int row : rows) {
            if (!records.isDeleted(row) && isChosen(records, row)) {
                rows[count++] = row;
            }
        }
        return count == rows.length ? rows : Arrays.copyOf(rows, count);
    }

    /** Return the rows of a chunk that is not read. Its piece has no conditions. */
    int[] of(Chunk chunk) {
        return shown(chunk.firstSeq(), (int) chunk.count());
    }

    private int[] shown(long firstSeq, int records) {
        int from = (int) Math.max(0, piece.first() - firstSeq);
        int to = (int) Math.min(records, piece.last() - firstSeq + 1);
        int[] rows = new int[Math.max(0, to - from)];
        if (hidden.isEmpty()) {
            Arrays.setAll(rows, number -> from + number);
            return rows;
        }
        int count = 0;
        for (int row = from; row < to; row++) {
            if (!hidden.contains((int) (firstSeq + row - piece.segmentFirstSeq()))) {
                rows[count++] = row;
            }
        }
        return count == rows.length ? rows : Arrays.copyOf(rows, count);
    }

    private boolean isChosen(Records records, int row) {
        for (Condition condition : piece.filters()) {
            if (!condition.isMet(records, row)) {
                return false;
            }
        }
        return true;
    }
}
