package seglog.spark;

/** An error that the planner reports. The message begins with the class of the Python error. */
public final class PlannerFailure extends SeglogError {
    private static final long serialVersionUID = 1;

    public PlannerFailure(String type, String message, String hint) {
        super(type + ": " + message + (hint == null ? "" : ". Hint: " + hint));
    }
}
