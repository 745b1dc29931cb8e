package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A condition on the timestamp or the tag of a record. An absent tag meets only {@code isnull}. */
record Condition(String column, String op, List<Long> times, List<byte[]> texts) implements Serializable {
    private static final long MICROSECONDS = 1000;

    static Condition decode(JsonNode found) {
        List<Long> times = new ArrayList<>();
        List<byte[]> texts = new ArrayList<>();
        for (JsonNode value : found.path("values")) {
            if (value.isTextual()) {
                texts.add(value.textValue().getBytes(StandardCharsets.UTF_8));
            } else {
                times.add(value.longValue());
            }
        }
        Condition condition =
                new Condition(found.path("column").asText(), found.path("op").asText(), times, texts);
        if (!condition.isKnown()) {
            throw new PlannerError("the planner sent a condition that this reader does not know: " + found);
        }
        return condition;
    }

    private boolean isKnown() {
        return switch (column) {
            case "timestamp" -> List.of("eq", "in", "lt", "le", "gt", "ge").contains(op);
            case "tag" -> List.of("eq", "in", "prefix", "isnull", "notnull").contains(op);
            default -> false;
        };
    }

    boolean isMet(Records records, int row) {
        return column.equals("tag") ? isTagMet(records, row) : isTimeMet(records.tsMs(row) * MICROSECONDS);
    }

    private boolean isTimeMet(long time) {
        return switch (op) {
            case "lt" -> time < times.get(0);
            case "le" -> time <= times.get(0);
            case "gt" -> time > times.get(0);
            case "ge" -> time >= times.get(0);
            default -> times.contains(time);
        };
    }

    private boolean isTagMet(Records records, int row) {
        boolean isAbsent = !records.has(Part.TAG, row);
        if (isAbsent || op.endsWith("null")) {
            return op.equals(isAbsent ? "isnull" : "notnull");
        }
        int start = records.start(Part.TAG, row);
        int end = start + records.length(Part.TAG, row);
        for (byte[] text : texts) {
            int compared = op.equals("prefix") ? Math.min(end, start + text.length) : end;
            if (Arrays.equals(records.bytes(), start, compared, text, 0, text.length)) {
                return true;
            }
        }
        return false;
    }
}
