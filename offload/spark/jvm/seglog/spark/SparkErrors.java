package seglog.spark;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Map$;

/**
 * The errors of loads, plans and tasks, as Spark throws its own.
 *
 * <p>PySpark raises an AnalysisException as its own class of that name, whose text is the message alone. An exception of
 * any other package reaches a Python user as a Py4JJavaError with the trace of the JVM. So does an error of a task, unless
 * it has a condition: Spark hands such an error on as it is.
 */
final class SparkErrors {
    private static final Pattern PYTHON =
            Pattern.compile("^(?:seglog|catalog|offload)[.][\\w.]*?(\\w+): (.*)(?:\nHint: (.*))?", Pattern.MULTILINE);

    private SparkErrors() {}

    /** Return the error for a {@code throw}. Its text is one line. Its condition is the name of seglog's error. */
    static RuntimeException shown(Exception error) {
        String name = error instanceof PlannerFailure failure
                ? failure.type()
                : error.getClass().getSimpleName();
        throw SparkErrors.<RuntimeException>unchecked(new AnalysisException(
                (name + ": " + error.getMessage()).replaceAll("\\s*\n\\s*", " "),
                Option.empty(),
                Option.empty(),
                new Some<>(error),
                new Some<>(name),
                Map$.MODULE$.empty(),
                new QueryContext[0]));
    }

    /**
     * Return the error of a write for a {@code throw}: in one line if an error of the writer in Python is its cause.
     *
     * <p>Spark has that error as the last lines of a traceback: the class with its module, the message, and the hint.
     */
    static RuntimeException ofWriter(Exception error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            Matcher found = PYTHON.matcher(String.valueOf(cause.getMessage()));
            PlannerFailure failure = null;
            while (found.find()) {
                failure = new PlannerFailure(found.group(1), found.group(2), found.group(3));
            }
            if (failure != null) {
                failure.initCause(error);
                throw shown(failure);
            }
        }
        throw SparkErrors.<RuntimeException>unchecked(error);
    }

    /** Spark's methods declare no checked exceptions, although Spark throws them there. */
    @SuppressWarnings("unchecked")
    private static <E extends Throwable> E unchecked(Throwable error) throws E {
        throw (E) error;
    }
}
