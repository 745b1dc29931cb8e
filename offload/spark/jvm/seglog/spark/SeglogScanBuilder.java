package seglog.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/**
 * Takes from the optimizer all that narrows a scan: columns, filters, aggregates, a limit.
 *
 * <p>A filter that the planner knows is met by each row of the scan. So Spark tests no row again, and may push aggregates
 * and a limit through the filters.
 */
final class SeglogScanBuilder
        implements SupportsPushDownRequiredColumns,
                SupportsPushDownV2Filters,
                SupportsPushDownAggregates,
                SupportsPushDownLimit {
    private final Question question;
    private final ArrayNode filters = Planner.JSON.createArrayNode();
    private final List<Predicate> pushed = new ArrayList<>();
    private StructType schema;
    private PushedAggregates aggregates;
    private AggregateQuestion asked;
    private Integer limit;

    SeglogScanBuilder(Question question, StructType schema) {
        this.question = question;
        this.schema = schema;
    }

    @Override
    public void pruneColumns(StructType required) {
        schema = required;
    }

    /** Return the filters that are left to Spark: in a feed of changes all, because a removal has nulls. */
    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        if (question.isFeed()) {
            return predicates;
        }
        List<Predicate> left = new ArrayList<>();
        for (Predicate predicate : predicates) {
            ObjectNode filter = PushedFilters.translated(predicate);
            if (filter == null) {
                left.add(predicate);
            } else {
                filters.add(filter);
                pushed.add(predicate);
            }
        }
        return left.toArray(Predicate[]::new);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return pushed.toArray(Predicate[]::new);
    }

    @Override
    public boolean supportCompletePushDown(Aggregation aggregation) {
        return answered(aggregation);
    }

    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        return answered(aggregation);
    }

    /** Ask the planner once. Without its answer Spark aggregates the rows itself. */
    private boolean answered(Aggregation aggregation) {
        AggregateQuestion wanted = AggregateQuestion.translated(aggregation);
        if (wanted == null) {
            return false;
        }
        if (!wanted.equals(asked)) {
            asked = wanted;
            aggregates = wanted.answer(question, filters);
        }
        return aggregates != null;
    }

    /** Spark keeps a limit of its own above the scan, because every task may stop early and none has to. */
    @Override
    public boolean pushLimit(int rows) {
        limit = rows;
        return true;
    }

    @Override
    public boolean isPartiallyPushed() {
        return true;
    }

    @Override
    public Scan build() {
        return aggregates != null ? aggregates : new SeglogScan(question, schema, filters, limit);
    }
}
