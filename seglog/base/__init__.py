"""What all three packages stand on: errors, checks of arguments, the progress of a call, and forks."""
