package seglog.spark;

import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * The variables that {@code spark.executorEnv} sets. On a cluster, Spark puts them into the environment of the executors.
 * The driver has them in the configuration only, and so does local mode.
 */
final class ExecutorVariables {
    private static final String PREFIX = "spark.executorEnv.";

    private ExecutorVariables() {}

    /** Return a variable of this name, else the one of this process; null if there is none. */
    static String get(String name) {
        String variable = conf().get(PREFIX + name, null);
        return variable == null ? System.getenv(name) : variable;
    }

    /** Set them in the environment of a process. */
    static void putInto(Map<String, String> environment) {
        for (scala.Tuple2<String, String> variable : conf().getAllWithPrefix(PREFIX)) {
            environment.put(variable._1(), variable._2());
        }
    }

    private static SparkConf conf() {
        return SparkEnv.get() == null ? new SparkConf() : SparkEnv.get().conf();
    }
}
