package seglog.spark;

import java.io.File;
import java.io.IOException;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/**
 * The command that starts the planner: a Python of the driver, with the environment of the executors' Python.
 *
 * <p>{@code register} of the Python package sets both system properties to the Python that called it. Without them, the
 * planner gets the Python that Spark would start.
 */
final class PlannerCommand {
    static final String PYTHON = "seglog.python";
    static final String PYTHON_PATH = "seglog.python.path";

    private PlannerCommand() {}

    static Process start() throws IOException {
        ProcessBuilder builder = new ProcessBuilder(List.of(python(), "-m", "offload.spark.planner"));
        ExecutorVariables.putInto(builder.environment());
        String path = System.getProperty(PYTHON_PATH);
        if (path != null) {
            builder.environment().merge("PYTHONPATH", path, (old, added) -> added + File.pathSeparator + old);
        }
        return builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    static String python() {
        SparkConf conf = conf();
        String python = System.getProperty(PYTHON);
        for (String name : new String[] {"spark.pyspark.driver.python", "spark.pyspark.python"}) {
            python = python == null ? conf.get(name, null) : python;
        }
        for (String name : new String[] {"PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"}) {
            python = python == null ? System.getenv(name) : python;
        }
        return python == null ? "python3" : python;
    }

    /** Return the Python of the executors, as PySpark chooses it. */
    static String workers() {
        String python = conf().get("spark.pyspark.python", System.getenv("PYSPARK_PYTHON"));
        return python == null ? python() : python;
    }

    private static SparkConf conf() {
        return SparkEnv.get() == null ? new SparkConf() : SparkEnv.get().conf();
    }
}
