package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The driver's side of the planner process. {@code offload/spark/messages.py} has the messages.
 *
 * <p>A driver has one process, and one call at a time. A process that does not answer in time is ended, and
 * the call fails. The next call starts another process.
 */
final class Planner {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final int PROTOCOL = 2;
    private static final int MAX_BYTES = 64 << 20;
    private static final int HELLO_S = 60;
    private static final int EXIT_S = 5;

    /** The system property with the seconds that the driver waits for an answer. */
    private static final String PATIENCE = "seglog.planner.seconds";

    private static final int ANSWER_S = 15 * 60;
    private static final ExecutorService THREADS = Threads.named("seglog-planner");

    private static Planner current;

    private final Process process;
    private final DataInputStream in;
    private final DataOutputStream out;
    private int lastId;
    private String version = "";

    private Planner(Process process) {
        this.process = process;
        this.in = new DataInputStream(new BufferedInputStream(process.getInputStream()));
        this.out = new DataOutputStream(new BufferedOutputStream(process.getOutputStream()));
    }

    /**
     * Return the answer to a call. Where it says {@code tasks} or {@code parts}, the messages of these follow it.
     *
     * <p>If the planner reports an error, or if there is no answer, the driver's user gets it as an error of Spark's.
     */
    static List<JsonNode> call(ObjectNode call) {
        try {
            return answered(call);
        } catch (SeglogError error) {
            throw SparkErrors.shown(error);
        }
    }

    /** Return the AWS credentials that the planner has found. Throws {@link SeglogError}. */
    static JsonNode credentials() {
        ObjectNode call = JSON.createObjectNode().put("call", "credentials");
        call.putObject("options");
        return answered(call).get(0).path("credentials");
    }

    private static synchronized List<JsonNode> answered(ObjectNode call) {
        List<JsonNode> answers = answers(call);
        JsonNode error = answers.get(answers.size() - 1).get("error");
        if (error != null) {
            throw new PlannerFailure(
                    error.path("type").asText(),
                    error.path("message").asText(),
                    error.path("hint").isTextual() ? error.path("hint").textValue() : null);
        }
        return answers;
    }

    /** Return the answers. If a process of earlier calls ended, another one gets the call, because calls repeat safely. */
    private static List<JsonNode> answers(ObjectNode call) {
        boolean isFresh = current == null || !current.process.isAlive();
        try {
            return running().exchanged(call);
        } catch (PlannerError gone) {
            if (isFresh || !(gone.getCause() instanceof IOException)) {
                throw gone;
            }
            current = null;
            return running().exchanged(call);
        }
    }

    private List<JsonNode> exchanged(ObjectNode call) {
        int id = ++lastId;
        call.put("id", id);
        return timed(Integer.getInteger(PATIENCE, ANSWER_S), () -> exchange(call, id));
    }

    /** Start the process, if none runs. */
    static void check() {
        python();
    }

    /** Return the version of the Python that runs the planner, such as 3.11. */
    static synchronized String python() {
        try {
            return running().version;
        } catch (SeglogError error) {
            throw SparkErrors.shown(error);
        }
    }

    private static Planner running() {
        if (current == null || !current.process.isAlive()) {
            current = started();
        }
        return current;
    }

    private static Planner started() {
        Planner planner;
        try {
            planner = new Planner(PlannerCommand.start());
        } catch (IOException failure) {
            throw new PlannerError(
                    "cannot start the planner with " + PlannerCommand.python() + ": " + failure.getMessage()
                            + ". Set PYSPARK_PYTHON to a Python that has seglog",
                    failure);
        }
        JsonNode hello = planner.timed(HELLO_S, planner::greet);
        int protocol = hello.path("hello").path("protocol").asInt(-1);
        if (protocol != PROTOCOL) {
            planner.process.destroyForcibly();
            throw new PlannerError("the planner of " + PlannerCommand.python() + " speaks protocol " + protocol
                    + ", and this jar speaks " + PROTOCOL + ". Install the same seglog on both sides");
        }
        planner.version = hello.path("hello").path("python").asText();
        return planner;
    }

    private JsonNode greet() throws IOException {
        ObjectNode hello = JSON.createObjectNode();
        hello.putObject("hello").put("protocol", PROTOCOL).put("seglog", "jar");
        write(hello);
        return read();
    }

    private List<JsonNode> exchange(ObjectNode call, int id) throws IOException {
        write(call);
        List<JsonNode> answers = new ArrayList<>();
        answers.add(answer(id));
        JsonNode first = answers.get(0);
        int more = first.path("plan").path("tasks").asInt(0) + first.path("parts").asInt(0);
        while (answers.size() <= more && !answers.get(answers.size() - 1).has("error")) {
            answers.add(answer(id));
        }
        return answers; // an error in the place of a task or part is the last answer
    }

    private JsonNode answer(int id) throws IOException {
        JsonNode answer = read();
        if (answer.path("id").asInt(-1) != id && !answer.has("error")) {
            throw new IOException("it answers another call than " + id);
        }
        return answer;
    }

    /** Run an exchange, and end the process if the exchange fails or takes too long. */
    private <T> T timed(int seconds, Callable<T> exchange) {
        Future<T> running = THREADS.submit(exchange);
        try {
            return running.get(seconds, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            String message = described(failed.getCause());
            process.destroyForcibly();
            throw new PlannerError(message, failed.getCause());
        } catch (TimeoutException late) {
            process.destroyForcibly();
            throw new PlannerError("the planner did not answer within " + seconds + " s", late);
        } catch (InterruptedException interrupt) {
            return afterInterrupt(running);
        }
    }

    /**
     * Wait a little for the answer, so that the end of a stream does not end the planner of other queries.
     *
     * <p>Spark knows the exception as one of a stream that was stopped.
     */
    private <T> T afterInterrupt(Future<T> running) {
        try {
            return running.get(EXIT_S, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException | InterruptedException failed) {
            process.destroyForcibly();
            throw new UncheckedIOException(new ClosedByInterruptException());
        } finally {
            Thread.currentThread().interrupt();
        }
    }

    private String described(Throwable cause) {
        String fault = cause.getMessage();
        if (cause instanceof EOFException) {
            fault = "it ended" + exitCode();
        }
        return "no answer from the planner (" + PlannerCommand.python() + " -m offload.spark.planner): " + fault
                + ". The driver's standard error has its own message. Check that this Python has seglog[spark]";
    }

    private String exitCode() {
        try {
            return process.waitFor(EXIT_S, TimeUnit.SECONDS) ? " with exit code " + process.exitValue() : "";
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            return "";
        }
    }

    private void write(JsonNode message) throws IOException {
        byte[] body = JSON.writeValueAsBytes(message);
        try {
            out.writeInt(body.length);
            out.write(body);
            out.flush();
        } catch (IOException broken) { // the pipe breaks if the process ended before it read the message
            throw (EOFException) new EOFException().initCause(broken);
        }
    }

    private JsonNode read() throws IOException {
        int length = in.readInt();
        if (length < 0 || length > MAX_BYTES) {
            throw new IOException("its message claims " + Integer.toUnsignedString(length) + " bytes");
        }
        byte[] body = in.readNBytes(length);
        if (body.length < length) {
            throw new IOException("its message ends after " + body.length + " bytes of " + length);
        }
        return JSON.readTree(body);
    }
}
