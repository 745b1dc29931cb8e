package judge;

import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.mledger.offload.jcloud.provider.TieredStorageConfiguration;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.domain.Blob;

/** Pulsar's settings for the S3 server, and a store on it that counts the requests and bytes fetched. */
final class Bucket {
    private static final String IN_MEMORY = "memory";
    private static final Map<String, String> SERVER = new ConcurrentHashMap<>();

    private final BlobStore store;
    private final AtomicLong requests = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();

    static void configure(String endpoint, String accessKey, String secretKey, String region) {
        SERVER.put("managedLedgerOffloadDriver", "aws-s3");
        SERVER.put("s3ManagedLedgerOffloadServiceEndpoint", endpoint);
        SERVER.put("s3ManagedLedgerOffloadRegion", region);
        SERVER.put("s3ManagedLedgerOffloadCredentialId", accessKey);
        SERVER.put("s3ManagedLedgerOffloadCredentialSecret", secretKey);
        // Pulsar passes these to jclouds. jclouds looks up a bucket in the standard region, by default at AWS itself.
        System.setProperty("jclouds.region.us-standard.endpoint", endpoint);
        System.setProperty("jclouds.max-retries", "2");
    }

    /** A broker's settings. Pulsar refuses blocks of less than 5 MB. */
    static TieredStorageConfiguration settings(String bucket, int blockSize) {
        Map<String, String> settings = new ConcurrentHashMap<>(SERVER);
        settings.put("s3ManagedLedgerOffloadBucket", bucket);
        settings.put("s3ManagedLedgerOffloadMaxBlockSizeInBytes", Integer.toString(blockSize));
        TieredStorageConfiguration found = TieredStorageConfiguration.create(settings);
        found.getProvider().validate(found);
        return found;
    }

    /** A store in memory that takes blocks of any size. */
    static TieredStorageConfiguration inMemory(int blockSize) {
        Map<String, String> settings = new ConcurrentHashMap<>();
        settings.put("managedLedgerOffloadDriver", "transient");
        settings.put("managedLedgerOffloadBucket", IN_MEMORY);
        settings.put("managedLedgerOffloadMaxBlockSizeInBytes", Integer.toString(blockSize));
        settings.put("managedLedgerOffloadMinBlockSizeInBytes", Integer.toString(blockSize));
        return TieredStorageConfiguration.create(settings);
    }

    static void copy(BlobStore inMemory, String bucket, List<String> keys) throws Exception {
        BlobStore target = new Bucket(bucket, "").store();
        for (String key : keys) {
            Blob found = inMemory.getBlob(IN_MEMORY, key);
            byte[] body;
            try (InputStream stream = found.getPayload().openStream()) {
                body = stream.readAllBytes();
            }
            target.putBlob(bucket, target.blobBuilder(key)
                    .userMetadata(found.getMetadata().getUserMetadata())
                    .payload(body)
                    .contentLength(body.length)
                    .build());
        }
    }

    /** Counts the requests for `dataKey`. */
    Bucket(String bucket, String dataKey) {
        TieredStorageConfiguration settings = settings(bucket, 64 << 20);
        settings.getProvider().buildCredentials(settings);
        BlobStore inner = settings.getBlobStore();
        store = (BlobStore) Proxy.newProxyInstance(
                Bucket.class.getClassLoader(), new Class<?>[] {BlobStore.class}, (proxy, method, arguments) -> {
                    try {
                        Object result = method.invoke(inner, arguments);
                        if (result instanceof Blob blob && arguments[1].equals(dataKey)) {
                            requests.incrementAndGet();
                            bytes.addAndGet(blob.getPayload().getContentMetadata().getContentLength());
                        }
                        return result;
                    } catch (InvocationTargetException error) {
                        throw error.getCause();
                    }
                });
    }

    BlobStore store() {
        return store;
    }

    long requests() {
        return requests.get();
    }

    long bytes() {
        return bytes.get();
    }
}
