package seglog.spark;

import java.io.IOException;
import java.util.concurrent.ExecutorService;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * The driver's answer to executors that ask for credentials.
 *
 * <p>Question and answer are of classes of Java's own, because Spark's RPC does not look into the jars of a job. A thread
 * of its own waits for the planner, so that no thread of Spark's RPC waits.
 */
final class CredentialsEndpoint implements RpcEndpoint {
    static final String NAME = "seglog-credentials";
    static final String QUESTION = "credentials";

    private static final ExecutorService THREADS = Threads.named("seglog-credentials");

    /** The RPC that has the endpoint. Another SparkContext has another RPC. */
    private static RpcEnv opened;

    private final RpcEnv rpcEnv;

    private CredentialsEndpoint(RpcEnv rpcEnv) {
        this.rpcEnv = rpcEnv;
    }

    static synchronized void open(RpcEnv rpcEnv) {
        if (opened != rpcEnv) {
            rpcEnv.setupEndpoint(NAME, new CredentialsEndpoint(rpcEnv));
            opened = rpcEnv;
        }
    }

    static Credentials decode(String[] answer) {
        return new Credentials(answer[0], answer[1], answer[2], Long.parseLong(answer[3]));
    }

    @Override
    public RpcEnv rpcEnv() {
        return rpcEnv;
    }

    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
        return new AbstractPartialFunction<>() {
            @Override
            public boolean isDefinedAt(Object question) {
                return QUESTION.equals(question);
            }

            @Override
            public BoxedUnit apply(Object question) {
                THREADS.execute(() -> answer(context));
                return BoxedUnit.UNIT;
            }
        };
    }

    private static void answer(RpcCallContext context) {
        try {
            Credentials found = HandedCredentials.SOURCE.current();
            context.reply(new String[] {
                found.accessKey(), found.secretKey(), found.sessionToken(), Long.toString(found.expiresMs())
            });
        } catch (SeglogError | IOException error) {
            context.sendFailure(new IOException(error.getMessage()));
        }
    }
}
