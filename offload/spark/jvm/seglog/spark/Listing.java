package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.StreamSupport;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A small table that the planner tells whole: the topics of a remote, or the commits, branches or tags of a topic. */
@SuppressWarnings("deprecation") // of the name schema
record Listing(String name, StructType schema, JsonNode rows) implements SupportsRead {
    static Listing of(String name, String kind, Map<String, String> options) {
        ObjectNode call = Question.call("listing", options).put("of", kind);
        List<JsonNode> answers = Planner.call(call);
        ArrayNode rows = Planner.JSON.createArrayNode();
        answers.forEach(part -> part.path("rows").forEach(rows::add));
        return new Listing(name, Question.schema(answers.get(0).path("columns")), rows);
    }

    /** Return the texts of the first column. */
    List<String> texts() {
        return StreamSupport.stream(rows.spliterator(), false)
                .map(row -> row.get(0).textValue())
                .toList();
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        for (String option : options.keySet()) {
            throw Question.refused(option, "leave it out: " + name + " shows what is there now");
        }
        return () -> new PushedAggregates(schema, rows);
    }
}
