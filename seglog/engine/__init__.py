"""The parts of an open log and the state they share."""
