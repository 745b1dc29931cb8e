package seglog.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.execution.streaming.Sink;

/**
 * The sink of a stream: each micro-batch is a load, whose key is the query's id and the batch's number.
 *
 * <p>A query that starts again from its checkpoint has the same id, and repeats the last batch under the same number.
 */
final class LoadSink implements Sink {
    private static final String KEY = "idempotencykey";
    private static final String QUERY_ID = "sql.streaming.queryId";

    private final Map<String, String> options;

    LoadSink(Map<String, String> options) {
        if (options.containsKey(KEY)) {
            throw SparkErrors.shown(new PlannerFailure(
                    "InvalidOption",
                    "option idempotencyKey: a stream makes a key for each micro-batch",
                    "leave it out"));
        }
        this.options = options;
    }

    @Override
    public void addBatch(long batchId, Dataset<Row> data) {
        Map<String, String> all = new HashMap<>(options);
        String query = data.sparkSession().sparkContext().getLocalProperty(QUERY_ID);
        all.put(KEY, query + ":" + batchId);
        Load.run(data, all);
    }
}
