package seglog.spark;

import java.io.IOException;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Gives Spark the rows of one task, a batch for each chunk. */
final class SeglogReader implements PartitionReader<ColumnarBatch> {
    private final ColumnsOfChunk columns;
    private final CountedBytes source;
    private final TaskScan scan;
    private ColumnarBatch batch;
    private long chunks;

    SeglogReader(SeglogPartition task, String[] columns, ByteSource source) {
        this.columns = new ColumnsOfChunk(columns);
        this.source = new CountedBytes(source);
        this.scan = new TaskScan(task.pieces(), this.source, task.verify());
    }

    @Override
    public boolean next() {
        try {
            ChunkRows found = scan.next();
            if (found == null) {
                return false;
            }
            chunks += found.records() == null ? 0 : 1;
            batch = columns.batch(found);
            return true;
        } catch (SeglogError | IOException error) {
            throw SparkErrors.shown(error);
        }
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return new CustomTaskMetric[] {
            new TaskMetric(BytesReadMetric.NAME, source.bytes()),
            new TaskMetric(GetsMetric.NAME, source.reads()),
            new TaskMetric(ChunksReadMetric.NAME, chunks),
        };
    }

    @Override
    public void close() {
        scan.close();
    }
}
