package seglog.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;

/**
 * The results of reads, in order. Up to {@code DEPTH} reads run ahead of the caller.
 *
 * <p>An error of a read reaches the caller in the place of its result, so a later error never hides an earlier one.
 */
final class ReadAhead<T> implements Closeable {
    static final int DEPTH = 2;

    private static final ExecutorService THREADS = Threads.named("seglog-read");

    private final Iterator<? extends Callable<T>> reads;
    private final Deque<Future<T>> running = new ArrayDeque<>();

    ReadAhead(Iterator<? extends Callable<T>> reads) {
        this.reads = reads;
    }

    /** Return the result of the next read. The caller knows that there is one. */
    T next() throws IOException {
        fill();
        Future<T> first = running.remove();
        fill();
        return Threads.result(first);
    }

    /** Drop the reads that have not begun. A read that runs ends by itself, and nobody takes its result. */
    @Override
    public void close() {
        running.forEach(read -> read.cancel(false));
        running.clear();
    }

    private void fill() {
        while (running.size() < DEPTH && reads.hasNext()) {
            FutureTask<T> task = new FutureTask<>(reads.next());
            running.add(task);
            THREADS.execute(task);
        }
    }
}
