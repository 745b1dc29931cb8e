package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/**
 * A condition on the timestamp or the tag of a record. {@code offload/spark/messages.py} lists those of a piece.
 *
 * @param times ascending, in microseconds
 * @param texts ascending by their bytes, which count as unsigned
 */
record Condition(Kind kind, long[] times, byte[][] texts) implements Serializable {
    private static final long MICROSECONDS = 1000;

    /** A column and an operation. */
    private enum Kind {
        TIMESTAMP_GE,
        TIMESTAMP_LE,
        TIMESTAMP_IN,
        TAG_IN,
        TAG_PREFIX,
        TAG_ISNULL,
        TAG_NOTNULL
    }

    static Condition decode(JsonNode found) {
        List<byte[]> texts = new ArrayList<>();
        List<Long> times = new ArrayList<>();
        for (JsonNode value : found.path("values")) {
            if (value.isTextual()) {
                texts.add(value.textValue().getBytes(StandardCharsets.UTF_8));
            } else {
                times.add(value.longValue());
            }
        }
        byte[][] sorted = texts.toArray(byte[][]::new);
        Arrays.sort(sorted, Arrays::compareUnsigned);
        return new Condition(
                kind(found),
                times.stream().mapToLong(Long::longValue).sorted().toArray(),
                sorted);
    }

    private static Kind kind(JsonNode found) {
        String name = found.path("column").asText() + "_" + found.path("op").asText();
        try {
            return Kind.valueOf(name.toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException unknown) {
            throw new PlannerError("the planner sent a condition that this reader does not know: " + found, unknown);
        }
    }

    boolean isMet(Records records, int row) {
        return switch (kind) {
            case TIMESTAMP_GE -> records.tsMs(row) * MICROSECONDS >= times[0];
            case TIMESTAMP_LE -> records.tsMs(row) * MICROSECONDS <= times[0];
            case TIMESTAMP_IN -> Arrays.binarySearch(times, records.tsMs(row) * MICROSECONDS) >= 0;
            case TAG_ISNULL -> !records.has(Part.TAG, row);
            case TAG_NOTNULL -> records.has(Part.TAG, row);
            case TAG_IN, TAG_PREFIX -> records.has(Part.TAG, row) && isTagMet(records, row);
        };
    }

    private boolean isTagMet(Records records, int row) {
        byte[] bytes = records.bytes();
        int start = records.start(Part.TAG, row);
        int end = start + records.length(Part.TAG, row);
        if (kind == Kind.TAG_PREFIX) {
            int compared = Math.min(end, start + texts[0].length);
            return Arrays.equals(bytes, start, compared, texts[0], 0, texts[0].length);
        }
        int low = 0;
        int high = texts.length;
        while (low < high) {
            int middle = (low + high) >>> 1;
            byte[] text = texts[middle];
            int order = Arrays.compareUnsigned(bytes, start, end, text, 0, text.length);
            if (order == 0) {
                return true;
            }
            low = order > 0 ? middle + 1 : low;
            high = order < 0 ? middle : high;
        }
        return false;
    }
}
