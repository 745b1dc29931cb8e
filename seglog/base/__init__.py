"""What all three packages stand on: errors, checks of arguments, progress, forks, and foreign packages."""
