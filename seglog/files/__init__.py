"""The port to the file system and the clock, their kinds, and the lock of a data directory."""
