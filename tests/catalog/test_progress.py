"""Test the progress that the parts of a call count: only the watcher of the call gets it."""

from __future__ import annotations

import threading

from seglog.base.progress import count, watching


def test_the_watcher_gets_what_its_own_thread_counts_within() -> None:
    told: list[tuple[str, int, int | None, str]] = []
    count("sending", 1, "bytes")
    with watching(lambda *each: told.append(each)):
        count("sending", 2, "bytes")
        count("reading", 1, "commits")
        count("sending", 3, "bytes")
        other = threading.Thread(target=count, args=("sending", 4, "bytes"))
        other.start()
        other.join()
        with watching(lambda *_: None):
            count("sending", 5, "bytes")
        count("sending", 0, "bytes")
    count("sending", 6, "bytes")
    assert told == [
        ("sending", 2, None, "bytes"),
        ("reading", 1, None, "commits"),
        ("sending", 5, None, "bytes"),
        ("sending", 5, None, "bytes"),
    ]
