package seglog.spark;

import java.io.IOException;
import java.util.List;

/** The port to the bytes of one remote's objects. Threads may share it. */
interface ByteSource {
    /**
     * Return exactly {@code length} bytes from {@code offset} of the object {@code key}.
     *
     * @throws NoSuchObject if the store says that the object is absent
     * @throws InvalidObject if the object is shorter
     * @throws IOException if the store does not answer, or refuses access
     */
    byte[] read(String key, long offset, int length) throws IOException;

    /** Return the bytes of ranges of one object, which ascend. Throws the error of the first range that has one. */
    default byte[][] readAll(String key, List<ByteRange> ranges) throws IOException {
        byte[][] found = new byte[ranges.size()][];
        for (int number = 0; number < found.length; number++) {
            ByteRange range = ranges.get(number);
            found[number] = read(key, range.offset(), range.length());
        }
        return found;
    }

    /** Return how many ranges a caller best asks for in one call. */
    default int rangesAtATime() {
        return 1;
    }
}
