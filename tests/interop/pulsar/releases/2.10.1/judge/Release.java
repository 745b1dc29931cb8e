package judge;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreBackedReadHandleImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreManagedLedgerOffloader;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.DataBlockUtils;
import org.apache.bookkeeper.mledger.offload.jcloud.provider.TieredStorageConfiguration;
import org.jclouds.blobstore.BlobStore;

/** The two calls that differ between releases, as Pulsar 2.10.1 has them. */
final class Release {
    static final String VERSION = "2.10.1";

    static ReadHandle open(
            ScheduledExecutorService threads, BlobStore store, String bucket, String dataKey, String indexKey, int buffer)
            throws IOException {
        return BlobStoreBackedReadHandleImpl.open(
                threads, store, bucket, dataKey, indexKey, DataBlockUtils.VERSION_CHECK, 0L, buffer);
    }

    static BlobStoreManagedLedgerOffloader offloader(
            TieredStorageConfiguration settings, Map<String, String> userMetadata, OrderedScheduler threads)
            throws IOException {
        return BlobStoreManagedLedgerOffloader.create(settings, userMetadata, threads);
    }

    private Release() {}
}
