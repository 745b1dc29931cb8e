package seglog.spark;

import org.apache.spark.sql.connector.metric.CustomSumMetric;

/** The ranged GETs that the tasks of a scan made. */
public final class GetsMetric extends CustomSumMetric {
    static final String NAME = "gets";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "ranged GETs";
    }
}
