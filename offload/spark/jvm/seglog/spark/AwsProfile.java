package seglog.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.function.UnaryOperator;

/** A profile, as its two files have it: the configuration and the credentials. The text of this value has no secret. */
record AwsProfile(Map<String, String> configuration, Map<String, String> secrets) {
    private static final String ACCESS_KEY = "aws_access_key_id";
    private static final String SECRET_KEY = "aws_secret_access_key";

    static AwsProfile read(UnaryOperator<String> environment) throws IOException {
        String name = AwsSettings.first(
                environment.apply("AWS_PROFILE"), environment.apply("AWS_DEFAULT_PROFILE"), "default");
        String home = AwsSettings.first(environment.apply("HOME"), System.getProperty("user.home"));
        String config = AwsSettings.first(environment.apply("AWS_CONFIG_FILE"), home + "/.aws/config");
        String secrets =
                AwsSettings.first(environment.apply("AWS_SHARED_CREDENTIALS_FILE"), home + "/.aws/credentials");
        String heading = name.equals("default") ? name : "profile " + name;
        return new AwsProfile(section(Path.of(config), heading), section(Path.of(secrets), name));
    }

    /** Return a value of either file; null if neither has one. */
    String get(String key) {
        return AwsSettings.first(secrets.get(key), configuration.get(key));
    }

    /** Return the program that gives the credentials; null if there is none. Keys in the credentials file go before it. */
    String program() {
        return keys(secrets) == null ? get("credential_process") : null;
    }

    /** Return the keys; null if there are none. */
    Credentials keys() {
        Credentials found = keys(secrets);
        return found == null ? keys(configuration) : found;
    }

    @Override
    public String toString() {
        return "AwsProfile[]";
    }

    private static Credentials keys(Map<String, String> found) {
        String accessKey = AwsSettings.first(found.get(ACCESS_KEY));
        String secretKey = AwsSettings.first(found.get(SECRET_KEY));
        boolean isWhole = accessKey != null && secretKey != null;
        String sessionToken = AwsSettings.first(found.get("aws_session_token"));
        return isWhole ? new Credentials(accessKey, secretKey, sessionToken, Credentials.NEVER) : null;
    }

    private static Map<String, String> section(Path file, String heading) throws IOException {
        Map<String, String> found = new HashMap<>();
        if (!Files.isRegularFile(file)) {
            return found;
        }
        boolean isInside = false;
        for (String line : Files.readAllLines(file)) {
            String text = line.strip();
            if (text.startsWith("[") && text.endsWith("]")) {
                isInside = text.substring(1, text.length() - 1).strip().equals(heading);
            } else if (isInside && !line.startsWith(" ") && text.contains("=") && !text.startsWith("#")) {
                int sign = text.indexOf('=');
                found.put(text.substring(0, sign).strip(), text.substring(sign + 1).strip());
            }
        }
        return found;
    }
}
