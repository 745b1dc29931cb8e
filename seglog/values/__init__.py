"""Values of the log: records, deletes, floors, names and settings. No module here does I/O."""
