"""The work that appends and deletes leave behind: checkpoints, truncation, retention, reclaim and relocation."""
