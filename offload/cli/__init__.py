"""The command line of `seglog`: it parses the words, runs a use case, and prints the result.

`offload.main` is the entry point, and `offload.cli.command_line` the front door. This package imports nothing by
itself.
"""
