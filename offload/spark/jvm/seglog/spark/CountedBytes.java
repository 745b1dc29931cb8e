package seglog.spark;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/** A source that counts its reads and their bytes, for the metrics of a task. */
final class CountedBytes implements ByteSource {
    private final ByteSource source;
    private final AtomicLong reads = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();

    CountedBytes(ByteSource source) {
        this.source = source;
    }

    @Override
    public byte[] read(String key, long offset, int length) throws IOException {
        byte[] found = source.read(key, offset, length);
        reads.incrementAndGet();
        bytes.addAndGet(found.length);
        return found;
    }

    @Override
    public byte[][] readAll(String key, List<ByteRange> ranges) throws IOException {
        byte[][] found = source.readAll(key, ranges);
        reads.addAndGet(found.length);
        bytes.addAndGet(ByteRange.lengthOf(ranges));
        return found;
    }

    @Override
    public int rangesAtATime() {
        return source.rangesAtATime();
    }

    long reads() {
        return reads.get();
    }

    long bytes() {
        return bytes.get();
    }
}
