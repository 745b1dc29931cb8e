package seglog.spark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** The chunks that the tasks of a scan decoded. */
public final class ChunksReadMetric extends CustomSumMetric {
    static final String NAME = "chunksRead";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "chunks read";
    }
}
