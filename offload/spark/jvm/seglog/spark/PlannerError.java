package seglog.spark;

/** The planner process does not run, does not answer, or answers in another protocol. The message says what to do. */
public final class PlannerError extends SeglogError {
    private static final long serialVersionUID = 1;

    public PlannerError(String message) {
        super(message);
    }

    public PlannerError(String message, Throwable cause) {
        super(message, cause);
    }
}
