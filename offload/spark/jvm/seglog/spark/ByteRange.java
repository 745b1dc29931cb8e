package seglog.spark;

import java.util.ArrayList;
import java.util.List;

/** Bytes of an object: so many from an offset. */
record ByteRange(long offset, int length) {
    /** The most bytes of a group, unless one range has more. */
    static final long GROUP_BYTES = 8 << 20;

    long end() {
        return offset + length;
    }

    /** Return the ranges in groups of at most {@code most}, in their order. */
    static List<List<ByteRange>> grouped(List<ByteRange> ranges, int most) {
        List<List<ByteRange>> groups = new ArrayList<>();
        long bytes = 0;
        for (ByteRange range : ranges) {
            bytes += range.length();
            if (groups.isEmpty() || bytes > GROUP_BYTES || groups.get(groups.size() - 1).size() == most) {
                groups.add(new ArrayList<>());
                bytes = range.length();
            }
            groups.get(groups.size() - 1).add(range);
        }
        return groups;
    }

    static long lengthOf(List<ByteRange> ranges) {
        return ranges.stream().mapToLong(ByteRange::length).sum();
    }
}
