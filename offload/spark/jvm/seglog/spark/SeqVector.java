package seglog.spark;

import org.apache.spark.sql.types.DataTypes;

/** The seqs of rows. They ascend by one from record to record. */
final class SeqVector extends RowsVector {
    private final long firstSeq;

    SeqVector(ChunkRows found) {
        super(DataTypes.LongType, found.rows());
        this.firstSeq = found.chunk().firstSeq();
    }

    @Override
    public long getLong(int at) {
        return firstSeq + rows[at];
    }
}
