"""Sealed segments: their files, the cache of open ones, their tags, and batches of frames read from them."""
