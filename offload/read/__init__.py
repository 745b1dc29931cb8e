"""Reads from object storage: the cold reader, its read-ahead, the fetches and their caches."""
