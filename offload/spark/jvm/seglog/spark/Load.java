package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructField;
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
    private static final String VALUE = "value";

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

    /**
     * Append the rows. Without the option topic, each topic of the column topic gets a load of its own.
     *
     * <p>Options, columns and the topic are checked before Spark computes the rows, and sizes before any of them is
     * uploaded. An error of the writer in Python has one line, as those of the planner do.
     */
    static void run(Dataset<Row> data, Map<String, String> options) {
        try {
            append(data, options);
        } catch (Exception error) { // Spark's errors of the analysis are no RuntimeExceptions
            throw SparkErrors.ofWriter(error);
        }
    }

    private static void append(Dataset<Row> data, Map<String, String> options) {
        OptionalLong most = check(data, options);
        if (most.isEmpty()) {
            return;
        }
        Dataset<Row> rows = Shim.get().ofRows(data).persist(StorageLevel.MEMORY_AND_DISK());
        try {
            boolean byTopic = column(data, TOPIC).isPresent() && !options.containsKey(TOPIC);
            List<Row> counts = counted(rows, byTopic);
            TreeMap<String, TreeMap<Integer, Long>> topics = byTopics(counts, byTopic);
            for (String topic : List.copyOf(topics.keySet())) {
                OptionalLong room = byTopic ? check(data, with(options, topic)) : most;
                if (room.isEmpty()) {
                    topics.remove(topic);
                } else {
                    checkSizes(data, counts, topic, room.getAsLong());
                }
            }
            for (Map.Entry<String, TreeMap<Integer, Long>> topic : topics.entrySet()) {
                Map<String, String> all = byTopic ? with(options, topic.getKey()) : new HashMap<>(options);
                all.put("reader", "python");
                all.put(ROWS, text(topic.getValue()));
                Dataset<Row> chosen = byTopic
                        ? rows.filter(rows.col(column(rows, TOPIC).orElseThrow()).equalTo(topic.getKey()))
                        : rows;
                chosen.write().format(SeglogProvider.NAME).options(all).mode(SaveMode.Append).save();
            }
        } finally {
            rows.unpersist();
        }
    }

    /** Ask the planner whether the load may begin. Return the most bytes of a record that it takes; none if it is done. */
    private static OptionalLong check(Dataset<Row> data, Map<String, String> options) {
        ObjectNode call = Question.call("load", options);
        ArrayNode columns = call.putArray("columns");
        for (StructField field : data.schema().fields()) {
            columns.addArray().add(field.name()).add(field.dataType().simpleString());
        }
        JsonNode answer = Planner.call(call).get(0);
        boolean isDone = answer.path("done").asBoolean();
        return isDone ? OptionalLong.empty() : OptionalLong.of(answer.path("most_value_bytes").asLong());
    }

    /** Return the name of a column as the data has it, whose case does not count, also if the session says it does. */
    private static Optional<String> column(Dataset<Row> data, String name) {
        return Arrays.stream(data.columns()).filter(name::equalsIgnoreCase).findFirst();
    }

    /** Return the bytes of value and labels in a row, in SQL. */
    private static String size(Dataset<Row> data) {
        StringBuilder size = new StringBuilder("octet_length(" + column(data, VALUE).orElseThrow() + ")");
        for (String label : List.of("tag", "node")) {
            column(data, label).ifPresent(name -> size.append(" + coalesce(octet_length(" + name + "), 0)"));
        }
        return size.toString();
    }

    /** Refuse a row that no block has room for. A task would find it after it has uploaded others. */
    private static void checkSizes(Dataset<Row> data, List<Row> counts, String topic, long most) {
        for (Row count : counts) {
            if (count.getString(1).equals(topic) && !count.isNullAt(3) && count.getInt(3) > most) {
                String reason = "partition " + count.getInt(0) + " has a record of " + count.getInt(3)
                        + " bytes, and a block takes " + most + "; nothing was written";
                String hint = "split such values, or keep them in the bucket and write their keys; "
                        + "df.where(\"" + size(data) + " > " + most + "\") finds them";
                throw SparkErrors.shown(new PlannerFailure("InvalidRow", reason, hint));
            }
        }
    }

    private static Map<String, String> with(Map<String, String> options, String topic) {
        Map<String, String> all = new HashMap<>(options);
        all.put(TOPIC, topic);
        return all;
    }

    /** Return for each partition and topic: both, the number of rows, and the bytes of the longest one. */
    private static List<Row> counted(Dataset<Row> rows, boolean byTopic) {
        Column partition = functions.spark_partition_id().as("partition");
        Column topic = byTopic ? functions.coalesce(rows.col(column(rows, TOPIC).orElseThrow()), functions.lit("")) : functions.lit("");
        return rows.select(partition, topic.as(TOPIC), functions.expr(size(rows)).as(VALUE))
                .groupBy("partition", TOPIC)
                .agg(functions.count(functions.lit(1)), functions.max(VALUE))
                .collectAsList();
    }

    /** Return for each topic the rows of each partition that has any. Without topics, the empty text is the topic. */
    private static TreeMap<String, TreeMap<Integer, Long>> byTopics(List<Row> counts, boolean byTopic) {
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
