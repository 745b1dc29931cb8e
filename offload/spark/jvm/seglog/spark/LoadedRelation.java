package seglog.spark;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

/** The answer to a save(), which Spark needs and nobody reads. */
final class LoadedRelation extends BaseRelation {
    private final SQLContext context;
    private final StructType schema;

    LoadedRelation(SQLContext context, StructType schema) {
        this.context = context;
        this.schema = schema;
    }

    @Override
    public SQLContext sqlContext() {
        return context;
    }

    @Override
    public StructType schema() {
        return schema;
    }
}
