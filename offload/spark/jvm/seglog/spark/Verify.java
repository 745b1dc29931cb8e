package seglog.spark;

/**
 * The checks before a row leaves the reader. Every level checks the places and lengths of the records.
 *
 * <p>{@code NONE} compares no checksum of data. {@code CHUNK} compares the checksum of each chunk. {@code RECORD} also
 * compares the checksum of each record.
 */
enum Verify {
    NONE,
    CHUNK,
    RECORD
}
