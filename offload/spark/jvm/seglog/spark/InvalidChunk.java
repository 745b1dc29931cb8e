package seglog.spark;

/** A chunk of a data object is damaged, or a record in the chunk is. The offset is the chunk's. */
public final class InvalidChunk extends ObjectDamaged {
    private static final long serialVersionUID = 1;

    public InvalidChunk(String key, long offset, String reason) {
        super(key, offset, reason);
    }
}
