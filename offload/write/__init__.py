"""The way from sealed segments to published commits: attempts, uploads, the publisher, read-back and merging."""
