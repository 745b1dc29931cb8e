package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkException;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.util.RpcUtils;
import scala.reflect.ClassTag$;

/**
 * The credentials that the planner finds for the driver, such as a role of the machine or the container, or a single
 * sign-on. Executors without credentials of their own get them from the driver.
 *
 * <pre>
 * 1  A task needs credentials. Its JVM has none in the environment and none in a profile.
 * 2  In the JVM of the driver, the task asks the planner. On another machine, its executor asks the driver over Spark's
 *    RPC, and the driver asks the planner.
 * 3  The planner returns the credentials, and when they expire. Each JVM keeps them in memory.
 * 4  Shortly before they expire, or if the store refuses them as expired, step 1 comes again.
 * </pre>
 *
 * <p>They leave the driver only if Spark authenticates and encrypts its RPC. They are in no plan, no log and no setting.
 */
final class HandedCredentials {
    static final CredentialSource SOURCE = new CredentialSource(HandedCredentials::ask);

    private static final String NO_CREDENTIALS = "there are no AWS credentials for the JVM reader. Set AWS_ACCESS_KEY_ID"
            + " and AWS_SECRET_ACCESS_KEY for the executors, or a profile. The driver hands over its own if"
            + " spark.authenticate and spark.network.crypto.enabled are true. Or add hadoop-aws to Spark, or use"
            + " option(\"reader\", \"python\")";

    private HandedCredentials() {}

    /** Let executors ask this driver from now on, if Spark protects what they say to each other. */
    static void offer() {
        SparkEnv env = SparkEnv.get();
        if (!SparkContext.getOrCreate().isLocal() && isProtected(env.conf())) {
            CredentialsEndpoint.open(env.rpcEnv());
        }
    }

    /** Return credentials that the planner has found now. The caller is in the driver's JVM. */
    static Credentials ofPlanner() {
        JsonNode found = Planner.credentials();
        JsonNode expires = found.path("expires_at_ms");
        return new Credentials(
                found.path("access_key").asText(),
                found.path("secret_key").asText(),
                found.path("session_token").textValue(),
                expires.isNumber() ? expires.longValue() : Credentials.NEVER);
    }

    private static Credentials ask() throws IOException {
        SparkEnv env = SparkEnv.get();
        if (env == null) {
            throw new IOException(NO_CREDENTIALS);
        }
        if (env.executorId().equals("driver")) {
            return ofPlanner();
        }
        if (!isProtected(env.conf())) {
            throw new IOException(NO_CREDENTIALS);
        }
        return ofDriver(env);
    }

    private static Credentials ofDriver(SparkEnv env) throws IOException {
        try {
            RpcEndpointRef driver = RpcUtils.makeDriverRef(CredentialsEndpoint.NAME, env.conf(), env.rpcEnv());
            return CredentialsEndpoint.decode(
                    driver.askSync(CredentialsEndpoint.QUESTION, ClassTag$.MODULE$.apply(String[].class)));
        } catch (Exception failed) { // SparkException, which Scala's methods do not declare
            Throwable cause = failed instanceof SparkException && failed.getCause() != null ? failed.getCause() : failed;
            throw new IOException("the driver hands over no AWS credentials: " + cause.getMessage(), failed);
        }
    }

    private static boolean isProtected(SparkConf conf) {
        boolean isEncrypted = conf.getBoolean("spark.network.crypto.enabled", false)
                || conf.getBoolean("spark.authenticate.enableSaslEncryption", false)
                || conf.getBoolean("spark.ssl.rpc.enabled", false);
        return isEncrypted && conf.getBoolean("spark.authenticate", false);
    }
}
