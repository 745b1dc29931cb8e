"""The calls of an archive, by subject."""
