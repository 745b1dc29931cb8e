package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The options of a load and the version that it pinned. All questions of its DataFrames to the planner go out with both.
 *
 * @param pin what the planner said, which only the planner reads
 */
record Question(Map<String, String> options, JsonNode pin, StructType offered) {
    static final String PATH = "path";
    static final String TOPIC = "topic";
    static final String VERSION = "versionasof";
    static final String TIME = "timestampasof";
    static final String TAG = "tag:";
    private static final String BRANCH = "branch";
    private static final String KMS_KEY = "kmskeyid";
    private static final String MUST_EXIST = "mustexist";

    private static final Set<String> VERSIONS = Set.of(VERSION, TIME);

    static final Set<String> NEVER_NULL_IN_A_FEED = Set.of("topic", "seq", "_change", "_lsn");

    private static final Set<String> LABELS = Set.of("node", "tag");

    static final String FEED = "readchangefeed";

    /** Options that come too late for a table of a catalog, which has its topic, its columns and its lease. */
    private static final Set<String> OF_LOADS = Set.of(
            PATH, TOPIC, "subscribe", BRANCH, "columns", "includemetadata", "reader", "pinseconds", KMS_KEY, FEED);

    /** Settings of a catalog that its feeds leave out: they choose records or columns, or say how a version is held. */
    static final Set<String> NOT_OF_FEEDS = Set.of(
            VERSION,
            TIME,
            "startingseq",
            "startingoffsets",
            "endingseq",
            "endingoffsets",
            "startingtimestamp",
            "endingtimestamp",
            "tag",
            "columns",
            "maxrecordspertrigger",
            "maxoffsetspertrigger",
            "maxbytespertrigger",
            "pinseconds",
            KMS_KEY);

    /** Ask which version the options mean, and which columns it has. */
    static Question pinned(Map<String, String> options) {
        JsonNode answer = Planner.call(call("pin", options)).get(0);
        return new Question(options, answer.path("pin"), schema(answer.path("columns")));
    }

    /**
     * Return this question with options that a query adds to a table of a catalog. Without a version, the pin stays.
     *
     * @param isPast Spark has asked the catalog for this version. Spark 4 gives the options with the version as well.
     */
    Question with(Map<String, String> added, boolean isPast) {
        for (String option : added.keySet()) {
            if (OF_LOADS.contains(option)) {
                throw refused(option, "name the topic by the table and the columns by SELECT; the catalog has the rest");
            }
        }
        Map<String, String> all = new HashMap<>(added);
        if (isPast) {
            all.keySet().removeAll(VERSIONS);
        }
        boolean isOther = isFeed() && !all.isEmpty() || !Collections.disjoint(all.keySet(), VERSIONS);
        options.forEach(all::putIfAbsent);
        return isOther ? pinned(all) : new Question(all, pin, offered);
    }

    /** Return true for a load of what the commits changed, in place of the records of a version. */
    boolean isFeed() {
        return Boolean.parseBoolean(options.get(FEED));
    }

    /** Raise an error if these options name a version. */
    void checkNoVersion(Set<String> added, String hint) {
        for (String option : VERSIONS) {
            if (added.contains(option)) {
                throw refused(option, hint);
            }
        }
    }

    /** Tell whether the options name a version. */
    boolean isPast() {
        return !Collections.disjoint(options.keySet(), VERSIONS);
    }

    /** Return the options of a load into this topic: those that a statement adds, and where the table lies. */
    Map<String, String> writing(Map<String, String> added) {
        Map<String, String> all = new HashMap<>();
        added.forEach((option, text) -> all.put(option.toLowerCase(Locale.ROOT), text));
        for (String option : List.of(PATH, TOPIC, BRANCH)) {
            if (all.containsKey(option)) {
                throw refused(option, "the table names the topic and its branch, and the catalog the remote");
            }
        }
        for (String option : List.of("reader", Load.ROWS, MUST_EXIST)) {
            if (all.containsKey(option)) {
                throw refused(option, "leave it out");
            }
        }
        String[] name = options.get(TOPIC).split("@", 2);
        all.put(PATH, options.get(PATH));
        all.put(TOPIC, name[0]);
        all.put(BRANCH, name.length > 1 ? name[1] : options.getOrDefault(BRANCH, "main"));
        all.put(MUST_EXIST, "true");
        if (options.containsKey(KMS_KEY)) {
            all.putIfAbsent(KMS_KEY, options.get(KMS_KEY));
        }
        return all;
    }

    static RuntimeException refused(String option, String hint) {
        String reason = "option " + option + ": no table of a catalog takes it";
        return SparkErrors.shown(new PlannerFailure("InvalidOption", reason, hint));
    }

    /** Return the columns that the planner describes. */
    static StructType schema(JsonNode columns) {
        StructType schema = new StructType();
        for (JsonNode column : columns) {
            schema = schema.add(column.path("name").asText(), type(column.path("type").asText()), true);
        }
        return schema;
    }

    private static DataType type(String name) {
        return switch (name) {
            case "string" -> DataTypes.StringType;
            case "bigint" -> DataTypes.LongType;
            case "int" -> DataTypes.IntegerType;
            case "timestamp" -> DataTypes.TimestampType;
            case "binary" -> DataTypes.BinaryType;
            default -> throw new PlannerError("the planner offers a column of an unknown type " + name);
        };
    }

    /** Return the source and its topics, as plans and the progress of a stream show them. */
    String description() {
        return SeglogProvider.NAME + " " + options.getOrDefault(TOPIC, options.getOrDefault("subscribe", ""));
    }

    /** Return the plan for these columns and filters: first its summary, then its tasks. */
    List<JsonNode> plan(String[] columns, ArrayNode filters, Integer limit, int parallelism) {
        ObjectNode call = call("plan", filters);
        call.set("columns", Planner.JSON.valueToTree(columns));
        call.put("limit", limit).put("parallelism", parallelism);
        return Planner.call(call);
    }

    /** Return the values of these aggregates; null if it would have to read too much. */
    JsonNode aggregate(ArrayNode aggregates, ArrayNode filters) {
        ObjectNode call = call("aggregate", filters);
        call.set("aggregates", aggregates);
        JsonNode values = Planner.call(call).get(0).path("values");
        return values.isArray() ? values : null;
    }

    /** Return a row for each group: its names, then the aggregates; null if it would have to read too much. */
    JsonNode groups(ArrayNode by, ArrayNode aggregates, ArrayNode filters) {
        ObjectNode call = call("groups", filters);
        call.set("by", by);
        call.set("aggregates", aggregates);
        JsonNode rows = Planner.call(call).get(0).path("rows");
        return rows.isArray() ? rows : null;
    }

    /** Return a pin of the newest versions. */
    JsonNode newest() {
        return Planner.call(call("pin", options)).get(0).path("pin");
    }

    /** Return the offset at which a micro-batch ends that begins with {@code start}. It goes no further than the target. */
    String latest(String start, JsonNode target, boolean isLimited) {
        ObjectNode call = call("stream_latest", options).put("start", start).put("limited", isLimited);
        call.set("target", target);
        return Planner.call(call).get(0).path("offset").asText();
    }

    /** Return the plan of the micro-batch between two offsets. */
    List<JsonNode> planBetween(String start, String end, String[] columns, int parallelism) {
        ObjectNode call = call("stream_plan", options).put("start", start).put("end", end);
        call.set("columns", Planner.JSON.valueToTree(columns));
        call.set("filters", Planner.JSON.createArrayNode());
        call.putNull("limit").put("parallelism", parallelism);
        return Planner.call(call);
    }

    private ObjectNode call(String name, ArrayNode filters) {
        ObjectNode call = call(name, options);
        call.set("pin", pin);
        call.set("filters", filters);
        return call;
    }

    static ObjectNode call(String name, Map<String, String> options) {
        ObjectNode call = Planner.JSON.createObjectNode().put("call", name);
        call.set("options", Planner.JSON.valueToTree(options));
        return call;
    }

    /** Return the user's schema, if this load has its columns, and no label is NOT NULL. */
    StructType chosen(StructType wanted) {
        List<String> known = Arrays.stream(offered.fields()).map(Question::asText).toList();
        for (StructField field : wanted.fields()) {
            if (!known.contains(asText(field))) {
                throw invalid("there is no column " + asText(field), "use " + String.join(", ", known));
            }
            boolean mayBeNull =
                    isFeed() ? !NEVER_NULL_IN_A_FEED.contains(field.name()) : LABELS.contains(field.name());
            if (!field.nullable() && mayBeNull) {
                throw invalid(field.name() + " is NOT NULL, but records may lack it", "leave out NOT NULL");
            }
        }
        return wanted;
    }

    private static RuntimeException invalid(String reason, String hint) {
        return SparkErrors.shown(new PlannerFailure("InvalidOption", "option schema: " + reason, hint));
    }

    private static String asText(StructField field) {
        return field.name() + " " + field.dataType().simpleString();
    }
}
