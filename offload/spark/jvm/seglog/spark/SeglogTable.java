package seglog.spark;

import java.util.Arrays;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The records of a load(), in the columns that the user chose: at one pinned version, or as a stream.
 *
 * <p>The first look at the columns pins the version. Spark looks during load(), and never if it only writes.
 */
class SeglogTable implements SupportsRead {
    private final Supplier<Question> question;
    private final StructType schema;

    SeglogTable(Supplier<Question> question, StructType schema) {
        this.question = question;
        this.schema = schema;
    }

    @Override
    public String name() {
        return "seglog";
    }

    /** Older versions of Spark ask this, and not {@link #columns}. */
    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        question.get();
        return schema;
    }

    @Override
    public Column[] columns() {
        question.get();
        return Arrays.stream(schema.fields())
                .map(field -> Column.create(field.name(), field.dataType(), field.nullable()))
                .toArray(Column[]::new);
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new SeglogScanBuilder(question.get(), question.get().chosen(schema));
    }
}
