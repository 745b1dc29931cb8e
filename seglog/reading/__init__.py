"""Reads of a topic: one record, batches, following, searching by time, and sealed segments for other processes."""
