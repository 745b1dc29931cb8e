"""Data objects and index objects, from bytes to values and back: entries, blocks, the index, metadata, columns.
No module here does I/O."""
