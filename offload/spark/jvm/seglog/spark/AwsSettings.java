package seglog.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.function.UnaryOperator;

/**
 * Endpoint, region and credentials, as every AWS tool reads them: from the environment, else from a profile's files.
 *
 * <p>Roles of machines, web identities and programs that give credentials are not read here. The text of this value has
 * no secret.
 */
record AwsSettings(String endpoint, String region, String accessKey, String secretKey, String sessionToken) {
    private static final String NO_CREDENTIALS = "there are no AWS credentials for the JVM reader. Set AWS_ACCESS_KEY_ID"
            + " and AWS_SECRET_ACCESS_KEY for the executors, or a profile; for other sources of credentials add"
            + " hadoop-aws to Spark, or use option(\"reader\", \"python\")";

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
        boolean isInEnvironment = environment.apply("AWS_ACCESS_KEY_ID") != null;
        UnaryOperator<String> source = isInEnvironment
                ? name -> environment.apply("AWS_" + name)
                : name -> profile.get("aws_" + name.toLowerCase(java.util.Locale.ROOT));
        AwsSettings found = new AwsSettings(
                endpoint,
                region,
                source.apply("ACCESS_KEY_ID"),
                source.apply("SECRET_ACCESS_KEY"),
                source.apply("SESSION_TOKEN"));
        if (found.accessKey == null || found.secretKey == null) {
            throw new IOException(NO_CREDENTIALS);
        }
        return found;
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

    @Override
    public String toString() {
        return "AwsSettings[" + endpoint + ", " + region + "]";
    }
}
