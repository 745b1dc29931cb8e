"""The operations: what the product does for its users. Each file has a few of them, with what a terminal shows.

An operation is a function. It takes a `Log`, an `Archive` or a `Directory`, and plain arguments. It returns a frozen
dataclass, or an iterator of them, and prints nothing. One that checks its arguments takes a `Directory`, and checks
them before it uses the directory. A `Command` (offload.operations.command) joins the function with its printer. From it
come the arguments of the command line with their help, the HTTP route and its schema, and the page docs/cli.md.
"""
