package seglog.spark;

import java.io.IOException;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.SerializableConfiguration;

/** Makes the readers of the tasks, on the executors. */
final class SeglogReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    private final String[] columns;
    private final SerializableConfiguration hadoop;

    SeglogReaderFactory(String[] columns, SerializableConfiguration hadoop) {
        this.columns = columns;
        this.hadoop = hadoop;
    }

    /** Return the factory for these columns, with the Hadoop settings of the driver. */
    static SeglogReaderFactory of(String[] columns) {
        SparkContext context = SparkContext.getOrCreate();
        HandedCredentials.offer();
        return new SeglogReaderFactory(columns, new SerializableConfiguration(context.hadoopConfiguration()));
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        SeglogPartition task = (SeglogPartition) partition;
        try {
            return new SeglogReader(task, columns, Sources.open(task.url(), hadoop.value()));
        } catch (IOException error) {
            throw SparkErrors.shown(error);
        }
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        throw new UnsupportedOperationException("this source gives columns, and no rows");
    }
}
