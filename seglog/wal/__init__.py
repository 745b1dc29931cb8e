"""The write-ahead log: its files, group commit, shards, and the manifest of a checkpoint."""
