package judge;

import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * Reads entries with Pulsar's read handles. An order is `forwards:N` (N at a time), `backwards`, or `random:SEED:COUNT`
 * (one at a time, like backwards).
 */
final class Reading {
    static void read(String bucket, String dataKey, String indexKey, int buffer, String order) throws Exception {
        ScheduledExecutorService threads = Executors.newSingleThreadScheduledExecutor();
        try {
            Bucket counted = new Bucket(bucket, dataKey);
            ReadHandle handle = Release.open(threads, counted.store(), bucket, dataKey, indexKey, buffer);
            read(handle, order, counted);
        } finally {
            threads.shutdown();
        }
    }

    private static void read(ReadHandle handle, String order, Bucket counted) throws Exception {
        String[] words = order.split(":");
        long last = handle.getLastAddConfirmed();
        switch (words[0]) {
            case "forwards" -> {
                long step = Long.parseLong(words[1]);
                for (long first = 0; first <= last; first += step) {
                    tell(handle, first, Math.min(last, first + step - 1));
                }
            }
            case "backwards" -> {
                for (long id = last; id >= 0; id--) {
                    tell(handle, id, id);
                }
            }
            case "random" -> {
                Random random = new Random(Long.parseLong(words[1]));
                for (int number = 0; number < Integer.parseInt(words[2]); number++) {
                    long id = random.nextLong(last + 1);
                    tell(handle, id, id);
                }
            }
            default -> throw new IllegalArgumentException("no such order: " + order);
        }
        Judge.answer(Judge.values("done", true, "last_entry_id", last, "length", handle.getLength(),
                "closed", handle.isClosed(), "requests", counted.requests(), "bytes", counted.bytes()));
        handle.close();
    }

    private static void tell(ReadHandle handle, long first, long last) throws Exception {
        try (LedgerEntries entries = handle.read(first, last)) {
            for (LedgerEntry entry : entries) {
                byte[] data = entry.getEntryBytes();
                byte[] hash = MessageDigest.getInstance("SHA-256").digest(data);
                Judge.answer(Judge.values("id", entry.getEntryId(), "length", entry.getLength(),
                        "sha256", HexFormat.of().formatHex(hash)));
            }
        }
    }

    private Reading() {}
}
