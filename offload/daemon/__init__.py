"""`seglog serve`: one process that holds a data directory, takes appends over HTTP, offloads, and enforces retention.

`service` holds the open log and runs the background tasks. `http` and `commands` answer requests. `server` is the
process. `triggers` and `disk` make decisions from values.
"""
