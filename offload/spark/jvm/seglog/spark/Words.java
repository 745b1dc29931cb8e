package seglog.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Integers within a byte array, in both byte orders. The caller keeps to the array's bounds. */
final class Words {
    private static final VarHandle LE_LONG = view(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LE_INT = view(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle BE_LONG = view(long[].class, ByteOrder.BIG_ENDIAN);
    private static final VarHandle BE_INT = view(int[].class, ByteOrder.BIG_ENDIAN);

    private Words() {}

    static long littleLong(byte[] bytes, int at) {
        return (long) LE_LONG.get(bytes, at);
    }

    static int littleInt(byte[] bytes, int at) {
        return (int) LE_INT.get(bytes, at);
    }

    static int littleShort(byte[] bytes, int at) {
        return (bytes[at] & 0xFF) | (bytes[at + 1] & 0xFF) << 8;
    }

    static long bigLong(byte[] bytes, int at) {
        return (long) BE_LONG.get(bytes, at);
    }

    static int bigInt(byte[] bytes, int at) {
        return (int) BE_INT.get(bytes, at);
    }

    private static VarHandle view(Class<?> type, ByteOrder order) {
        return MethodHandles.byteArrayViewVarHandle(type, order);
    }
}
