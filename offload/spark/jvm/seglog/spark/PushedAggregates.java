package seglog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Aggregates that the planner knows: one row for the whole load, or a row for each group, with its names first. */
record PushedAggregates(StructType readSchema, JsonNode found) implements LocalScan {

    static PushedAggregates of(int names, int aggregates, JsonNode rows) {
        StructType schema = new StructType();
        for (int number = 0; number < names; number++) {
            schema = schema.add("group" + number, DataTypes.StringType, true);
        }
        for (int number = 0; number < aggregates; number++) {
            schema = schema.add("aggregate" + number, DataTypes.LongType, true);
        }
        return new PushedAggregates(schema, rows);
    }

    @Override
    public InternalRow[] rows() {
        InternalRow[] rows = new InternalRow[found.size()];
        for (int number = 0; number < rows.length; number++) {
            rows[number] = row(found.get(number));
        }
        return rows;
    }

    private static InternalRow row(JsonNode values) {
        Object[] row = new Object[values.size()];
        for (int number = 0; number < row.length; number++) {
            JsonNode value = values.get(number);
            if (value.isTextual()) {
                row[number] = UTF8String.fromString(value.textValue());
            } else if (!value.isNull()) {
                row[number] = value.longValue();
            }
        }
        return new GenericInternalRow(row);
    }

    @Override
    public String description() {
        return "seglog, from the plan: " + found.size() + " rows of " + readSchema.simpleString();
    }
}
