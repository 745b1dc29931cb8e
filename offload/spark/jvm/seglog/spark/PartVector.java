package seglog.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** The values or labels of rows: slices of the decoded chunk. */
final class PartVector extends RowsVector {
    private final Records records;
    private final Part part;

    PartVector(ChunkRows found, Part part) {
        super(part == Part.VALUE ? DataTypes.BinaryType : DataTypes.StringType, found.rows());
        this.records = found.records();
        this.part = part;
        if (part != Part.VALUE) {
            records.checkText(part, rows);
        }
    }

    /** Return true if a value may be null. The answer costs no look at the rows. */
    @Override
    public boolean hasNull() {
        return part != Part.VALUE;
    }

    @Override
    public int numNulls() {
        int count = 0;
        for (int at = 0; at < rows.length; at++) {
            count += isNullAt(at) ? 1 : 0;
        }
        return count;
    }

    @Override
    public boolean isNullAt(int at) {
        return !records.has(part, rows[at]);
    }

    /** Return the text over the chunk's own bytes. Spark copies it before the chunk goes. */
    @Override
    public UTF8String getUTF8String(int at) {
        int row = rows[at];
        return isNullAt(at)
                ? null
                : UTF8String.fromBytes(records.bytes(), records.start(part, row), records.length(part, row));
    }

    @Override
    public byte[] getBinary(int at) {
        int row = rows[at];
        int start = records.start(part, row);
        return Arrays.copyOfRange(records.bytes(), start, start + records.length(part, row));
    }
}
