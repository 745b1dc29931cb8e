"""What all three packages stand on: errors, arguments, progress, forks, dataclasses, lazy imports."""
