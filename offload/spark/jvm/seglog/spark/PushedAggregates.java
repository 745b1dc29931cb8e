package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The answer to count(*), min(seq) and max(seq) over a whole load: one row that the planner knows. */
record PushedAggregates(StructType readSchema, JsonNode values) implements LocalScan {

    /** Return the planner's form of the aggregates; null if one of them is not of the three. */
    static ArrayNode translated(Aggregation aggregation) {
        if (aggregation.groupByExpressions().length > 0) {
            return null;
        }
        ArrayNode aggregates = Planner.JSON.createArrayNode();
        for (AggregateFunc function : aggregation.aggregateExpressions()) {
            if (function instanceof CountStar) {
                aggregates.addObject().put("op", "count");
            } else if (function instanceof Min min && isSeq(min.column())) {
                aggregates.addObject().put("op", "min").put("column", "seq");
            } else if (function instanceof Max max && isSeq(max.column())) {
                aggregates.addObject().put("op", "max").put("column", "seq");
            } else {
                return null;
            }
        }
        return aggregates.isEmpty() ? null : aggregates;
    }

    private static boolean isSeq(Expression of) {
        return of instanceof NamedReference reference
                && reference.fieldNames().length == 1
                && reference.fieldNames()[0].equals("seq");
    }

    static PushedAggregates of(JsonNode values) {
        StructType schema = new StructType();
        for (int number = 0; number < values.size(); number++) {
            schema = schema.add("aggregate" + number, DataTypes.LongType, true);
        }
        return new PushedAggregates(schema, values);
    }

    @Override
    public InternalRow[] rows() {
        Object[] row = new Object[values.size()];
        for (int number = 0; number < row.length; number++) {
            row[number] = values.get(number).isNull() ? null : (Object) values.get(number).longValue();
        }
        return new InternalRow[] {new GenericInternalRow(row)};
    }

    @Override
    public String description() {
        return "seglog, from the plan: " + values;
    }
}
