"""Garbage collection: mark, sweep, the plan, its execution, and scrub."""
