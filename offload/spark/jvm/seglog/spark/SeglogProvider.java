package seglog.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The source and sink that Spark knows as {@code seglog}. Spark makes one for each load() and each save().
 *
 * <p>A load() pins the version, so every action on its DataFrame sees the same commits. With {@code option("reader",
 * "python")} the Python source serves, if the session has registered it.
 *
 * <p>The tables here take no writes. So Spark hands a DataFrame that is saved to {@link #createRelation}, and the
 * micro-batches of a stream to the sink. Both count the rows of each partition, and hand them to the Python source.
 */
public final class SeglogProvider
        implements TableProvider, DataSourceRegister, CreatableRelationProvider, StreamSinkProvider {
    static final String NAME = "seglog";

    /** The name of the source in Python. It is another one, because Spark lets no source in Python have a jar's name. */
    private static final String PYTHON = "seglog_python";

    private static final String READER = "reader";

    /** The system property with the reader of loads that name none. */
    private static final String DEFAULT_READER = "seglog.reader";

    private Question question;
    private TableProvider python;

    @Override
    public String shortName() {
        return NAME;
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return isPython(options) ? python().inferSchema(options) : pinned(options).offered();
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
        if (isPython(options)) {
            Table table = python().getTable(schema, partitioning, properties);
            return options.containsKey(Load.ROWS) ? table : new PythonReads((SupportsRead) table);
        }
        return new SeglogTable(() -> pinned(options), schema);
    }

    @Override
    public BaseRelation createRelation(
            SQLContext context,
            SaveMode mode,
            scala.collection.immutable.Map<String, String> parameters,
            Dataset<Row> data) {
        if (mode != SaveMode.Append) {
            throw SparkErrors.shown(new PlannerFailure(
                    "InvalidOption", "option mode: records are only appended", "use mode(\"append\")"));
        }
        checkWrites();
        Load.run(data, Load.options(parameters));
        return new LoadedRelation(context, data.schema());
    }

    /** Spark with Scala 2.13 calls this one. */
    public Sink createSink(
            SQLContext context,
            scala.collection.immutable.Map<String, String> parameters,
            scala.collection.immutable.Seq<String> partitionColumns,
            OutputMode outputMode) {
        return sink(parameters, partitionColumns.isEmpty(), outputMode);
    }

    /** Spark with Scala 2.12 calls this one. */
    public Sink createSink(
            SQLContext context,
            scala.collection.immutable.Map<String, String> parameters,
            scala.collection.Seq<String> partitionColumns,
            OutputMode outputMode) {
        return sink(parameters, partitionColumns.isEmpty(), outputMode);
    }

    private Sink sink(
            scala.collection.immutable.Map<String, String> parameters, boolean isWhole, OutputMode outputMode) {
        if (!outputMode.equals(OutputMode.Append()) || !isWhole) {
            throw SparkErrors.shown(new PlannerFailure(
                    "InvalidOption",
                    "option outputMode: records are only appended, and have no partitions",
                    "use outputMode(\"append\"), without partitionBy"));
        }
        checkWrites();
        return new LoadSink(Load.options(parameters));
    }

    /** A user may name the columns with {@code schema(...)}. */
    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    /** Refuse writes before their rows are computed, if the session lacks the writer in Python. */
    static void checkWrites() {
        Shim.get().pythonSource(PYTHON);
    }

    /** Start the planner, if none runs. If that fails, the error is one of Spark's. */
    public static void checkPlanner() {
        Planner.check();
    }

    private static boolean isPython(CaseInsensitiveStringMap options) {
        return "python".equals(options.getOrDefault(READER, System.getProperty(DEFAULT_READER, "jvm")));
    }

    private Question pinned(CaseInsensitiveStringMap options) {
        if (question == null) {
            question = Question.pinned(new HashMap<>(options)); // names in lower case, as Python gets them
        }
        return question;
    }

    private TableProvider python() {
        if (python == null) {
            python = Shim.get().pythonSource(PYTHON);
        }
        return python;
    }
}
