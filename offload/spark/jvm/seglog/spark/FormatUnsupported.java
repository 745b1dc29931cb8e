package seglog.spark;

/** The object is whole, but this software does not read its format or version. */
public final class FormatUnsupported extends SeglogError {
    private static final long serialVersionUID = 1;

    public FormatUnsupported(String key, String found) {
        super(key + ": this seglog does not read " + found);
    }
}
