"""Uploads in a process of their own, so that they never hold the interpreter lock that an append waits for."""
