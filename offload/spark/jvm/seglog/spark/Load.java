package seglog.spark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.functions;
import org.apache.spark.storage.StorageLevel;

/**
 * A save() of a DataFrame. It keeps the rows, counts them in each partition, and hands both to the writer in Python.
 *
 * <p>A record contains its seq, so a task has to know how many rows the partitions before its own have. Spark tells a
 * data source of version 2 nothing of the kind. {@code offload/load/__init__.py} has the whole protocol.
 */
final class Load {
    /** The option with the rows of each partition, for the writer in Python. */
    static final String ROWS = "partitionrows";

    private static final String TOPIC = "topic";

    private Load() {}

    /** Return the options, with their names in lower case, as Python gets them. */
    static Map<String, String> options(scala.collection.immutable.Map<String, String> parameters) {
        Map<String, String> options = new HashMap<>();
        scala.collection.Iterator<scala.Tuple2<String, String>> given = parameters.iterator();
        while (given.hasNext()) {
            scala.Tuple2<String, String> option = given.next();
            options.put(option._1().toLowerCase(Locale.ROOT), option._2());
        }
        return options;
    }

    /** Append the rows. Without the option topic, each topic of the column topic gets a load of its own. */
    static void run(Dataset<Row> data, Map<String, String> options) {
        boolean isKept = !data.storageLevel().equals(StorageLevel.NONE());
        Dataset<Row> rows = isKept ? data : data.persist(StorageLevel.MEMORY_AND_DISK());
        try {
            boolean hasTopics = Arrays.stream(data.columns()).anyMatch(TOPIC::equalsIgnoreCase);
            boolean byTopic = hasTopics && !options.containsKey(TOPIC);
            for (Map.Entry<String, TreeMap<Integer, Long>> topic : counted(rows, byTopic).entrySet()) {
                Map<String, String> all = new HashMap<>(options);
                if (byTopic) {
                    all.put(TOPIC, topic.getKey());
                }
                all.put("reader", "python");
                all.put(ROWS, text(topic.getValue()));
                Dataset<Row> chosen = byTopic ? rows.filter(rows.col(TOPIC).equalTo(topic.getKey())) : rows;
                chosen.write().format(SeglogProvider.NAME).options(all).mode(SaveMode.Append).save();
            }
        } finally {
            if (!isKept) {
                rows.unpersist();
            }
        }
    }

    /** Return for each topic the rows of each partition that has any. Without topics, the empty text is the only one. */
    private static TreeMap<String, TreeMap<Integer, Long>> counted(Dataset<Row> rows, boolean byTopic) {
        Column partition = functions.spark_partition_id().as("partition");
        Column topic = byTopic ? functions.coalesce(rows.col(TOPIC), functions.lit("")) : functions.lit("");
        List<Row> counts = rows.select(partition, topic.as(TOPIC))
                .groupBy("partition", TOPIC)
                .count()
                .collectAsList();
        TreeMap<String, TreeMap<Integer, Long>> found = new TreeMap<>();
        if (!byTopic) {
            found.put("", new TreeMap<>()); // a load of no rows checks its options, too
        }
        for (Row count : counts) {
            found.computeIfAbsent(count.getString(1), name -> new TreeMap<>()).put(count.getInt(0), count.getLong(2));
        }
        return found;
    }

    private static String text(TreeMap<Integer, Long> rows) {
        StringBuilder text = new StringBuilder("[");
        rows.forEach((partition, count) -> text.append(text.length() > 1 ? "," : "")
                .append("[").append(partition).append(",").append(count).append("]"));
        return text.append("]").toString();
    }
}
