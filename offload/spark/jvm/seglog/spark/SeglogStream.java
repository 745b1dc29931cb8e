package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/**
 * The stream of one query. The planner says how far a micro-batch goes, and which tasks it has.
 *
 * <p>{@code offload/spark/stream.py} gives the meaning of an offset. The tasks are read as those of a batch.
 */
final class SeglogStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    private final Question question;
    private final StructType schema;
    private JsonNode target = Planner.JSON.nullNode();

    SeglogStream(Question question, StructType schema) {
        this.question = question;
        this.schema = schema;
    }

    @Override
    public Offset initialOffset() {
        return SeglogOffset.NEW;
    }

    @Override
    public Offset deserializeOffset(String json) {
        return new SeglogOffset(json);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return new OptionLimits();
    }

    /** Return the offset at which the next micro-batch ends. {@code ReadAllAvailable} overrules the options. */
    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        boolean isLimited = !(limit instanceof ReadAllAvailable);
        return new SeglogOffset(question.latest(start.json(), target, isLimited));
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("this stream is asked with a limit");
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        target = question.newest();
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        int parallelism = SparkContext.getOrCreate().defaultParallelism();
        List<JsonNode> plan = question.planBetween(start.json(), end.json(), schema.fieldNames(), parallelism);
        return SeglogPartition.decodeAll(plan);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return SeglogReaderFactory.of(schema.fieldNames());
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}

    /** Return the text that Spark shows in the progress and in the errors of a stream. */
    @Override
    public String toString() {
        return question.description();
    }

    /** The limits of the options, which only the planner reads. */
    private static final class OptionLimits implements ReadLimit {}
}
