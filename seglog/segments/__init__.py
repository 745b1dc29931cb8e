"""Segments: their files, a cache of open ones, tag indexes, rewrites, and batches of frames."""
