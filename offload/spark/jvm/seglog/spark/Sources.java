package seglog.spark;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;

/** The choice of the port's implementation by a remote's URL. */
final class Sources {
    private static final String S3 = "s3://";

    private Sources() {}

    /** Return the source. For S3 it is Hadoop's client if Spark has one, else HTTP. */
    static ByteSource open(String url, Configuration hadoop) throws IOException {
        if (url.startsWith("file:")) {
            return new HadoopBytes(new Path(URI.create(url)), hadoop);
        }
        if (!url.startsWith(S3)) {
            throw new IOException(url + " is not a remote: use s3://bucket/prefix or file:///an/absolute/path");
        }
        if (hasS3a(hadoop)) {
            return new HadoopBytes(new Path("s3a://" + url.substring(S3.length())), hadoop);
        }
        return new HttpBytes(url, AwsSettings.read(ExecutorVariables::get));
    }

    /** Tell whether Hadoop's S3 client is there. Hadoop's own settings name its class even where the jar is absent. */
    private static boolean hasS3a(Configuration hadoop) throws IOException {
        try {
            FileSystem.getFileSystemClass("s3a", hadoop);
            return true;
        } catch (UnsupportedFileSystemException absent) {
            return false;
        } catch (RuntimeException absent) {
            if (absent.getCause() instanceof ClassNotFoundException) {
                return false;
            }
            throw absent;
        }
    }
}
