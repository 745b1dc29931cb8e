package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Answers the tests' questions to the port to bytes, and to what stands before it. */
final class JudgeOfReads {
    private static final ObjectMapper JSON = new ObjectMapper();

    private JudgeOfReads() {}

    /** Read a range through one of the port's implementations. */
    static ObjectNode read(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        JsonNode variables = question.get("environment");
        try {
            String url = question.get("url").asText();
            ByteSource source = url.startsWith("file:")
                    ? new HadoopBytes(new Path(URI.create(url)), new Configuration())
                    : new HttpBytes(url, AwsSettings.read(name -> variables.path(name).asText(null)), 2);
            String key = question.get("key").asText();
            if (question.has("ranges")) {
                List<ByteRange> ranges = new ArrayList<>();
                question.get("ranges")
                        .forEach(range -> ranges.add(
                                new ByteRange(range.get(0).asLong(), range.get(1).asInt())));
                ArrayNode bodies = answer.putArray("bodies");
                for (byte[] found : source.readAll(key, ranges)) {
                    bodies.add(found);
                }
                return answer;
            }
            int length = question.get("length").asInt();
            byte[] found = source.read(key, question.get("offset").asLong(), length);
            answer.put("body", Base64.getEncoder().encodeToString(found));
        } catch (SeglogError | IOException error) {
            answer.putArray("error").add(error.getClass().getSimpleName()).add(error.getMessage());
        }
        return answer;
    }

    /**
     * Ask for the first of some reads, none of which ends before the others have had time to begin. Return how many
     * began, and the results in order: the number of each read.
     */
    static ObjectNode ahead(JsonNode question) throws IOException {
        AtomicInteger begun = new AtomicInteger();
        CountDownLatch end = new CountDownLatch(1);
        List<Read> reads = new ArrayList<>();
        for (JsonNode bytes : question.get("bytes")) {
            int number = reads.size();
            reads.add(new Read(bytes.asLong(), () -> {
                begun.incrementAndGet();
                end.await();
                return number;
            }));
        }
        ObjectNode answer = JSON.createObjectNode();
        try (ReadAhead ahead = new ReadAhead(reads.iterator())) {
            CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS).execute(() -> {
                answer.put("begun", begun.get());
                end.countDown();
            });
            List<Object> results = new ArrayList<>();
            while (results.size() < reads.size()) {
                results.add(ahead.next());
            }
            return answer.set("results", JSON.valueToTree(results));
        }
    }

    /**
     * Ask a source of credentials again and again. The first ones that it gives expire so many milliseconds from now, and
     * so on. Return the number of the credentials in each answer.
     */
    static ObjectNode renew(JsonNode question) throws IOException {
        JsonNode expires = question.get("expires");
        AtomicInteger given = new AtomicInteger();
        CredentialSource source = new CredentialSource(() -> {
            int number = given.getAndIncrement();
            JsonNode in = expires.get(Math.min(number, expires.size() - 1));
            long end = in.isNull() ? Credentials.NEVER : System.currentTimeMillis() + in.asLong();
            return new Credentials(String.valueOf(number), "", null, end);
        });
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode keys = answer.putArray("keys");
        for (JsonNode step : question.get("steps")) {
            Credentials before = source.current();
            if (step.asText().equals("refused")) {
                source.replaced(before);
            }
            keys.add(Integer.parseInt(source.current().accessKey()));
        }
        return answer;
    }
}
