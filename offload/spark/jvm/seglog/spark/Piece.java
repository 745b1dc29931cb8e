package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/**
 * Chunks of one segment, and the rows of them that the query asks for.
 *
 * <p>{@code offload/spark/messages.py} gives the meaning of each field.
 */
record Piece(
        String topic,
        long topicId,
        long lsn,
        String segment,
        String data,
        String index,
        Codec codec,
        long blockSize,
        long segmentFirstSeq,
        long first,
        long last,
        byte[] chunks,
        int chunkCount,
        long trailerOffset,
        long trailerLength,
        byte[] hidden,
        List<Condition> filters,
        boolean needsData,
        String change,
        long changeLsn)
        implements Serializable {
    private static final Set<String> REMOVALS = Set.of("delete", "truncate", "evict");

    static Piece decode(JsonNode found) {
        try {
            byte[] chunks = required(found, "chunks").binaryValue();
            if (chunks.length == 0 || chunks.length % Chunk.ROW_BYTES != 0) {
                throw new PlannerError("the planner sent a piece with " + chunks.length + " bytes of chunk table");
            }
            List<Condition> filters = new ArrayList<>();
            required(found, "filters").forEach(filter -> filters.add(Condition.decode(filter)));
            JsonNode hidden = required(found, "hidden");
            return new Piece(
                    required(found, "topic").textValue(),
                    required(found, "topic_id").longValue(),
                    required(found, "lsn").longValue(),
                    required(found, "segment").textValue(),
                    required(found, "data").textValue(),
                    required(found, "index").textValue(),
                    Codec.valueOf(required(found, "codec").textValue().toUpperCase(Locale.ROOT)),
                    required(found, "block_size").longValue(),
                    required(found, "segment_first_seq").longValue(),
                    required(found, "first").longValue(),
                    required(found, "last").longValue(),
                    chunks,
                    required(found, "chunk_count").intValue(),
                    required(found, "trailer_offset").longValue(),
                    required(found, "trailer_length").longValue(),
                    hidden.isNull() ? null : Base64.getDecoder().decode(hidden.textValue()),
                    filters,
                    required(found, "needs").textValue().equals("data"),
                    found.path("change").textValue(),
                    found.path("change_lsn").longValue());
        } catch (IOException | IllegalArgumentException bad) {
            throw new PlannerError("the planner sent a piece that does not decode: " + bad.getMessage(), bad);
        }
    }

    /** Return a field of a task or of a piece. */
    static JsonNode required(JsonNode found, String name) {
        JsonNode value = found.get(name);
        if (value == null) {
            throw new PlannerError("the planner sent a task without " + name);
        }
        return value;
    }

    /** Return true if the rows are removals in a feed of changes, of which only seqs are known. */
    boolean isRemoval() {
        return change != null && REMOVALS.contains(change);
    }

    /** Return how many of the segment's chunks the piece has. */
    int size() {
        return chunks.length / Chunk.ROW_BYTES;
    }

    List<Chunk> table() {
        List<Chunk> table = new ArrayList<>();
        for (int row = 0; row < size(); row++) {
            table.add(Chunk.unpack(chunks, row));
        }
        return table;
    }

    /** Return the chunks in runs that lie back to back, for one ranged GET each: at most 8 MiB, or one chunk. */
    List<List<Chunk>> runs() {
        List<List<Chunk>> runs = new ArrayList<>();
        List<Chunk> run = new ArrayList<>();
        for (Chunk chunk : table()) {
            if (!run.isEmpty()) {
                long end = run.get(run.size() - 1).end();
                if (chunk.offset() != end || chunk.end() - run.get(0).offset() > ByteRange.GROUP_BYTES) {
                    runs.add(run);
                    run = new ArrayList<>();
                }
            }
            run.add(chunk);
        }
        runs.add(run);
        return runs;
    }

    /** Return the place of each run in the data object. */
    List<ByteRange> ranges() {
        List<ByteRange> ranges = new ArrayList<>();
        for (List<Chunk> run : runs()) {
            long start = run.get(0).offset();
            ranges.add(new ByteRange(start, (int) (run.get(run.size() - 1).end() - start)));
        }
        return ranges;
    }
}
