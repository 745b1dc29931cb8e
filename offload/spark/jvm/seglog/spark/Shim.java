package seglog.spark;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.connector.catalog.TableProvider;

/**
 * What differs between the versions of Spark, and of the Hadoop that comes with them.
 *
 * <p>An implementation is compiled against its own versions, and loaded by its name where one of them runs. All other
 * classes of the jar are the same bytes whichever version they are compiled against, so that one jar serves all.
 */
interface Shim {
    /** Return the source in Python of this name, which the session gets if it lacks it. Spark 3 has no such sources. */
    TableProvider pythonSource(String name);

    /**
     * Return the rows as a DataFrame whose plan no other has. So what another one keeps or drops is none of its caches.
     *
     * <p>Spark allows only one action on a micro-batch, and any number on this.
     */
    Dataset<Row> ofRows(Dataset<Row> data);

    /** Return the bytes of each range of an object. */
    byte[][] readAll(FSDataInputStream stream, List<ByteRange> ranges) throws IOException;

    /** Return the implementation for the Spark that runs. */
    static Shim get() {
        return Chosen.SHIM;
    }

    /** The choice, made once. */
    final class Chosen {
        private static final Shim SHIM = shim();

        private Chosen() {}

        private static Shim shim() {
            String major = org.apache.spark.package$.MODULE$.SPARK_VERSION().startsWith("3.") ? "3" : "4";
            try {
                return (Shim) Class.forName("seglog.spark.Shim" + major)
                        .getDeclaredConstructor()
                        .newInstance();
            } catch (ReflectiveOperationException absent) {
                throw new IllegalStateException("seglog's jar is not whole", absent);
            }
        }
    }
}
