"""Names: branches, tags, pins, the oplog, undo, and the deletion of a volume."""
