"""Conversions between the bytes in object storage and values: ids, keys, envelopes, commits, checkpoints and checksums.

No module here does I/O.
"""
