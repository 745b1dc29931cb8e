package seglog.spark;

/** An error that the planner reports. The type is the class of the Python error. */
public final class PlannerFailure extends SeglogError {
    private static final long serialVersionUID = 1;

    private final String type;

    public PlannerFailure(String type, String message, String hint) {
        super(message + (hint == null ? "" : ". Hint: " + hint));
        this.type = type;
    }

    String type() {
        return type;
    }
}
