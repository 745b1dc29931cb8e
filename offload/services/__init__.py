"""The services of an archive, by subject."""
