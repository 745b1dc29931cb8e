package seglog.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.time.DateTimeException;
import java.time.Instant;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The program that a profile names as {@code credential_process}. It prints credentials as JSON.
 *
 * <p>A JVM runs it once for all of its tasks, and again shortly before the credentials expire. What the program prints is
 * in no error and in no log. Its standard error goes into the log of the JVM.
 */
final class CredentialProgram {
    private static final int PATIENCE_S = 60;
    private static final int MOST_BYTES = 64 << 10;
    private static final ExecutorService THREADS = Threads.named("seglog-credential-process");
    private static final ConcurrentMap<String, CredentialSource> SOURCES = new ConcurrentHashMap<>();

    private CredentialProgram() {}

    /** Return the source of this program's credentials. All tasks of the JVM share it. */
    static CredentialSource source(String command) {
        return SOURCES.computeIfAbsent(command, program -> new CredentialSource(() -> run(program)));
    }

    private static Credentials run(String command) throws IOException {
        ProcessBuilder builder = new ProcessBuilder("sh", "-c", command);
        ExecutorVariables.putInto(builder.environment());
        builder.redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")));
        Process process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            return decode(printed(process));
        } finally {
            process.descendants().forEach(ProcessHandle::destroyForcibly);
            process.destroyForcibly();
        }
    }

    /** Return the standard output of a program that ends with 0. */
    private static byte[] printed(Process process) throws IOException {
        Future<byte[]> output = THREADS.submit(() -> process.getInputStream().readNBytes(MOST_BYTES));
        try {
            byte[] body = output.get(PATIENCE_S, TimeUnit.SECONDS);
            if (body.length == MOST_BYTES) {
                throw failed("prints too much");
            }
            if (!process.waitFor(PATIENCE_S, TimeUnit.SECONDS)) {
                throw failed("did not end within " + PATIENCE_S + " s");
            }
            if (process.exitValue() != 0) {
                throw failed("ended with exit code " + process.exitValue());
            }
            return body;
        } catch (TimeoutException late) {
            throw failed("did not end within " + PATIENCE_S + " s");
        } catch (ExecutionException broken) {
            throw new IOException(broken.getCause());
        } catch (InterruptedException interrupt) {
            throw Threads.interrupted(interrupt);
        }
    }

    /** Return the credentials in what the program printed. No error repeats it, because it has secrets. */
    private static Credentials decode(byte[] body) throws IOException {
        JsonNode found;
        try {
            found = Planner.JSON.readTree(body);
        } catch (JsonProcessingException wrong) {
            throw failed("prints no JSON");
        }
        String accessKey = found.path("AccessKeyId").textValue();
        String secretKey = found.path("SecretAccessKey").textValue();
        if (found.path("Version").asInt() != 1 || accessKey == null || secretKey == null) {
            throw failed("prints no credentials of version 1");
        }
        return new Credentials(accessKey, secretKey, found.path("SessionToken").textValue(), expiresMs(found));
    }

    private static long expiresMs(JsonNode found) throws IOException {
        String text = found.path("Expiration").textValue();
        try {
            return text == null ? Credentials.NEVER : Instant.parse(text).toEpochMilli();
        } catch (DateTimeException wrong) {
            throw failed("prints an Expiration that is no time");
        }
    }

    private static IOException failed(String how) {
        return new IOException("the credential_process of the AWS profile " + how
                + ". Its standard error, which the log of this JVM has, may say why");
    }
}
