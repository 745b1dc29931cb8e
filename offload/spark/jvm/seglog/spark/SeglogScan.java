package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/** One scan of a query. It asks the planner once, when Spark first needs the statistics or the tasks. */
final class SeglogScan implements Batch, SupportsReportStatistics {
    private final Question question;
    private final StructType schema;
    private final ArrayNode filters;
    private final Integer limit;
    private List<JsonNode> plan;
    private SeglogPartition[] tasks;

    SeglogScan(Question question, StructType schema, ArrayNode filters, Integer limit) {
        this.question = question;
        this.schema = schema;
        this.filters = filters;
        this.limit = limit;
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public Batch toBatch() {
        return this;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public synchronized InputPartition[] planInputPartitions() {
        if (tasks == null) {
            List<JsonNode> messages = plan();
            tasks = new SeglogPartition[messages.size() - 1];
            for (int number = 0; number < tasks.length; number++) {
                tasks[number] = SeglogPartition.decode(messages.get(number + 1).path("task"));
            }
            plan = List.of(messages.get(0)); // the messages of the tasks are no longer needed
        }
        return tasks.clone();
    }

    private synchronized List<JsonNode> plan() {
        if (plan == null) {
            int parallelism = SparkContext.getOrCreate().defaultParallelism();
            plan = question.plan(schema.fieldNames(), filters, limit, parallelism);
        }
        return plan;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        SparkContext context = SparkContext.getOrCreate();
        return new SeglogReaderFactory(
                schema.fieldNames(), new SerializableConfiguration(context.hadoopConfiguration()));
    }

    @Override
    public Statistics estimateStatistics() {
        JsonNode summary = plan().get(0).path("plan");
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return OptionalLong.of(summary.path("bytes").longValue());
            }

            @Override
            public OptionalLong numRows() {
                return OptionalLong.of(summary.path("rows").longValue());
            }
        };
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
        return new CustomMetric[] {
            new BytesReadMetric(), new GetsMetric(), new ChunksReadMetric(), new ChunksSkippedMetric()
        };
    }

    @Override
    public synchronized CustomTaskMetric[] reportDriverMetrics() {
        Map<String, Long> skipped = new HashMap<>();
        for (SeglogPartition task : tasks == null ? new SeglogPartition[0] : tasks) {
            for (Piece piece : task.pieces()) {
                long unread = skipped.getOrDefault(piece.segment(), (long) piece.chunkCount());
                skipped.put(piece.segment(), piece.needsData() ? unread - piece.table().size() : unread);
            }
        }
        long sum = skipped.values().stream().mapToLong(Long::longValue).sum();
        return new CustomTaskMetric[] {new TaskMetric(ChunksSkippedMetric.NAME, sum)};
    }

    @Override
    public String description() {
        String narrowed = filters.isEmpty() ? "" : ", filters " + filters;
        return "seglog " + question.options().getOrDefault("topic", "") + narrowed
                + (limit == null ? "" : ", limit " + limit);
    }

    /** Two scans of the same rows are equal, so that Spark may run one of them for both. */
    @Override
    public boolean equals(Object other) {
        return other instanceof SeglogScan scan
                && question.equals(scan.question)
                && schema.equals(scan.schema)
                && filters.equals(scan.filters)
                && Objects.equals(limit, scan.limit);
    }

    @Override
    public int hashCode() {
        return Objects.hash(question, schema, filters, limit);
    }
}
