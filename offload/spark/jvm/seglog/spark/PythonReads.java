package seglog.spark;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The table of the Python source, without its writes: they need the rows of each partition, which Spark does not give. */
final class PythonReads implements SupportsRead {
    private static final Set<TableCapability> WRITES = EnumSet.of(
            TableCapability.BATCH_WRITE,
            TableCapability.STREAMING_WRITE,
            TableCapability.TRUNCATE,
            TableCapability.ACCEPT_ANY_SCHEMA);

    private final SupportsRead table;

    PythonReads(SupportsRead table) {
        this.table = table;
    }

    @Override
    public String name() {
        return table.name();
    }

    /** Older versions of Spark ask this, and not {@link #columns}. */
    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return table.schema();
    }

    @Override
    public Column[] columns() {
        return table.columns();
    }

    @Override
    public Set<TableCapability> capabilities() {
        EnumSet<TableCapability> reads = EnumSet.copyOf(table.capabilities());
        reads.removeAll(WRITES);
        return reads;
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return table.newScanBuilder(options);
    }
}
