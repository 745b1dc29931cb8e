package seglog.spark;

import java.io.IOException;
import java.util.function.UnaryOperator;

/**
 * Endpoint, region and credentials, as every AWS tool reads them: from the environment, else from a profile's files. A
 * profile may name a program that gives the credentials.
 *
 * <p>This class does not read roles of machines and single sign-ons: the planner finds these for the driver, and
 * {@link HandedCredentials} brings them here.
 */
record AwsSettings(String endpoint, String region, CredentialSource credentials) {
    static AwsSettings read(UnaryOperator<String> environment) throws IOException {
        AwsProfile profile = AwsProfile.read(environment);
        String endpoint = first(
                environment.apply("AWS_ENDPOINT_URL_S3"),
                environment.apply("AWS_ENDPOINT_URL"),
                profile.get("endpoint_url"));
        String region = first(
                environment.apply("AWS_REGION"),
                environment.apply("AWS_DEFAULT_REGION"),
                profile.get("region"),
                "us-east-1");
        return new AwsSettings(endpoint, region, source(environment, profile));
    }

    private static CredentialSource source(UnaryOperator<String> environment, AwsProfile profile) {
        Credentials own = own(environment);
        if (own != null) {
            return new CredentialSource(() -> own);
        }
        if (profile.program() != null) {
            return CredentialProgram.source(profile.program());
        }
        return profile.keys() == null
                ? HandedCredentials.SOURCE
                : new CredentialSource(() -> stillThere(AwsProfile.read(environment)));
    }

    /** Return what the profile has now. A program may write a profile again. */
    private static Credentials stillThere(AwsProfile profile) throws IOException {
        Credentials found = profile.keys();
        if (found == null) {
            throw new IOException("the AWS profile has no credentials any more");
        }
        return found;
    }

    /** Return the credentials of the environment; null if it has none. */
    private static Credentials own(UnaryOperator<String> environment) {
        String accessKey = first(environment.apply("AWS_ACCESS_KEY_ID"));
        String secretKey = first(environment.apply("AWS_SECRET_ACCESS_KEY"));
        boolean isWhole = accessKey != null && secretKey != null;
        String sessionToken = first(environment.apply("AWS_SESSION_TOKEN"));
        return isWhole ? new Credentials(accessKey, secretKey, sessionToken, Credentials.NEVER) : null;
    }

    /** Return the first text that is not empty; null if there is none. */
    static String first(String... values) {
        for (String value : values) {
            if (value != null && !value.isEmpty()) {
                return value;
            }
        }
        return null;
    }
}
