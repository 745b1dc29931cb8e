"""Bytes in object storage to values and back: ids, keys, envelopes, commits, checkpoints and checksums. No module here
does I/O."""
