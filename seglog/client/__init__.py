"""A client of the daemon over HTTP, for programs on any machine. It needs no log, and imports none.

    import seglog

    with seglog.connect("https://log.example:7373", token="...") as client:
        client.topic("orders").append([b"one", b"two"], key="order-17")

The core decides without I/O. The driver needs the standard library alone.

    address requests bodies answers      values: where the daemon is, requests, bodies, answers and their errors
    retries                              whether and when a request is sent again (CLIENT-1 to CLIENT-3)
    reading                              reads and followers that resume (CLIENT-4)
    connections driver client            the plain driver

CLIENT-1  After a request that may have changed something, the client repeats only a request whose repetition changes
    nothing: a read, or an append with a producer or a key.
CLIENT-2  All tries of a call together take at most `total_s`. The client waits at least as long as `Retry-After` says.
    If that wait goes beyond `total_s`, the call fails at once.
CLIENT-3  An append whose outcome is unknown fails with `AppendUnknown`, also if a later try got another error.
CLIENT-4  A read hands each record to its caller once, in order. It never mixes records of two epochs or incarnations.

The package imports a name when it is first used: each command of the command line looks for a daemon, and `http.client`
takes a tenth of the time of a command.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from seglog.client.answers import Bounds, Receipt
    from seglog.client.client import Client, RemoteTopic, connect
    from seglog.client.retries import Retries

__all__ = ["Bounds", "Client", "Receipt", "RemoteTopic", "Retries", "connect"]

_HOMES = {"Bounds": "answers", "Receipt": "answers", "Retries": "retries"}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'seglog.client' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"seglog.client.{_HOMES.get(name, 'client')}"), name)
