"""The log in an asyncio program: the same core, and one hop to a thread for all appends of a tick.

    from seglog import aio

    async with aio.open("data") as log:
        seqs = await log.topic("orders").append([b"one", b"two"], tag="eu")
        async for record in log.topic("orders").read():
            print(record.seq, record.value)

Appends that tasks make while the loop runs, and while a group is written, form the next group: one hop, one write, one
sync. Every other call that may wait for the disk or for other threads has a twin of the same name here. The twin
runs in a thread. A call that needs no I/O, such as `head_seq`, is made on `sync`, which is the plain log or topic.

The log works on the loop of asyncio and on uvloop, which `pip install 'seglog[uvloop]'` installs. A program chooses its
loop itself, as with `uvloop.run(main())`.

AIO-1  Appends of one topic get their seqs in the order in which their tasks began to await them.
AIO-2  An append that is cancelled before its group begins appends nothing. If it is cancelled later, its records are
    appended once, and its task does not learn their seqs. The caller cannot tell the two cases apart, as after a crash.
AIO-3  The setting `queue_max_bytes` bounds the bytes of waiting appends. Beyond it, `append` waits for room, in order.
    An append that is larger than the bound goes alone.
AIO-4  Appends and `close` belong to the loop that opened the log. In any other loop they raise `OtherLoop`. When that
    loop has ended, `close` works in any loop.
AIO-5  A thread writes and syncs, and the loop never waits for the disk. If the log is opened with `loop_wait_ms`, the
    loop writes small groups itself as long as a write takes no longer than that. After a write that took longer, a
    thread makes the next 64, and more if the disk stays slow.
"""

from __future__ import annotations

from seglog.aio.log import AsyncLog, open
from seglog.aio.topic import AsyncTopic

__all__ = ["AsyncLog", "AsyncTopic", "open"]
