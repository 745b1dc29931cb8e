"""Which feed reads next, and what a daemon under load puts off. The functions take values and the time of now."""
