package judge;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloaderStatsDisable;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreBackedReadHandleImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreManagedLedgerOffloader;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.DataBlockUtils;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.OffsetsCache;
import org.apache.bookkeeper.mledger.offload.jcloud.provider.TieredStorageConfiguration;
import org.jclouds.blobstore.BlobStore;

/**
 * The two calls that differ between releases, as Pulsar 4.0.6 has them. They take statistics, which the judge leaves
 * off, and a cache of entry offsets. A broker's ledgers have unique ids. The judge's do not, so each handle gets
 * its own cache.
 */
final class Release {
    static final String VERSION = "4.0.6";

    static ReadHandle open(
            ScheduledExecutorService threads, BlobStore store, String bucket, String dataKey, String indexKey, int buffer)
            throws IOException, BKException.BKNoSuchLedgerExistsException {
        return BlobStoreBackedReadHandleImpl.open(
                threads, store, bucket, dataKey, indexKey, DataBlockUtils.VERSION_CHECK, 0L, buffer,
                LedgerOffloaderStatsDisable.INSTANCE, "public/default/persistent/orders", new OffsetsCache());
    }

    static BlobStoreManagedLedgerOffloader offloader(
            TieredStorageConfiguration settings, Map<String, String> userMetadata, OrderedScheduler threads)
            throws IOException {
        return BlobStoreManagedLedgerOffloader.create(
                settings, userMetadata, threads, LedgerOffloaderStatsDisable.INSTANCE, new OffsetsCache());
    }

    private Release() {}
}
