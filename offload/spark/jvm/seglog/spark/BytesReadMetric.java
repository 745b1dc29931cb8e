package seglog.spark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** The bytes that the tasks of a scan read from the store. */
public final class BytesReadMetric extends CustomSumMetric {
    static final String NAME = "bytesRead";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "bytes read from the store";
    }
}
