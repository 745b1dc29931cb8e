"""`seglog serve`: one process that holds a data directory, takes appends over HTTP, and sees to offload and retention.

`service` is the log with what is done to it in the background, `http` and `commands` are its face, `server` is the
process. `triggers` and `disk` decide, from values.
"""
