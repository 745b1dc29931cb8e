package judge;

import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloader.OffloadHandle.OfferEntryResult;
import org.apache.bookkeeper.mledger.ManagedLedger;
import org.apache.bookkeeper.mledger.impl.EntryImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlobStoreManagedLedgerOffloader;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.DataBlockUtils;
import org.apache.bookkeeper.mledger.offload.jcloud.provider.TieredStorageConfiguration;
import org.apache.bookkeeper.mledger.proto.MLDataFormats.ManagedLedgerInfo.LedgerInfo;
import org.jclouds.blobstore.BlobStore;

/** Offloads generated ledgers with Pulsar's offloader: a closed one as a whole, or several as a stream. */
final class Writing {
    private static final Map<String, String> USER_METADATA = Map.of("S3ManagedLedgerOffloaderSoftwareVersion", Release.VERSION);

    static void offload(String bucket, String uuid, int blockSize, String ledgerText) throws Exception {
        Ledger ledger = Ledger.of(ledgerText);
        UUID attempt = UUID.fromString(uuid);
        offloader(Bucket.settings(bucket, blockSize))
                .offload(ledger, attempt, Map.of("ManagedLedgerName", "public/default/persistent/orders"))
                .get(120, TimeUnit.SECONDS);
        Judge.answer(Judge.values("done", true,
                "data_key", DataBlockUtils.dataBlockOffloadKey(ledger.id(), attempt),
                "index_key", DataBlockUtils.indexBlockOffloadKey(ledger.id(), attempt)));
    }

    /**
     * Streams to a store in memory, and copies its objects to the bucket. Pulsar's streaming offloader leaves out the
     * length of a part, in both releases, and without it jclouds sends no part to S3.
     */
    static void stream(String bucket, String uuid, int blockSize, String ledgersText) throws Exception {
        List<Ledger> ledgers = new ArrayList<>();
        for (String text : ledgersText.split(" ")) {
            ledgers.add(Ledger.of(text));
        }
        UUID attempt = UUID.fromString(uuid);
        BlobStoreManagedLedgerOffloader offloader = offloader(Bucket.inMemory(blockSize));
        OffloadHandle handle = offloader
                .streamingOffload(managed(ledgers), attempt, ledgers.get(0).id(), ledgers.get(0).first(), Map.of())
                .get(60, TimeUnit.SECONDS);
        for (Ledger ledger : ledgers) {
            for (long entryId = ledger.first(); entryId <= ledger.last(); entryId++) {
                offer(handle, EntryImpl.create(ledger.id(), entryId, ledger.entry(entryId)));
            }
        }
        handle.close();
        handle.getOffloadResultAsync().get(120, TimeUnit.SECONDS);
        Field store = BlobStoreManagedLedgerOffloader.class.getDeclaredField("blobStore");
        store.setAccessible(true);
        String indexKey = DataBlockUtils.indexBlockOffloadKey(attempt);
        Bucket.copy((BlobStore) store.get(offloader), bucket, List.of(uuid, indexKey));
        Judge.answer(Judge.values("done", true, "data_key", uuid, "index_key", indexKey));
    }

    private static void offer(OffloadHandle handle, EntryImpl entry) throws InterruptedException {
        OfferEntryResult result = handle.offerEntry(entry);
        while (result == OfferEntryResult.FAIL_BUFFER_FULL) {
            Thread.sleep(20);
            result = handle.offerEntry(entry);
        }
        if (result != OfferEntryResult.SUCCESS) {
            throw new IllegalStateException("an entry was refused: " + result);
        }
    }

    private static BlobStoreManagedLedgerOffloader offloader(TieredStorageConfiguration settings) throws Exception {
        OrderedScheduler threads = OrderedScheduler.newSchedulerBuilder().numThreads(1).name("offload").build();
        return Release.offloader(settings, USER_METADATA, threads);
    }

    /** A managed ledger that answers the streaming offloader's one question: the number of entries of a ledger. */
    private static ManagedLedger managed(List<Ledger> ledgers) {
        return (ManagedLedger) Proxy.newProxyInstance(
                Writing.class.getClassLoader(), new Class<?>[] {ManagedLedger.class}, (proxy, method, arguments) -> {
                    if (!method.getName().equals("getLedgerInfo")) {
                        throw new UnsupportedOperationException(method.toString());
                    }
                    for (Ledger ledger : ledgers) {
                        if (ledger.id() == (long) arguments[0]) {
                            return CompletableFuture.completedFuture(info(ledger));
                        }
                    }
                    throw new IllegalArgumentException("no ledger " + arguments[0]);
                });
    }

    static LedgerInfo info(Ledger ledger) {
        return LedgerInfo.newBuilder()
                .setLedgerId(ledger.id())
                .setEntries(ledger.last() + 1)
                .setSize(ledger.getLength())
                .setTimestamp(1_700_000_000_000L)
                .build();
    }

    private Writing() {}
}
