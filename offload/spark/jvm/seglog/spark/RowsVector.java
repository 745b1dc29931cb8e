package seglog.spark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;

/**
 * A column over rows of a decoded chunk. It holds no values of its own.
 *
 * <p>A subclass overrides the getters of its type. Spark calls no other getter.
 */
abstract class RowsVector extends ColumnVector {
    protected final int[] rows;

    RowsVector(DataType type, int[] rows) {
        super(type);
        this.rows = rows;
    }

    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
        return false;
    }

    @Override
    public int numNulls() {
        return 0;
    }

    @Override
    public boolean isNullAt(int at) {
        return false;
    }

    @Override
    public boolean getBoolean(int at) {
        throw otherType();
    }

    @Override
    public byte getByte(int at) {
        throw otherType();
    }

    @Override
    public short getShort(int at) {
        throw otherType();
    }

    @Override
    public int getInt(int at) {
        throw otherType();
    }

    @Override
    public long getLong(int at) {
        throw otherType();
    }

    @Override
    public float getFloat(int at) {
        throw otherType();
    }

    @Override
    public double getDouble(int at) {
        throw otherType();
    }

    @Override
    public ColumnarArray getArray(int at) {
        throw otherType();
    }

    @Override
    public ColumnarMap getMap(int at) {
        throw otherType();
    }

    @Override
    public Decimal getDecimal(int at, int precision, int scale) {
        throw otherType();
    }

    @Override
    public org.apache.spark.unsafe.types.UTF8String getUTF8String(int at) {
        throw otherType();
    }

    @Override
    public byte[] getBinary(int at) {
        throw otherType();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        throw otherType();
    }

    private UnsupportedOperationException otherType() {
        return new UnsupportedOperationException("the column is of type " + type.simpleString());
    }
}
