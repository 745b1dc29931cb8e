package seglog.spark;

import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The records of a topic, as a catalog has them: at the version that the catalog pinned when Spark found the table.
 *
 * <p>It claims to take batches, so that Spark lets it refuse them in its own words. Spark 4 asks the catalog first.
 */
final class CatalogTable extends SeglogTable implements SupportsWrite, TruncatableTable {
    private final String name;
    private final Question question;
    private final boolean isPast;

    CatalogTable(String name, Question question, boolean isPast) {
        super(() -> question, question.offered());
        this.name = name;
        this.question = question;
        this.isPast = isPast;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(
                TableCapability.BATCH_READ,
                TableCapability.MICRO_BATCH_READ,
                TableCapability.ACCEPT_ANY_SCHEMA,
                TableCapability.BATCH_WRITE,
                TableCapability.OVERWRITE_BY_FILTER,
                TableCapability.OVERWRITE_DYNAMIC,
                TableCapability.TRUNCATE);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new SeglogScanBuilder(question.with(options, isPast), question.offered());
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo write) {
        throw SeglogCatalog.refused();
    }

    @Override
    public boolean truncateTable() {
        throw SeglogCatalog.refused();
    }
}
