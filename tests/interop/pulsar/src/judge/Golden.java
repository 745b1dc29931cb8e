package judge;

import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.impl.EntryImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.OffloadIndexBlock;
import org.apache.bookkeeper.mledger.offload.jcloud.OffloadIndexBlockBuilder;
import org.apache.bookkeeper.mledger.offload.jcloud.OffloadIndexBlockV2;
import org.apache.bookkeeper.mledger.offload.jcloud.OffloadIndexBlockV2Builder;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BlockAwareSegmentInputStreamImpl;
import org.apache.bookkeeper.mledger.offload.jcloud.impl.BufferedOffloadStream;

/**
 * Makes small objects for golden files, with the streams and builders that Pulsar's offloader uses. The offloader
 * itself accepts no blocks of less than 5 MB.
 */
final class Golden {
    static void write(String directory) throws Exception {
        version1(Path.of(directory), new Ledger(7, 0, 40, 1), 700);
        version2(Path.of(directory), List.of(new Ledger(8, 5, 30, 1), new Ledger(9, 0, 3, 1)), 10, 600);
        Judge.answer(Judge.values("done", true));
    }

    private static void version1(Path directory, Ledger ledger, int blockSize) throws Exception {
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        OffloadIndexBlockBuilder builder = OffloadIndexBlockBuilder.create()
                .withLedgerMetadata(ledger.getLedgerMetadata())
                .withDataBlockHeaderLength(BlockAwareSegmentInputStreamImpl.getHeaderSize());
        long next = 0;
        long written = 0;
        for (int part = 1; next <= ledger.last(); part++) {
            int size = BlockAwareSegmentInputStreamImpl.calculateBlockSize(blockSize, ledger, next, written);
            try (BlockAwareSegmentInputStreamImpl block = new BlockAwareSegmentInputStreamImpl(ledger, next, size)) {
                data.write(block.readNBytes(size));
                builder.addBlock(next, part, size);
                next = block.getEndEntryId() + 1;
                written += block.getBlockEntryBytesCount();
            }
        }
        Files.write(directory.resolve("pulsar_v1.data"), data.toByteArray());
        try (OffloadIndexBlock index = builder.withDataObjectLength(data.size()).build();
                InputStream stream = index.toStream()) {
            Files.write(directory.resolve("pulsar_v1.index"), stream.readAllBytes());
        }
    }

    private static void version2(Path directory, List<Ledger> ledgers, int perBlock, int blockSize) throws Exception {
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        OffloadIndexBlockV2Builder builder = OffloadIndexBlockV2Builder.create().withDataBlockHeaderLength(128);
        int part = 1;
        for (Ledger ledger : ledgers) {
            builder.addLedgerMeta(ledger.id(), Writing.info(ledger));
            for (long first = ledger.first(); first <= ledger.last(); first += perBlock) {
                List<Entry> entries = new ArrayList<>();
                int bytes = 0;
                for (long id = first; id <= Math.min(ledger.last(), first + perBlock - 1); id++) {
                    entries.add(EntryImpl.create(ledger.id(), id, ledger.entry(id)));
                    bytes += ledger.entry(id).length;
                }
                int size = BufferedOffloadStream.calculateBlockSize(blockSize, entries.size(), bytes);
                try (BufferedOffloadStream block = new BufferedOffloadStream(size, entries, ledger.id(), first)) {
                    for (int at = 0; at < size; at++) {
                        data.write(block.read());
                    }
                }
                builder.addBlock(ledger.id(), first, part++, size);
            }
        }
        Files.write(directory.resolve("pulsar_v2.data"), data.toByteArray());
        try (OffloadIndexBlockV2 index = builder.withDataObjectLength(data.size()).buildV2();
                InputStream stream = index.toStream()) {
            Files.write(directory.resolve("pulsar_v2.index"), stream.readAllBytes());
        }
    }

    private Golden() {}
}
