package seglog.spark;

/**
 * Rows of one chunk of a piece.
 *
 * @param records the decoded chunk; null if the piece needs no data
 * @param rows numbers of records in the chunk, ascending
 */
record ChunkRows(Piece piece, Chunk chunk, Records records, int[] rows) {}
