package seglog.spark;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Answers the tests' questions to the decoders: one JSON object each way, after its length in 4 bytes.
 *
 * <p>An answer of "rows" or "error" is to one scan of a piece over objects in memory, or to the calls of a driver.
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
            case "labels" -> labels(question);
            case "objects" -> take(question);
            case "damage" -> damaged(question);
            case "read" -> JudgeOfReads.read(question);
            case "ahead" -> JudgeOfReads.ahead(question);
            case "renew" -> JudgeOfReads.renew(question);
            case "drive" -> drive(question);
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

    /** Return the text of each label, null for no UTF-8. All go through one cache. A byte lies behind each. */
    private static ObjectNode labels(JsonNode question) throws IOException {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode texts = answer.putArray("texts");
        Labels known = new Labels();
        for (JsonNode label : question.get("labels")) {
            byte[] bytes = label.binaryValue();
            byte[] moved = new byte[bytes.length + 2];
            System.arraycopy(bytes, 0, moved, 1, bytes.length);
            moved[bytes.length + 1] = (byte) 0xBC;
            UTF8String text = known.label(moved, 1, bytes.length);
            texts.add(text == null ? null : text.toString());
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

    /** Make the calls of a driver to a planner, and scan its tasks over the files of a directory. */
    private static ObjectNode drive(JsonNode question) throws IOException {
        System.setProperty(PlannerCommand.PYTHON, question.get("planner").asText());
        Map<String, String> options = new HashMap<>();
        JsonNode given = question.get("options");
        given.fieldNames().forEachRemaining(name -> options.put(name, given.get(name).asText()));
        ArrayNode filters = (ArrayNode) question.get("filters");
        ObjectNode answer = JSON.createObjectNode();
        try {
            Question asked = Question.pinned(options);
            answer.put("offered", asked.offered().catalogString());
            String[] columns = JSON.convertValue(question.get("columns"), String[].class);
            List<JsonNode> plan = asked.plan(columns, filters, null, question.get("parallelism").asInt());
            answer.set("plan", plan.get(0).get("plan"));
            java.nio.file.Path directory = java.nio.file.Path.of(question.get("directory").asText());
            addRows(answer.putArray("rows"), plan, directory);
            ArrayNode aggregates = (ArrayNode) question.get("aggregates");
            answer.set("values", asked.aggregate(aggregates, filters));
            if (question.has("by")) {
                String end = asked.latest("{}", asked.pin(), true);
                answer.put("offset", end);
                int parallelism = question.get("parallelism").asInt();
                addRows(answer.putArray("stream"), asked.planBetween("{}", end, columns, parallelism), directory);
                JsonNode groups = asked.groups((ArrayNode) question.get("by"), aggregates, filters);
                answer.set("groups", groups);
                if (groups == null) {
                    return answer; // the planner of the test has nothing more to say
                }
                Credentials handed = HandedCredentials.ofPlanner();
                answer.putArray("handed")
                        .add(handed.accessKey())
                        .add(handed.secretKey())
                        .add(handed.sessionToken())
                        .add(handed.expiresMs());
                answer.put("shown", handed.toString());
            }
        } catch (Exception error) { // Spark's own, which no method declares
            answer.putArray("error").add(error.getClass().getSimpleName()).add(error.getMessage());
        }
        return answer;
    }

    private static void addRows(ArrayNode rows, List<JsonNode> plan, java.nio.file.Path directory)
            throws IOException {
        for (JsonNode message : plan.subList(1, plan.size())) {
            addRows(rows, SeglogPartition.decode(message.path("task")), directory);
        }
    }

    private static void addRows(ArrayNode rows, SeglogPartition task, java.nio.file.Path directory)
            throws IOException {
        ByteSource source = (key, offset, length) -> {
            byte[] body = Files.readAllBytes(directory.resolve(key));
            return Arrays.copyOfRange(body, (int) offset, (int) offset + length);
        };
        try (TaskScan scan = new TaskScan(task.pieces(), source, task.verify())) {
            for (ChunkRows found = scan.next(); found != null; found = scan.next()) {
                for (int row : found.rows()) {
                    rows.add(named(found, row));
                }
            }
        }
    }

    private static ObjectNode named(ChunkRows found, int row) {
        ObjectNode values = JSON.createObjectNode()
                .put("topic", found.piece().topic())
                .put("seq", found.chunk().firstSeq() + row)
                .put("lsn", found.piece().lsn());
        Records records = found.records();
        if (records == null) {
            return values;
        }
        for (Part part : Part.values()) {
            byte[] bytes = bytes(records, part, row);
            boolean isValue = part == Part.VALUE;
            String text = isValue ? Base64.getEncoder().encodeToString(bytes) : new String(bytes, UTF_8);
            values.put(part.name().toLowerCase(Locale.ROOT), records.has(part, row) ? text : null);
        }
        return values.put("timestamp", records.tsMs(row) * 1000);
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
                new LabelVector(found, Part.NODE, new Labels());
                new LabelVector(found, Part.TAG, new Labels());
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
            String text = Base64.getEncoder().encodeToString(bytes(records, part, row));
            values.add(records.has(part, row) ? text : null);
        }
        return values;
    }

    private static byte[] bytes(Records records, Part part, int row) {
        int start = records.start(part, row);
        return Arrays.copyOfRange(records.bytes(), start, start + records.length(part, row));
    }
}
