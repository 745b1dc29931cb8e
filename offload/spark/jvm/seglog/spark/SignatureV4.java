package seglog.spark;

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** AWS's signature of a GET request, version 4. */
final class SignatureV4 {
    private static final String ALGORITHM = "AWS4-HMAC-SHA256";
    private static final DateTimeFormatter TIME =
            DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
    private static final String EMPTY_BODY = HexFormat.of().formatHex(digest(""));

    private SignatureV4() {}

    /** Return the headers that a GET of {@code uri} needs. Its path is encoded, and it has no query. */
    static Map<String, String> headers(URI uri, String region, Credentials credentials, Instant now) {
        String time = TIME.format(now);
        Map<String, String> headers = new TreeMap<>();
        headers.put("x-amz-content-sha256", EMPTY_BODY);
        headers.put("x-amz-date", time);
        if (credentials.sessionToken() != null) {
            headers.put("x-amz-security-token", credentials.sessionToken());
        }
        Map<String, String> signed = new TreeMap<>(headers);
        signed.put("host", uri.getRawAuthority());
        StringBuilder canonical = new StringBuilder("GET\n" + uri.getRawPath() + "\n\n");
        signed.forEach((name, value) -> canonical.append(name).append(':').append(value).append('\n'));
        String names = String.join(";", signed.keySet());
        canonical.append('\n').append(names).append('\n').append(EMPTY_BODY);

        String scope = time.substring(0, 8) + "/" + region + "/s3/aws4_request";
        String text = String.join("\n", ALGORITHM, time, scope, hex(digest(canonical.toString())));
        byte[] key = ("AWS4" + credentials.secretKey()).getBytes(StandardCharsets.UTF_8);
        for (String part : scope.split("/")) {
            key = keyed(key, part);
        }
        headers.put(
                "authorization",
                ALGORITHM + " Credential=" + credentials.accessKey() + "/" + scope + ", SignedHeaders=" + names
                        + ", Signature=" + hex(keyed(key, text)));
        return headers;
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private static byte[] digest(String text) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        } catch (GeneralSecurityException absent) {
            throw new IllegalStateException(absent); // every Java has SHA-256
        }
    }

    private static byte[] keyed(byte[] key, String text) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac.doFinal(text.getBytes(StandardCharsets.UTF_8));
        } catch (GeneralSecurityException absent) {
            throw new IllegalStateException(absent); // every Java has HmacSHA256
        }
    }
}
