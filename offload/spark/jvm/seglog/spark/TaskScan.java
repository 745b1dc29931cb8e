package seglog.spark;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;

/**
 * The work of one task: ranged GETs of its pieces' chunks, and the rows of one chunk after the other.
 *
 * <p>No row leaves before its checks. Memory is two reads of at most 8 MiB (or one chunk, if that is larger) or more that
 * are small, the read at hand, and one chunk decompressed. The scan stores nothing on the executor's disk.
 */
final class TaskScan implements Closeable {
    private final Verify verify;
    private final Iterator<Piece> pieces;
    private final ReadAhead reads;
    private final Scratch scratch = new Scratch();

    private Piece piece;
    private VisibleRows visible;
    private StoredLengths lengths;
    private Iterator<List<Chunk>> runs = List.<List<Chunk>>of().iterator();
    private List<Chunk> run = List.of();
    private Iterator<byte[]> bodies = List.<byte[]>of().iterator();
    private byte[] body;
    private int inRun;

    TaskScan(List<Piece> pieces, ByteSource source, Verify verify) {
        this.verify = verify;
        this.pieces = pieces.iterator();
        this.reads = new ReadAhead(readsOf(pieces, source));
    }

    /** Return the rows of the next chunk that has rows to show; null after the last one. They end the rows before. */
    ChunkRows next() throws IOException {
        while (advance()) {
            Chunk chunk = run.get(inRun++);
            Records records = piece.needsData() ? decode(chunk) : null;
            int[] rows = visible.of(chunk, records);
            if (rows.length > 0) {
                return new ChunkRows(piece, chunk, records, rows);
            }
        }
        return null;
    }

    @Override
    public void close() {
        reads.close();
    }

    private Records decode(Chunk chunk) {
        int place = (int) (chunk.offset() - run.get(0).offset());
        Slice stored = new Slice(body, place, (int) chunk.storedLength());
        Slice raw = ChunkCodec.decode(stored, chunk, piece.codec(), verify, piece.data(), scratch);
        int[] entryLengths = lengths.decode(chunk, piece);
        return Records.decode(
                raw, entryLengths, chunk, piece.segmentFirstSeq(), piece.topicId(), verify, piece.data());
    }

    /** Move to the next chunk, and take the reads that it needs. Return false after the last chunk. */
    private boolean advance() throws IOException {
        if (inRun < run.size()) {
            return true;
        }
        if (!runs.hasNext()) {
            if (!pieces.hasNext()) {
                return false;
            }
            piece = pieces.next();
            visible = new VisibleRows(piece);
            runs = piece.runs().iterator();
            lengths = piece.needsData() ? (StoredLengths) reads.next() : null;
        }
        run = runs.next();
        body = piece.needsData() ? nextBody() : null;
        inRun = 0;
        return true;
    }

    private byte[] nextBody() throws IOException {
        if (!bodies.hasNext()) {
            bodies = Arrays.asList((byte[][]) reads.next()).iterator();
        }
        return bodies.next();
    }

    /** Return the reads in the order in which the scan takes them: of each piece the lengths, then its runs. */
    private static Iterator<Read> readsOf(List<Piece> pieces, ByteSource source) {
        return pieces.stream()
                .filter(Piece::needsData)
                .flatMap(piece -> {
                    List<Read> reads = new ArrayList<>();
                    reads.add(new Read(StoredLengths.frontBytes(piece), () -> StoredLengths.read(source, piece)));
                    for (List<ByteRange> group : ByteRange.grouped(piece.ranges(), source.rangesAtATime())) {
                        reads.add(new Read(
                                ByteRange.lengthOf(group), () -> source.readAll(piece.data(), group)));
                    }
                    return reads.stream();
                })
                .iterator();
    }
}
