"""A client of the daemon over HTTP, for programs on any machine. It needs no log, and imports none.

    import seglog

    with seglog.connect("https://log.example:7373", token="...") as client:
        client.topic("orders").append([b"one", b"two"], key="order-17")

The core decides without I/O. The driver needs the standard library alone.

    address requests bodies answers      values: where the daemon is, requests, bodies, answers and their errors
    connections                          one exchange with the daemon; the command line asks with it too
    retries                              whether and when a request is sent again (CLIENT-1 to CLIENT-3)
    following sse                        followers of several topics
    reading arrow                        reads and followers that resume, reads in Arrow by pages (CLIENT-4)
    window                               the batches of a producer without a definite answer (CLIENT-5 to CLIENT-10)
    commands                             commands of the daemon as requests, and their results
    driver client producer queue archive the plain driver

A producer has up to five batches on their way, each on a connection of its own:

    1  The producer P gives a batch the number 7, and sends it. It sends batch 8 on another connection.
    2  The daemon gets batch 8 first. The log refuses it, because 7 is the next number. P waits with batch 8.
    3  The log appends batch 7, and the answer is lost. P sends batch 7 again, with the same number and values.
    4  The log has batch 7. It appends nothing, and the daemon answers with its seqs.
    5  No batch below 8 lacks its answer now, so P sends batch 8 again.

CLIENT-1  A request may have changed something before its answer was lost. The client then repeats it only if a
    repetition changes nothing: a read, or an append with a producer or a key.
CLIENT-2  All tries of a call together take at most `total_s`. The client waits at least as long as `Retry-After` says.
    If that wait goes beyond `total_s`, the call fails at once.
CLIENT-3  An append whose outcome is unknown fails with `AppendUnknown`, also if a later try got another error.
CLIENT-4  A read hands each record to its caller once, in order, and none that came after it began. It never mixes
    records of two epochs or incarnations.
CLIENT-5  A batch gets its number once, in the order of the calls of `send`. Each try has the same number and values.
CLIENT-6  Batch n gets its number only after batch n - 5 has its definite answer. The log knows the last five batches.
    So it knows each batch that is repeated.
CLIENT-7  The log refuses a batch that comes before a lower one. The producer sends it again when no lower batch lacks
    its answer. Until none is left behind, it sends one batch at a time.
CLIENT-8  The answer to the first append names the incarnation of the topic. Each later append with a producer or a key
    names it too. The daemon refuses it in another incarnation, which may have the records without their numbers.
CLIENT-9  After a batch is refused or given up, the producer begins no try of a higher one. Lower ones still get
    their answers. The error names the first batch whose outcome is unknown, and the number of records before it.

CLIENT-10  The log compares no values. If no earlier try of a batch can be in, and the log has the batch, another
    program has the same id and epoch. So the producer fails with `BatchReused`. A proxy that repeats a POST by itself,
    which HTTP forbids, gives the same error.

The package imports a name when it is first used. Each command looks for a daemon, and `http.client` takes a tenth of
the time of a command.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from seglog.client.archive import RemoteArchive, RemoteBranches
    from seglog.client.batches import Batching
    from seglog.client.client import Client, RemoteFollower, RemoteTopic, connect
    from seglog.client.following import Followed
    from seglog.client.producer import RemoteProducer
    from seglog.client.queue import Job, RemoteQueue, Settled
    from seglog.client.retries import Retries

__all__ = [
    "Batching",
    "Client",
    "Followed",
    "Job",
    "RemoteArchive",
    "RemoteBranches",
    "RemoteFollower",
    "RemoteProducer",
    "RemoteQueue",
    "RemoteTopic",
    "Retries",
    "Settled",
    "connect",
]

_HOMES = {
    "Batching": "batches",
    "Followed": "following",
    "Job": "queue",
    "RemoteArchive": "archive",
    "RemoteBranches": "archive",
    "RemoteProducer": "producer",
    "RemoteQueue": "queue",
    "Retries": "retries",
    "Settled": "queue",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'seglog.client' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"seglog.client.{_HOMES.get(name, 'client')}"), name)
