"""Changes of a topic."""
