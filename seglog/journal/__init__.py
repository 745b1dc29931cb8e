"""An append-only journal of items of any size, for state that an application keeps beside its log."""
