package seglog.spark;

/** The store answered that it has no object under this key. No other failure means this. */
public final class NoSuchObject extends SeglogError {
    private static final long serialVersionUID = 1;

    public NoSuchObject(String key) {
        super(key + " is not in the store");
    }
}
