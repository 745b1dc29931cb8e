package seglog.spark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** The chunks of the planned segments that no task reads. */
public final class ChunksSkippedMetric extends CustomSumMetric {
    static final String NAME = "chunksSkipped";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "chunks skipped";
    }
}
