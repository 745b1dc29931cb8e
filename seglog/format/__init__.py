"""Bytes on disk to values and back: frames, index entries, tag indexes, control bodies. No module here does I/O."""
