"""Garbage collection: mark, the search for garbage, the plan, its execution, and scrub."""
