package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.connector.read.InputPartition;

/** The input of one Spark task. {@code url} is the remote, and a piece names its objects below it. */
record SeglogPartition(String url, Verify verify, List<Piece> pieces) implements InputPartition {
    /** Return the tasks of a plan: all messages but the first, which is the summary. */
    static SeglogPartition[] decodeAll(List<JsonNode> plan) {
        return plan.stream().skip(1).map(message -> decode(message.path("task"))).toArray(SeglogPartition[]::new);
    }

    static SeglogPartition decode(JsonNode task) {
        try {
            List<Piece> pieces = new ArrayList<>();
            Piece.required(task, "pieces").forEach(piece -> pieces.add(Piece.decode(piece)));
            String verify = Piece.required(task, "verify").asText().toUpperCase(Locale.ROOT);
            return new SeglogPartition(Piece.required(task, "url").asText(), Verify.valueOf(verify), pieces);
        } catch (IllegalArgumentException bad) {
            throw new PlannerError("the planner sent a task that does not decode: " + bad.getMessage(), bad);
        }
    }
}
