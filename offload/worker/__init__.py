"""Worker processes that upload. There, an upload never holds the interpreter lock that an append waits for."""
