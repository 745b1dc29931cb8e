package seglog.spark;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Objects of an S3 bucket through ranged GETs over HTTP, for a Spark without Hadoop's S3 client.
 *
 * <p>A store that is busy or does not answer is asked again, with a pause that grows. A store that refuses credentials as
 * old is asked again if there are others. Only the answer NoSuchKey means that an object is absent.
 */
final class HttpBytes implements ByteSource {
    private static final int ATTEMPTS = 6;
    private static final long FIRST_PAUSE_MS = 100;
    private static final int CONNECT_S = 10;
    private static final int ANSWER_S = 60;
    private static final int ERROR_TEXT = 2_000;
    private static final Set<String> OLD_CREDENTIALS =
            Set.of("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "InvalidTokenId", "TokenRefreshRequired");
    private static final Pattern CODE = Pattern.compile("<Code>([A-Za-z]+)</Code>");
    private static final Pattern CONTENT_RANGE = Pattern.compile("bytes (\\d+)-(\\d+)/(\\d+)");
    private static final HttpClient CLIENT = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofSeconds(CONNECT_S))
            .build();

    private final String base;
    private final AwsSettings settings;
    private final int answerSeconds;

    /** {@code url} is the remote, {@code s3://bucket/prefix}. */
    HttpBytes(String url, AwsSettings settings) {
        this(url, settings, ANSWER_S);
    }

    HttpBytes(String url, AwsSettings settings, int answerSeconds) {
        String[] remote = url.substring("s3://".length()).split("/", 2);
        this.settings = settings;
        this.answerSeconds = answerSeconds;
        this.base = place(remote[0]) + (remote.length < 2 ? "" : path("/" + remote[1]));
    }

    @Override
    public byte[] read(String key, long offset, int length) throws IOException {
        if (length == 0) {
            return new byte[0];
        }
        URI uri = URI.create(base + path("/" + key));
        for (int attempt = 1; ; attempt++) {
            Credentials credentials = settings.credentials().current();
            try {
                return body(get(uri, credentials, offset, length), key, offset, length);
            } catch (Refused refusal) {
                boolean isOld = OLD_CREDENTIALS.contains(refusal.code);
                if (!isOld || attempt == ATTEMPTS || !settings.credentials().replaced(credentials)) {
                    throw new IOException(refusal.getMessage(), refusal);
                }
            } catch (Unanswered busy) {
                if (attempt == ATTEMPTS) {
                    throw new IOException("cannot read " + uri + " after " + ATTEMPTS + " attempts: "
                            + busy.getMessage(), busy);
                }
                pause(attempt);
            }
        }
    }

    private HttpResponse<byte[]> get(URI uri, Credentials credentials, long offset, int length) throws IOException {
        HttpRequest.Builder request = HttpRequest.newBuilder(uri)
                .GET()
                .header("range", "bytes=" + offset + "-" + (offset + length - 1));
        SignatureV4.headers(uri, settings.region(), credentials, Instant.now()).forEach(request::header);
        CompletableFuture<HttpResponse<byte[]>> answer =
                CLIENT.sendAsync(request.build(), HttpResponse.BodyHandlers.ofByteArray());
        try {
            return answer.get(answerSeconds, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            throw new Unanswered(String.valueOf(failed.getCause()), failed.getCause());
        } catch (TimeoutException slow) {
            answer.cancel(true);
            throw new Unanswered("no whole answer within " + answerSeconds + " s", slow);
        } catch (InterruptedException interrupt) {
            answer.cancel(true);
            throw Threads.interrupted(interrupt);
        }
    }

    /** Return the body of an answer that has exactly the range. */
    private static byte[] body(HttpResponse<byte[]> answer, String key, long offset, int length) throws IOException {
        int status = answer.statusCode();
        byte[] body = answer.body();
        if (status == 206) {
            Matcher range = CONTENT_RANGE.matcher(answer.headers().firstValue("content-range").orElse(""));
            if (!range.matches() || Long.parseLong(range.group(1)) != offset) {
                throw new IOException("the store answered another range of " + key + " than was asked for");
            }
            long size = Long.parseLong(range.group(3));
            if (size < offset + length) {
                throw InvalidObject.ended(key, size, offset + length);
            }
            if (body.length != length) {
                throw new Unanswered(body.length + " bytes of " + length, null);
            }
            return body;
        }
        String text = new String(body, 0, Math.min(body.length, ERROR_TEXT), StandardCharsets.UTF_8);
        Matcher found = CODE.matcher(text);
        String code = found.find() ? found.group(1) : "status " + status;
        if (status == 404 && code.equals("NoSuchKey")) {
            throw new NoSuchObject(key);
        }
        if (status == 416) {
            throw InvalidObject.ended(key, offset, offset + length);
        }
        if (status >= 500 || status == 429 || status == 408) {
            throw new Unanswered(code, null);
        }
        throw new Refused(key, code);
    }

    private static void pause(int attempt) throws IOException {
        long longest = FIRST_PAUSE_MS << attempt;
        try {
            Thread.sleep(ThreadLocalRandom.current().nextLong(longest / 2, longest));
        } catch (InterruptedException interrupt) {
            throw Threads.interrupted(interrupt);
        }
    }

    /** Return the URL of the bucket. A store that is not AWS has the bucket's name in the path. */
    private String place(String bucket) {
        if (settings.endpoint() == null && !bucket.contains(".")) {
            return "https://" + bucket + ".s3." + settings.region() + ".amazonaws.com";
        }
        String endpoint = settings.endpoint() == null
                ? "https://s3." + settings.region() + ".amazonaws.com"
                : settings.endpoint().replaceAll("/+$", "");
        return endpoint + "/" + bucket;
    }

    /** Return the path with everything encoded but letters, digits, {@code -._~} and the slashes. */
    private static String path(String path) {
        StringBuilder encoded = new StringBuilder();
        for (byte one : path.replaceAll("/+$", "").getBytes(StandardCharsets.UTF_8)) {
            char letter = (char) (one & 0xFF);
            boolean isPlain = letter < 0x80 && Character.isLetterOrDigit(letter) || "-._~/".indexOf(letter) >= 0;
            encoded.append(isPlain ? String.valueOf(letter) : String.format("%%%02X", (int) letter));
        }
        return encoded.toString();
    }

    /** The store does not allow the read. */
    private static final class Refused extends IOException {
        private static final long serialVersionUID = 1;

        private final String code;

        Refused(String key, String code) {
            super("the store refuses to read " + key + ": " + code);
            this.code = code;
        }
    }

    /** The store gave no answer, or asked for patience. Another attempt may succeed. */
    private static final class Unanswered extends IOException {
        private static final long serialVersionUID = 1;

        Unanswered(String message, Throwable cause) {
            super(message, cause);
        }
    }
}
