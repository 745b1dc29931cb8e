package seglog.spark;

import org.apache.spark.sql.connector.read.streaming.Offset;

/** An offset as the planner writes it. Only the planner reads its text. Spark compares offsets by it. */
final class SeglogOffset extends Offset {
    /** The offset of a new stream. */
    static final SeglogOffset NEW = new SeglogOffset("{}");

    private final String text;

    SeglogOffset(String text) {
        this.text = text;
    }

    @Override
    public String json() {
        return text;
    }
}
