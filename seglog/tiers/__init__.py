"""Where sealed segments lie besides the data directory: the ports, the stores, and the tiers of a topic."""
