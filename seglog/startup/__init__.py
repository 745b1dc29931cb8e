"""Opening a log from its files: creation, recovery, verification, and a change of the number of shards."""
