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
 * <p>It takes appends. It claims to take overwrites as well, so that Spark lets it refuse them in its own words. The
 * catalog refuses most of them first.
 */
final class CatalogTable extends SeglogTable implements SupportsWrite, TruncatableTable {
    private final String name;
    private final Question question;
    private final Version version;

    /** What said which version the table shows. */
    enum Version {
        NEWEST,
        STATEMENT,
        TAG_TABLE
    }

    CatalogTable(String name, Question question, Version version) {
        super(() -> question, question.offered());
        this.name = name;
        this.question = question;
        this.version = version;
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
                TableCapability.V1_BATCH_WRITE,
                TableCapability.OVERWRITE_BY_FILTER,
                TableCapability.OVERWRITE_DYNAMIC,
                TableCapability.TRUNCATE);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        if (version == Version.TAG_TABLE) {
            question.checkNoVersion(options.keySet(), "read another version of the topic by the table of the topic");
        }
        return new SeglogScanBuilder(question.with(options, version == Version.STATEMENT), question.offered());
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo write) {
        if (version != Version.NEWEST || question.isPast() || question.isFeed()) {
            String shown = question.isFeed() ? " shows changes" : " shows a past state";
            throw SeglogCatalog.refused(name + shown, "insert into the topic, or into a branch of it");
        }
        return new CatalogWrite(question.writing(write.options()));
    }

    @Override
    public boolean truncateTable() {
        throw SeglogCatalog.refused();
    }
}
