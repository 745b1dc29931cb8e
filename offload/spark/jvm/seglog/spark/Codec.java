package seglog.spark;

/** The stored form of a chunk's bytes. */
enum Codec {
    NONE,
    ZSTD
}
