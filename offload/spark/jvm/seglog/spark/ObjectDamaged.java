package seglog.spark;

/** An object in the store differs from the object that was written. The offset is in bytes from the object's start. */
public abstract class ObjectDamaged extends SeglogError {
    private static final long serialVersionUID = 1;

    protected ObjectDamaged(String key, long offset, String reason) {
        super(key + " is damaged at offset " + offset + ": " + reason);
    }
}
