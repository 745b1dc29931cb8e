package seglog.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.DataTypes;

/** The values of rows. The getter copies a value out of the decoded chunk. */
final class ValueVector extends RowsVector {
    private final Records records;

    ValueVector(ChunkRows found) {
        super(DataTypes.BinaryType, found.rows());
        this.records = found.records();
    }

    @Override
    public byte[] getBinary(int at) {
        int row = rows[at];
        int start = records.start(Part.VALUE, row);
        return Arrays.copyOfRange(records.bytes(), start, start + records.length(Part.VALUE, row));
    }
}
