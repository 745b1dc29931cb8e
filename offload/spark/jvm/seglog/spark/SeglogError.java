package seglog.spark;

/** The root of the reader's errors. Their names and messages are those of the Python reader. */
public abstract class SeglogError extends RuntimeException {
    private static final long serialVersionUID = 1;

    protected SeglogError(String message) {
        super(message);
    }

    protected SeglogError(String message, Throwable cause) {
        super(message, cause);
    }
}
