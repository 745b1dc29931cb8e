"""The use cases: one function for each command. The command line and the daemon call the same functions.

A function takes a `Log`, an `Archive` or a `Directory`, and plain arguments. It returns a frozen dataclass, or an
iterator of them. It prints nothing. A function that checks its arguments takes a `Directory`, and checks them before
it uses the directory. `offload.operations.registry` lists the functions, and `offload.operations.results`
makes the JSON form of a result.
"""
