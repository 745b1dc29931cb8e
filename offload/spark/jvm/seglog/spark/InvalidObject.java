package seglog.spark;

/** An object is shorter than the commit says. */
public final class InvalidObject extends SeglogError {
    private static final long serialVersionUID = 1;

    public InvalidObject(String key, String reason) {
        super(key + ": " + reason);
    }

    static InvalidObject ended(String key, long end, long expected) {
        return new InvalidObject(key, "it ends at byte " + end + ", " + expected + " were expected");
    }
}
