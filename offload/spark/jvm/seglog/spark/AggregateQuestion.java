package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;

/** The aggregates that a query wants of all rows, or of the rows of each topic or tag, in the planner's form. */
record AggregateQuestion(ArrayNode by, ArrayNode aggregates) {
    private static final Set<String> GROUPING_COLUMNS = Set.of("topic", "tag");

    /** Return the planner's form; null if it has none. The planner knows count(*), min(seq) and max(seq). */
    static AggregateQuestion translated(Aggregation aggregation) {
        ArrayNode by = Planner.JSON.createArrayNode();
        for (Expression expression : aggregation.groupByExpressions()) {
            String column = column(expression);
            if (column == null || !GROUPING_COLUMNS.contains(column)) {
                return null;
            }
            by.add(column);
        }
        ArrayNode aggregates = Planner.JSON.createArrayNode();
        for (AggregateFunc function : aggregation.aggregateExpressions()) {
            if (function instanceof CountStar) {
                aggregates.addObject().put("op", "count");
            } else if (function instanceof Min min && "seq".equals(column(min.column()))) {
                aggregates.addObject().put("op", "min").put("column", "seq");
            } else if (function instanceof Max max && "seq".equals(column(max.column()))) {
                aggregates.addObject().put("op", "max").put("column", "seq");
            } else {
                return null;
            }
        }
        return by.isEmpty() && aggregates.isEmpty() ? null : new AggregateQuestion(by, aggregates);
    }

    private static String column(Expression expression) {
        return expression instanceof NamedReference reference && reference.fieldNames().length == 1
                ? reference.fieldNames()[0]
                : null;
    }

    /** Return the planner's answer for the rows that meet the filters; null if it would have to read too much. */
    PushedAggregates answer(Question question, ArrayNode filters) {
        JsonNode rows;
        if (by.isEmpty()) {
            JsonNode values = question.aggregate(aggregates, filters);
            rows = values == null ? null : Planner.JSON.createArrayNode().add(values);
        } else {
            rows = question.groups(by, aggregates, filters);
        }
        return rows == null ? null : PushedAggregates.of(by.size(), aggregates.size(), rows);
    }
}
