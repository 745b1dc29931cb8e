package seglog.spark;

import org.apache.spark.sql.types.DataTypes;

/** The times of rows, in microseconds since the epoch. */
final class TimestampVector extends RowsVector {
    private static final long MICROSECONDS = 1000;

    private final Records records;

    TimestampVector(ChunkRows found) {
        super(DataTypes.TimestampType, found.rows());
        this.records = found.records();
    }

    @Override
    public long getLong(int at) {
        return records.tsMs(rows[at]) * MICROSECONDS;
    }
}
