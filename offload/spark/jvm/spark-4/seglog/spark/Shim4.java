package seglog.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.execution.datasources.DataSourceManager;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;

/** Spark 4. A stream of its Hadoop's S3 client reads ranges side by side, and joins those that are near to each other. */
final class Shim4 implements Shim {
    Shim4() {}

    @Override
    public TableProvider pythonSource(String name) {
        DataSourceManager known = SparkSession.active().sessionState().dataSourceManager();
        if (!known.dataSourceExists(name)) {
            known.registerDataSource(name, new UserDefinedPythonDataSource(pythonClass()));
        }
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(name);
        return source;
    }

    /** Return the source in Python as `register` of the Python package pickles it: by its name. */
    private static PythonFunction pythonClass() {
        byte[] pickle = "coffload.spark.source\nPythonDataSource\n.".getBytes(StandardCharsets.US_ASCII);
        Map<String, String> environment = new HashMap<>(); // Spark adds its own variables
        ExecutorVariables.putInto(environment);
        return new SimplePythonFunction(
                pickle, environment, List.of(), PlannerCommand.workers(), Planner.python(), List.of(), null);
    }

    @Override
    public Dataset<Row> ofRows(Dataset<Row> data) {
        org.apache.spark.sql.classic.Dataset<Row> classic = (org.apache.spark.sql.classic.Dataset<Row>) data;
        RDD<InternalRow> rows = classic.queryExecution().toRdd();
        return classic.sparkSession().internalCreateDataFrame(rows, data.schema(), false);
    }

    @Override
    public byte[][] readAll(FSDataInputStream stream, List<ByteRange> ranges) throws IOException {
        List<FileRange> asked = new ArrayList<>();
        ranges.forEach(range -> asked.add(FileRange.createFileRange(range.offset(), range.length())));
        stream.readVectored(asked, ByteBuffer::allocate);
        byte[][] found = new byte[asked.size()][];
        for (int number = 0; number < found.length; number++) {
            found[number] = whole(Threads.result(asked.get(number).getData()));
        }
        return found;
    }

    /** Return the bytes of a buffer. A stream that joined ranges gives parts of a larger array. */
    private static byte[] whole(ByteBuffer found) {
        if (found.hasArray() && found.array().length == found.remaining()) {
            return found.array();
        }
        byte[] bytes = new byte[found.remaining()];
        found.get(bytes);
        return bytes;
    }
}
