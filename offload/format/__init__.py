"""Bytes of data objects and index objects to values and back: entries, blocks, the index, metadata, chunks as columns.
No module here does I/O."""
