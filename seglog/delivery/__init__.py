"""Cursors over a log: how far each reader of a topic has come, kept as records of a topic of the log itself."""
