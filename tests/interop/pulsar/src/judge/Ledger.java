package judge;

import io.netty.buffer.Unpooled;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.impl.LedgerEntriesImpl;
import org.apache.bookkeeper.client.impl.LedgerEntryImpl;
import org.apache.bookkeeper.net.BookieId;

/**
 * A closed ledger whose entries follow from numbers, written `id,first entry,count,step`: tests/offload/ledgers.py makes
 * the same ones. Entries of a streamed ledger may begin above 0.
 */
record Ledger(long id, long first, int count, int step) implements ReadHandle {
    static Ledger of(String text) {
        String[] words = text.split(",");
        return new Ledger(Long.parseLong(words[0]), Long.parseLong(words[1]), Integer.parseInt(words[2]),
                Integer.parseInt(words[3]));
    }

    byte[] entry(long entryId) {
        byte[] data = new byte[(int) (entryId * entryId % 97) * step + 1];
        for (int at = 0; at < data.length; at++) {
            data[at] = (byte) (id * 31 + entryId * 7 + at * 13L + (at >> 8) * 5L);
        }
        return data;
    }

    long last() {
        return first + count - 1;
    }

    @Override
    public long getId() {
        return id;
    }

    @Override
    public long getLength() {
        long length = 0;
        for (long entryId = first; entryId <= last(); entryId++) {
            length += entry(entryId).length;
        }
        return length;
    }

    @Override
    public LedgerMetadata getLedgerMetadata() {
        return LedgerMetadataBuilder.create()
                .withId(id)
                .withMetadataFormatVersion(3)
                .withEnsembleSize(1)
                .withWriteQuorumSize(1)
                .withAckQuorumSize(1)
                .withDigestType(DigestType.CRC32C)
                .withPassword(new byte[0])
                .withCreationTime(1_700_000_000_000L)
                .storingCreationTime(true)
                .withCustomMetadata(Map.of("application", "pulsar".getBytes()))
                .newEnsembleEntry(0, List.of(BookieId.parse("127.0.0.1:3181")))
                .withClosedState()
                .withLastEntryId(last())
                .withLength(getLength())
                .build();
    }

    @Override
    public CompletableFuture<LedgerEntries> readAsync(long from, long to) {
        List<LedgerEntry> entries = new ArrayList<>();
        for (long entryId = from; entryId <= to; entryId++) {
            byte[] data = entry(entryId);
            entries.add(LedgerEntryImpl.create(id, entryId, data.length, Unpooled.wrappedBuffer(data)));
        }
        return CompletableFuture.completedFuture(LedgerEntriesImpl.create(entries));
    }

    @Override
    public CompletableFuture<LedgerEntries> readUnconfirmedAsync(long from, long to) {
        return readAsync(from, to);
    }

    @Override
    public CompletableFuture<Long> readLastAddConfirmedAsync() {
        return CompletableFuture.completedFuture(last());
    }

    @Override
    public CompletableFuture<Long> tryReadLastAddConfirmedAsync() {
        return readLastAddConfirmedAsync();
    }

    @Override
    public long getLastAddConfirmed() {
        return last();
    }

    @Override
    public boolean isClosed() {
        return true;
    }

    @Override
    public CompletableFuture<LastConfirmedAndEntry> readLastAddConfirmedAndEntryAsync(
            long entryId, long timeoutMs, boolean parallel) {
        return CompletableFuture.failedFuture(new UnsupportedOperationException());
    }

    @Override
    public CompletableFuture<Void> closeAsync() {
        return CompletableFuture.completedFuture(null);
    }
}
