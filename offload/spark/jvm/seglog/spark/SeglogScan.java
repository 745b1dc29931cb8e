package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/**
 * One scan of a query. It asks the planner when Spark first needs the statistics or the tasks.
 *
 * <p>A join may tell it, before the tasks run, which values the other side has. It then asks the planner again.
 */
final class SeglogScan implements Batch, SupportsReportStatistics, SupportsRuntimeV2Filtering {
    private static final List<String> JOINED_BY = List.of("topic", "tag", "seq");

    /** A list of more values is left to Spark, because it would be in the message of each task, and takes little away. */
    private static final int MOST_VALUES = 1_000;

    private final Question question;
    private final StructType schema;
    private final ArrayNode filters;
    private final ArrayNode joined = Planner.JSON.createArrayNode();
    private final Integer limit;
    private boolean isStream;
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
            tasks = SeglogPartition.decodeAll(messages);
            plan = List.of(messages.get(0)); // the messages of the tasks are no longer needed
        }
        return tasks.clone();
    }

    @Override
    public NamedReference[] filterAttributes() {
        return (question.isFeed() ? List.<String>of() : JOINED_BY).stream()
                .filter(Arrays.asList(schema.fieldNames())::contains)
                .map(Expressions::column)
                .toArray(NamedReference[]::new);
    }

    /** Take the values of the other side of a join. Spark calls this once, with all of them, and then asks for the tasks. */
    @Override
    public synchronized void filter(Predicate[] predicates) {
        joined.removeAll();
        for (Predicate predicate : predicates) {
            ObjectNode filter = predicate.children().length > MOST_VALUES ? null : PushedFilters.translated(predicate);
            if (filter != null) {
                joined.add(filter);
            }
        }
        plan = null;
        tasks = null;
    }

    private synchronized List<JsonNode> plan() {
        if (plan == null) {
            int parallelism = SparkContext.getOrCreate().defaultParallelism();
            plan = question.plan(schema.fieldNames(), filters.deepCopy().addAll(joined), limit, parallelism);
        }
        return plan;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return SeglogReaderFactory.of(schema.fieldNames());
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        isStream = true;
        return new SeglogStream(question, schema);
    }

    /** Return the sizes that the plan tells. A stream has no plan of its own, so that it tells none. */
    @Override
    public Statistics estimateStatistics() {
        JsonNode summary = isStream ? Planner.JSON.missingNode() : plan().get(0).path("plan");
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return known("bytes");
            }

            @Override
            public OptionalLong numRows() {
                return known("rows");
            }

            private OptionalLong known(String name) {
                JsonNode value = summary.path(name);
                return value.isMissingNode() ? OptionalLong.empty() : OptionalLong.of(value.longValue());
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
                if (piece.isRemoval()) {
                    continue; // it has ranges of seqs in the place of chunks
                }
                long unread = skipped.getOrDefault(piece.segment(), (long) piece.chunkCount());
                skipped.put(piece.segment(), piece.needsData() ? unread - piece.size() : unread);
            }
        }
        long sum = skipped.values().stream().mapToLong(Long::longValue).sum();
        return new CustomTaskMetric[] {new TaskMetric(ChunksSkippedMetric.NAME, sum)};
    }

    @Override
    public String description() {
        String narrowed = filters.isEmpty() ? "" : ", filters " + filters;
        return question.description() + narrowed + (limit == null ? "" : ", limit " + limit);
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
