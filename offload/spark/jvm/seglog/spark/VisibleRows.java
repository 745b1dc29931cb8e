package seglog.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.roaringbitmap.RoaringBitmap;

/** The rows of a piece: inside its seqs, not hidden, not marked as deleted, and chosen by its conditions. */
final class VisibleRows {
    private final Piece piece;
    private final Condition[] conditions;
    private final RoaringBitmap hidden = new RoaringBitmap();

    VisibleRows(Piece piece) {
        this.piece = piece;
        this.conditions = piece.filters().toArray(Condition[]::new);
        if (piece.hidden() != null) {
            try {
                hidden.deserialize(ByteBuffer.wrap(piece.hidden()));
            } catch (IOException bad) {
                throw new PlannerError("the planner sent a bitmap that does not decode: " + bad.getMessage(), bad);
            }
        }
    }

    /**
     * Return the rows of a chunk, ascending.
     *
     * @param records the decoded chunk; null if it is not read, because the piece has no conditions
     */
    int[] of(Chunk chunk, Records records) {
        int[] rows = shown(chunk);
        if (records == null) {
            return rows;
        }
        int count = 0;
        for (int row : rows) {
            if (!records.isDeleted(row) && isChosen(records, row)) {
                rows[count++] = row;
            }
        }
        return count == rows.length ? rows : Arrays.copyOf(rows, count);
    }

    private int[] shown(Chunk chunk) {
        long base = piece.segmentFirstSeq();
        long first = Math.max(chunk.firstSeq(), piece.first());
        long end = Math.min(chunk.firstSeq() + chunk.count(), piece.last() + 1);
        RoaringBitmap entries = RoaringBitmap.bitmapOfRange(first - base, Math.max(first, end) - base);
        entries.andNot(hidden);
        int[] rows = entries.toArray();
        int ofFirstRow = (int) (chunk.firstSeq() - base);
        for (int number = 0; number < rows.length; number++) {
            rows[number] -= ofFirstRow;
        }
        return rows;
    }

    private boolean isChosen(Records records, int row) {
        for (Condition condition : conditions) {
            if (!condition.isMet(records, row)) {
                return false;
            }
        }
        return true;
    }
}
