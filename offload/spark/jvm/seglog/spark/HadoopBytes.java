package seglog.spark;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;

/**
 * Objects through Hadoop's FileSystem, as the cluster configures it.
 *
 * <p>Each read opens the object and states the length up to which it reads. So a store needs no HEAD request before the
 * GET, and reads of one object run beside each other.
 */
final class HadoopBytes implements ByteSource {
    private static final String LENGTH = "fs.option.openfile.length";
    private static final String POLICY = "fs.option.openfile.read.policy";

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
        if (length == 0) {
            return new byte[0];
        }
        Path path = new Path(root, key);
        try (FSDataInputStream stream = open(path, offset + length)) {
            if (stream.hasCapability(StreamCapabilities.VECTOREDIO)) {
                return readVectored(stream, offset, length);
            }
            byte[] bytes = new byte[length];
            stream.readFully(offset, bytes);
            return bytes;
        } catch (FileNotFoundException absent) {
            throw new NoSuchObject(key);
        } catch (EOFException cut) {
            long end = Math.max(offset, files.getFileStatus(path).getLen());
            throw InvalidObject.ended(key, end, offset + length);
        }
    }

    private FSDataInputStream open(Path path, long end) throws IOException {
        return Threads.result(files.openFile(path)
                .opt(POLICY, "random")
                .optLong(LENGTH, end)
                .build());
    }

    private static byte[] readVectored(FSDataInputStream stream, long offset, int length) throws IOException {
        FileRange range = FileRange.createFileRange(offset, length);
        stream.readVectored(List.of(range), ByteBuffer::allocate);
        ByteBuffer found = Threads.result(range.getData());
        if (found.hasArray() && found.array().length == length && found.remaining() == length) {
            return found.array();
        }
        byte[] bytes = new byte[length]; // the stream gave a part of a larger buffer
        found.get(bytes);
        return bytes;
    }
}
