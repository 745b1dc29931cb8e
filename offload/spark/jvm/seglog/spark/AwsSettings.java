package seglog.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.function.UnaryOperator;

/**
 * Endpoint, region and credentials, as every AWS tool reads them: from the environment, else from a profile's files.
 *
 * <p>This class does not read roles of machines, single sign-ons and programs that give credentials: the planner finds
 * these for the driver, and {@link HandedCredentials} brings them here.
 */
record AwsSettings(String endpoint, String region, CredentialSource credentials) {
    static AwsSettings read(UnaryOperator<String> environment) throws IOException {
        Map<String, String> profile = profile(environment);
        String endpoint = first(
                environment.apply("AWS_ENDPOINT_URL_S3"),
                environment.apply("AWS_ENDPOINT_URL"),
                profile.get("endpoint_url"));
        String region = first(
                environment.apply("AWS_REGION"),
                environment.apply("AWS_DEFAULT_REGION"),
                profile.get("region"),
                "us-east-1");
        boolean hasOwn = own(environment) != null;
        CredentialSource credentials =
                hasOwn ? new CredentialSource(() -> stillOwn(environment)) : HandedCredentials.SOURCE;
        return new AwsSettings(endpoint, region, credentials);
    }

    /** Return what the environment or the profile has now. A program may write a profile again. */
    private static Credentials stillOwn(UnaryOperator<String> environment) throws IOException {
        Credentials found = own(environment);
        if (found == null) {
            throw new IOException("the AWS profile has no credentials any more");
        }
        return found;
    }

    /** Return the credentials of the environment, else of the profile; null if neither has any. */
    private static Credentials own(UnaryOperator<String> environment) throws IOException {
        boolean isInEnvironment = first(environment.apply("AWS_ACCESS_KEY_ID")) != null;
        Map<String, String> profile = isInEnvironment ? Map.of() : profile(environment);
        UnaryOperator<String> source = isInEnvironment
                ? name -> environment.apply("AWS_" + name)
                : name -> profile.get("aws_" + name.toLowerCase(Locale.ROOT));
        String accessKey = first(source.apply("ACCESS_KEY_ID"));
        String secretKey = first(source.apply("SECRET_ACCESS_KEY"));
        boolean isWhole = accessKey != null && secretKey != null;
        String sessionToken = first(source.apply("SESSION_TOKEN"));
        return isWhole ? new Credentials(accessKey, secretKey, sessionToken, Credentials.NEVER) : null;
    }

    private static Map<String, String> profile(UnaryOperator<String> environment) throws IOException {
        String name = first(environment.apply("AWS_PROFILE"), environment.apply("AWS_DEFAULT_PROFILE"), "default");
        String home = first(environment.apply("HOME"), System.getProperty("user.home"));
        Map<String, String> found = new HashMap<>();
        String config = first(environment.apply("AWS_CONFIG_FILE"), home + "/.aws/config");
        String heading = name.equals("default") ? name : "profile " + name;
        addSection(found, Path.of(config), heading);
        String secrets = first(environment.apply("AWS_SHARED_CREDENTIALS_FILE"), home + "/.aws/credentials");
        addSection(found, Path.of(secrets), name);
        return found;
    }

    private static void addSection(Map<String, String> found, Path file, String heading) throws IOException {
        if (!Files.isRegularFile(file)) {
            return;
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
    }

    private static String first(String... values) {
        for (String value : values) {
            if (value != null && !value.isEmpty()) {
                return value;
            }
        }
        return null;
    }
}
