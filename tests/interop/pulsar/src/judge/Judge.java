package judge;

import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs Apache Pulsar's reader and writer of offloaded ledgers, by commands from standard input.
 *
 * <p>A command is a line of words with tabs between them. The answer is lines of JSON on standard output. It has any
 * number of entries, then a line with "done" or "error". Arguments: endpoint, access key, secret key, region.
 */
public final class Judge {
    private static final Gson JSON = new Gson();
    private static PrintStream answers;

    public static void main(String[] arguments) throws Exception {
        answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // what libraries print is no answer
        Bucket.configure(arguments[0], arguments[1], arguments[2], arguments[3]);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            try {
                run(words);
            } catch (Throwable error) {
                error.printStackTrace();
                answer(Map.of("error", chain(error)));
            }
        }
        System.exit(0); // the offloader's threads are no daemons
    }

    private static void run(String[] words) throws Exception {
        switch (words[0]) {
            // bucket, data key, index key, read buffer, order
            case "read" -> Reading.read(words[1], words[2], words[3], Integer.parseInt(words[4]), words[5]);
            // bucket, uuid, block size, ledger
            case "offload" -> Writing.offload(words[1], words[2], Integer.parseInt(words[3]), words[4]);
            // bucket, uuid, block size, ledgers
            case "stream" -> Writing.stream(words[1], words[2], Integer.parseInt(words[3]), words[4]);
            // directory
            case "golden" -> Golden.write(words[1]);
            default -> throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    static void answer(Map<String, ?> value) {
        answers.println(JSON.toJson(value));
    }

    static Map<String, Object> values(Object... keysAndValues) {
        Map<String, Object> values = new LinkedHashMap<>();
        for (int at = 0; at < keysAndValues.length; at += 2) {
            values.put((String) keysAndValues[at], keysAndValues[at + 1]);
        }
        return values;
    }

    private static String chain(Throwable error) {
        StringBuilder text = new StringBuilder(error.toString());
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text.append(" < ").append(cause);
        }
        return text.toString();
    }

    private Judge() {}
}
