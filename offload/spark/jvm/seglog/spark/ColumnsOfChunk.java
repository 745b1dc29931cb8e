package seglog.spark;

import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** Makes the columns of one chunk's rows, as Spark takes them. It makes only the columns that the query needs. */
final class ColumnsOfChunk {
    private final String[] names;
    private final Labels tags = new Labels();
    private final Labels nodes = new Labels();

    ColumnsOfChunk(String[] names) {
        this.names = names;
    }

    ColumnarBatch batch(ChunkRows found) {
        ColumnVector[] columns = new ColumnVector[names.length];
        for (int number = 0; number < names.length; number++) {
            columns[number] = column(found, names[number]);
        }
        return new ColumnarBatch(columns, found.rows().length);
    }

    private ColumnVector column(ChunkRows found, String name) {
        Piece piece = found.piece();
        if (piece.isRemoval() && !Question.NEVER_NULL_IN_A_FEED.contains(name)) {
            return nulls(found, name);
        }
        return switch (name) {
            case "_change" -> text(found, piece.change());
            case "_lsn" -> number(found, piece.changeLsn());
            case "topic" -> text(found, piece.topic());
            case "seq" -> new SeqVector(found);
            case "timestamp" -> new TimestampVector(found);
            case "node" -> new LabelVector(found, Part.NODE, nodes);
            case "tag" -> new LabelVector(found, Part.TAG, tags);
            case "value" -> new ValueVector(found);
            case "lsn" -> number(found, piece.lsn());
            case "segment" -> text(found, piece.segment());
            case "block" -> block(found);
            case "offset" -> number(found, found.chunk().offset());
            default -> throw new PlannerError("the planner offers a column that this reader does not know: " + name);
        };
    }

    private static ColumnVector nulls(ChunkRows found, String name) {
        DataType type = switch (name) {
            case "timestamp" -> DataTypes.TimestampType;
            case "value" -> DataTypes.BinaryType;
            case "block" -> DataTypes.IntegerType;
            case "lsn", "offset" -> DataTypes.LongType;
            default -> DataTypes.StringType;
        };
        ConstantColumnVector column = new ConstantColumnVector(found.rows().length, type);
        column.setNull();
        return column;
    }

    private static ColumnVector text(ChunkRows found, String value) {
        ConstantColumnVector column = new ConstantColumnVector(found.rows().length, DataTypes.StringType);
        column.setUtf8String(UTF8String.fromString(value));
        return column;
    }

    private static ColumnVector number(ChunkRows found, long value) {
        ConstantColumnVector column = new ConstantColumnVector(found.rows().length, DataTypes.LongType);
        column.setLong(value);
        return column;
    }

    private static ColumnVector block(ChunkRows found) {
        ConstantColumnVector column = new ConstantColumnVector(found.rows().length, DataTypes.IntegerType);
        column.setInt((int) (found.chunk().offset() / found.piece().blockSize()) + 1);
        return column;
    }
}
