package seglog.spark;

import java.io.IOException;

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
}
