package seglog.spark;

import java.io.IOException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Threads that do not keep a process alive, and the wait for their results. */
final class Threads {
    private Threads() {}

    static ExecutorService named(String name) {
        return Executors.newCachedThreadPool(run -> {
            Thread thread = new Thread(run, name);
            thread.setDaemon(true);
            return thread;
        });
    }

    /** Return the result, or throw the error of the work as it is. */
    static <T> T result(Future<T> work) throws IOException {
        try {
            return work.get();
        } catch (InterruptedException interrupt) {
            throw interrupted(interrupt);
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause();
            if (cause instanceof RuntimeException failure) {
                throw failure;
            }
            if (cause instanceof Error failure) {
                throw failure;
            }
            throw cause instanceof IOException failure ? failure : new IOException(cause);
        }
    }

    /** Return the error of a task whose thread was interrupted. The thread stays interrupted. */
    static IOException interrupted(InterruptedException interrupt) {
        Thread.currentThread().interrupt();
        return new IOException("the task was interrupted", interrupt);
    }
}
