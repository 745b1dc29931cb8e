"""From files to an open log: creation, recovery, verification, and a change of the number of shards."""
