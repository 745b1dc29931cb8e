package seglog.spark;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.connector.catalog.TableProvider;

/** Spark 3.5, which reads topics and writes none. Its oldest Hadoop reads one range at a time. */
final class Shim3 implements Shim {
    Shim3() {}

    @Override
    public TableProvider pythonSource(String name) {
        throw SparkErrors.shown(new PlannerFailure(
                "NotInstalled",
                "writes and option reader=python need sources in Python, which Spark has since version 4",
                "read with Spark 3.5, and write with Spark 4 or newer, or with seglog itself"));
    }

    @Override
    public Dataset<Row> ofRows(Dataset<Row> data) { // never called: each write is refused above
        throw new UnsupportedOperationException("Spark 3.5 writes no topics");
    }

    @Override
    public byte[][] readAll(FSDataInputStream stream, List<ByteRange> ranges) throws IOException {
        byte[][] found = new byte[ranges.size()][];
        for (int number = 0; number < found.length; number++) {
            found[number] = new byte[ranges.get(number).length()];
            stream.readFully(ranges.get(number).offset(), found[number]);
        }
        return found;
    }
}
