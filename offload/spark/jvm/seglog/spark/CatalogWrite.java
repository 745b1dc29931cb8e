package seglog.spark;

import java.util.Map;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.InsertableRelation;

/** An {@code INSERT INTO} a table of a catalog. Spark hands it all rows as one DataFrame, as a {@link Load} needs. */
record CatalogWrite(Map<String, String> options) implements SupportsOverwriteV2, SupportsDynamicOverwrite, V1Write {
    @Override
    public V1Write build() {
        SeglogProvider.checkWrites();
        return this;
    }

    @Override
    public InsertableRelation toInsertableRelation() {
        return (rows, isOverwrite) -> Load.run(rows, options);
    }

    @Override
    public WriteBuilder overwrite(Predicate[] predicates) {
        throw SeglogCatalog.refused();
    }

    @Override
    public WriteBuilder overwriteDynamicPartitions() {
        throw SeglogCatalog.refused();
    }
}
