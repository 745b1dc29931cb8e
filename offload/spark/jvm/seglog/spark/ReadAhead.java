package seglog.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.FutureTask;

/**
 * The results of reads, in order. Two reads run ahead of the caller. Small reads run ahead in larger numbers, because
 * each of them costs an answer of the store.
 *
 * <p>An error of a read reaches the caller in the place of its result, so a later error never hides an earlier one.
 */
final class ReadAhead implements Closeable {
    static final int LEAST = 2;
    static final int MOST = 16;

    /** The most bytes that more than two reads bring together. */
    static final long BYTES = 16 << 20;

    private static final ExecutorService THREADS = Threads.named("seglog-read");

    private final Iterator<Read> reads;
    private final Deque<Running> running = new ArrayDeque<>();
    private Read following;
    private long bytes;

    ReadAhead(Iterator<Read> reads) {
        this.reads = reads;
        this.following = taken();
    }

    /** Return the result of the next read. The caller knows that there is one. */
    Object next() throws IOException {
        fill();
        Running first = running.remove();
        bytes -= first.bytes;
        fill();
        return Threads.result(first.result);
    }

    /** Drop the reads that have not begun. A read that runs ends by itself, and nobody takes its result. */
    @Override
    public void close() {
        running.forEach(read -> read.result.cancel(false));
        running.clear();
    }

    private void fill() {
        while (following != null && hasRoom()) {
            Running begun = new Running(following.bytes(), new FutureTask<>(following.work()));
            running.add(begun);
            bytes += begun.bytes;
            THREADS.execute(begun.result);
            following = taken();
        }
    }

    private boolean hasRoom() {
        return running.size() < LEAST || running.size() < MOST && bytes + following.bytes() <= BYTES;
    }

    private Read taken() {
        return reads.hasNext() ? reads.next() : null;
    }

    private record Running(long bytes, FutureTask<Object> result) {}
}
