package seglog.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** The translation of Spark's predicates into the planner's filters. */
final class PushedFilters {
    private static final Map<String, String> COMPARISONS =
            Map.of("=", "eq", "<=>", "eq", "<", "lt", "<=", "le", ">", "gt", ">=", "ge");
    private static final Map<String, String> MIRRORED = Map.of("lt", "gt", "le", "ge", "gt", "lt", "ge", "le");
    private static final Set<String> NUMBERS = Set.of("seq", "lsn", "timestamp");
    private static final Set<String> TEXTS = Set.of("topic", "tag");

    private PushedFilters() {}

    /** Return the filter of a predicate; null if the planner has no such filter. */
    static ObjectNode translated(Predicate predicate) {
        Expression[] parts = predicate.children();
        String name = predicate.name();
        if (COMPARISONS.containsKey(name) && parts.length == 2) {
            String op = COMPARISONS.get(name);
            return parts[0] instanceof Literal
                    ? filter(parts[1], MIRRORED.getOrDefault(op, op), parts, 0, 1)
                    : filter(parts[0], op, parts, 1, 2);
        }
        return switch (name) {
            case "IN" -> filter(parts[0], "in", parts, 1, parts.length);
            case "STARTS_WITH" -> filter(parts[0], "prefix", parts, 1, 2);
            case "IS_NULL" -> filter(parts[0], "isnull", parts, 1, 1);
            case "IS_NOT_NULL" -> filter(parts[0], "notnull", parts, 1, 1);
            default -> null;
        };
    }

    private static ObjectNode filter(Expression of, String op, Expression[] parts, int from, int to) {
        if (!(of instanceof NamedReference reference) || reference.fieldNames().length != 1) {
            return null;
        }
        String column = reference.fieldNames()[0];
        boolean isOrder = Set.of("lt", "le", "gt", "ge").contains(op);
        boolean isText = TEXTS.contains(column);
        if (!isText && !NUMBERS.contains(column) || isText && isOrder || !isText && op.equals("prefix")) {
            return null;
        }
        ObjectNode filter = Planner.JSON.createObjectNode().put("column", column).put("op", op);
        ArrayNode values = filter.putArray("values");
        for (int number = from; number < to; number++) {
            if (!(parts[number] instanceof Literal<?> literal) || !add(values, literal, column)) {
                return null;
            }
        }
        return filter;
    }

    private static boolean add(ArrayNode values, Literal<?> literal, String column) {
        DataType type = column.equals("timestamp")
                ? DataTypes.TimestampType
                : TEXTS.contains(column) ? DataTypes.StringType : DataTypes.LongType;
        if (!literal.dataType().equals(type)) {
            return false;
        }
        if (literal.value() instanceof UTF8String text) {
            if (!UTF8String.fromString(text.toString()).equals(text)) {
                return false; // its bytes are no UTF-8, and would become another text
            }
            values.add(text.toString());
        } else if (literal.value() instanceof Long number) {
            values.add(number);
        } else {
            return false;
        }
        return true;
    }
}
