package seglog.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The source that Spark knows as {@code seglog}. Spark makes one for each load.
 *
 * <p>The load pins the version, so every action on its DataFrame sees the same commits. With {@code option("reader",
 * "python")} the Python source of the same name serves, if the session has registered it.
 */
public final class SeglogProvider implements TableProvider, DataSourceRegister {
    private static final String NAME = "seglog";
    private static final String READER = "reader";

    /** The system property with the reader of loads that name none. */
    private static final String DEFAULT_READER = "seglog.reader";

    private Question question;
    private PythonDataSourceV2 python;

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
            return python().getTable(schema, partitioning, properties);
        }
        return new SeglogTable(pinned(options), schema);
    }

    /** A user may name the columns with {@code schema(...)}. */
    @Override
    public boolean supportsExternalMetadata() {
        return true;
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

    private PythonDataSourceV2 python() {
        if (python == null) {
            python = new PythonDataSourceV2();
            python.setShortName(NAME);
        }
        return python;
    }
}
