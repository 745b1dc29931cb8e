"""The process that a log runs in: forks, calls within calls, and interrupts."""
