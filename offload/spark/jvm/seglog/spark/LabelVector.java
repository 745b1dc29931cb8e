package seglog.spark;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** The tags or nodes of rows. None of them refers to the decoded chunk. */
final class LabelVector extends RowsVector {
    private final UTF8String[] labels;

    /** Take the labels of these rows, and check that they are UTF-8. */
    LabelVector(ChunkRows found, Part part, Labels known) {
        super(DataTypes.StringType, found.rows());
        Records records = found.records();
        this.labels = new UTF8String[rows.length];
        for (int at = 0; at < labels.length; at++) {
            int row = rows[at];
            if (records.has(part, row)) {
                labels[at] = known.label(records.bytes(), records.start(part, row), records.length(part, row));
                if (labels[at] == null) {
                    throw records.damaged("a tag or node in it is not UTF-8");
                }
            }
        }
    }

    /** Return true if a label may be null. The answer costs no look at the rows. */
    @Override
    public boolean hasNull() {
        return true;
    }

    @Override
    public int numNulls() {
        int count = 0;
        for (UTF8String label : labels) {
            count += label == null ? 1 : 0;
        }
        return count;
    }

    @Override
    public boolean isNullAt(int at) {
        return labels[at] == null;
    }

    @Override
    public UTF8String getUTF8String(int at) {
        return labels[at];
    }
}
