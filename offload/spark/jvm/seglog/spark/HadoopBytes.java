package seglog.spark;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Objects through Hadoop's FileSystem, as the cluster configures it.
 *
 * <p>Each call opens the object and states the length up to which it reads. So a store needs no HEAD request before the
 * GET, and calls for one object run side by side.
 */
final class HadoopBytes implements ByteSource {
    private static final String LENGTH = "fs.option.openfile.length";
    private static final String POLICY = "fs.option.openfile.read.policy";
    private static final int RANGES = 16;

    private final FileSystem files;
    private final Path root;

    /** {@code root} is the remote, with the scheme that Hadoop knows. */
    HadoopBytes(Path root, Configuration configuration) throws IOException {
        FileSystem found = root.getFileSystem(configuration);
        // A local file has no checksum file of Hadoop's beside it, so the reader does not look for one.
        this.files = found instanceof LocalFileSystem local ? local.getRawFileSystem() : found;
        this.root = root;
    }

    @Override
    public byte[] read(String key, long offset, int length) throws IOException {
        return length == 0 ? new byte[0] : readAll(key, List.of(new ByteRange(offset, length)))[0];
    }

    @Override
    public byte[][] readAll(String key, List<ByteRange> ranges) throws IOException {
        Path path = new Path(root, key);
        try {
            return found(path, key, ranges);
        } catch (FileNotFoundException absent) {
            throw new NoSuchObject(key);
        }
    }

    /** A stream of Hadoop's S3 client reads ranges side by side, and joins those that are near to each other. */
    @Override
    public int rangesAtATime() {
        return RANGES;
    }

    /** A client that was told the length may say of an absent object that it ended. Its status then tells. */
    private byte[][] found(Path path, String key, List<ByteRange> ranges) throws IOException {
        try (FSDataInputStream stream = open(path, ranges.get(ranges.size() - 1).end())) {
            return Shim.get().readAll(stream, ranges);
        } catch (EOFException cut) {
            throw ended(key, files.getFileStatus(path).getLen(), ranges);
        }
    }

    private FSDataInputStream open(Path path, long end) throws IOException {
        return Threads.result(files.openFile(path)
                .opt(POLICY, "random")
                .opt(LENGTH, Long.toString(end))
                .build());
    }

    /** Return the error of the first range that reaches beyond the end of the object. */
    private static InvalidObject ended(String key, long size, List<ByteRange> ranges) {
        ByteRange cut = ranges.get(ranges.size() - 1);
        for (int number = ranges.size() - 1; number >= 0 && ranges.get(number).end() > size; number--) {
            cut = ranges.get(number);
        }
        return InvalidObject.ended(key, Math.max(cut.offset(), size), cut.end());
    }
}
