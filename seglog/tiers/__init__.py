"""Places of sealed segments beside the data directory: the ports, the stores, and the tiers of a topic."""
