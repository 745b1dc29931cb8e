package seglog.spark;

/** An index object is damaged. */
public final class InvalidIndex extends ObjectDamaged {
    private static final long serialVersionUID = 1;

    public InvalidIndex(String key, long offset, String reason) {
        super(key, offset, reason);
    }
}
