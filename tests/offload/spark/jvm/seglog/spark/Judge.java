package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.URI;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Answers the tests' questions to the decoders: one JSON object each way, after its length in 4 bytes.
 *
 * <p>An answer of "rows" or "error" is to one scan of a piece over objects in memory.
 */
final class Judge {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, byte[]> objects = new HashMap<>();
    private Piece piece;

    private Judge() {}

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new java.io.BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new java.io.BufferedOutputStream(System.out));
        Judge judge = new Judge();
        for (int length = in.readInt(); length >= 0; length = in.readInt()) {
            byte[] answer = JSON.writeValueAsBytes(judge.answer(JSON.readTree(in.readNBytes(length))));
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    private ObjectNode answer(JsonNode question) throws IOException {
        return switch (question.get("op").asText()) {
            case "xxh3" -> hashes(question);
            case "objects" -> take(question);
            case "damage" -> damaged(question);
            case "read" -> read(question);
            default -> throw new IOException("unknown question " + question);
        };
    }

    /** Return the hash of each prefix of the bytes, from a place that is not aligned. */
    private static ObjectNode hashes(JsonNode question) throws IOException {
        byte[] data = question.get("data").binaryValue();
        byte[] moved = new byte[data.length + 3];
        System.arraycopy(data, 0, moved, 3, data.length);
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode hashes = answer.putArray("hashes");
        for (JsonNode length : question.get("lengths")) {
            hashes.add(Long.toUnsignedString(XxHash3.hash(moved, 3, length.asInt())));
        }
        return answer;
    }

    private ObjectNode take(JsonNode question) throws IOException {
        objects.clear();
        for (String name : new String[] {"data", "index"}) {
            objects.put(question.get("piece").get(name).asText(), question.get(name).binaryValue());
        }
        piece = Piece.decode(question.get("piece"));
        return scanned(objects, question);
    }

    /** Scan again, with one byte of an object changed, or without the object's end. */
    private ObjectNode damaged(JsonNode question) {
        Map<String, byte[]> changed = new HashMap<>(objects);
        String key = question.get("key").asText();
        byte[] body = changed.get(key).clone();
        int at = question.get("at").asInt();
        if (question.has("flip")) {
            body[at] ^= (byte) question.get("flip").asInt();
        } else {
            body = Arrays.copyOf(body, at);
        }
        changed.put(key, body);
        return scanned(changed, question);
    }

    /** Read a range through one of the port's implementations. */
    private static ObjectNode read(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        JsonNode variables = question.get("environment");
        try {
            String url = question.get("url").asText();
            ByteSource source = url.startsWith("file:")
                    ? new HadoopBytes(new Path(URI.create(url)), new Configuration())
                    : new HttpBytes(url, AwsSettings.read(name -> variables.path(name).asText(null)), 2);
            int length = question.get("length").asInt();
            byte[] found = source.read(question.get("key").asText(), question.get("offset").asLong(), length);
            answer.put("body", Base64.getEncoder().encodeToString(found));
        } catch (SeglogError | IOException error) {
            answer.putArray("error").add(error.getClass().getSimpleName()).add(error.getMessage());
        }
        return answer;
    }

    private ObjectNode scanned(Map<String, byte[]> bodies, JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        Verify verify = Verify.valueOf(question.path("verify").asText("RECORD"));
        ByteSource source = (key, offset, length) -> {
            byte[] body = bodies.get(key);
            if (offset + length > body.length) {
                throw InvalidObject.ended(key, Math.max(offset, body.length), offset + length);
            }
            return Arrays.copyOfRange(body, (int) offset, (int) offset + length);
        };
        ArrayNode rows = JSON.createArrayNode();
        try (TaskScan scan = new TaskScan(List.of(piece), source, verify)) {
            for (ChunkRows found = scan.next(); found != null; found = scan.next()) {
                found.records().checkText(Part.NODE, found.rows());
                found.records().checkText(Part.TAG, found.rows());
                for (int row : found.rows()) {
                    rows.add(row(found.records(), row));
                }
            }
            answer.set("rows", rows);
        } catch (SeglogError | IOException error) {
            answer.putArray("error").add(error.getClass().getSimpleName()).add(error.getMessage());
        }
        return answer;
    }

    private static ArrayNode row(Records records, int row) {
        ArrayNode values = JSON.createArrayNode();
        values.add(records.firstSeq() + row).add(records.tsMs(row));
        for (Part part : Part.values()) {
            int start = records.start(part, row);
            byte[] bytes = Arrays.copyOfRange(records.bytes(), start, start + records.length(part, row));
            values.add(records.has(part, row) ? Base64.getEncoder().encodeToString(bytes) : null);
        }
        return values;
    }
}
