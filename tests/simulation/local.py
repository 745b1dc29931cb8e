"""What a simulated data directory keeps: `catalog.local.LocalCatalog` with dictionaries in the place of a database.

It makes the same promises: what a call of `save` gives is kept as a whole, and still there after a crash; and a process
may die before each such call, and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from catalog import Attempt, Handle, Sid, Vid
from catalog.keys import Key

__all__ = ["LocalMemory"]


class LocalMemory:
    """`perhaps_crash` is called before and after each change of what the process is about to do."""

    def __init__(self, perhaps_crash: Callable[[], None]) -> None:
        self._perhaps_crash = perhaps_crash
        self._handles: dict[str, Handle] = {}
        self._attempts: dict[Sid, Attempt] = {}
        self._controls: dict[Vid, bytes] = {}
        self._commits: dict[Vid, dict[int, bytes]] = {}
        self._objects: dict[Key, bytes] = {}

    def save(
        self,
        *,
        handle: Handle | None = None,
        attempt: Attempt | None = None,
        commit: tuple[Vid, int, bytes] | None = None,
        done: Sid | None = None,
    ) -> None:
        self._perhaps_crash()
        if handle is not None:
            self._handles[handle.name] = handle
        if attempt is not None:
            self._attempts[attempt.sid] = attempt
        if commit is not None:
            self.put_commits(commit[0], [commit[1:]])
        if done is not None:
            self._attempts.pop(done, None)
        self._perhaps_crash()

    def handle(self, name: str) -> Handle | None:
        return self._handles.get(name)

    def handles(self) -> tuple[Handle, ...]:
        return tuple(self._handles[name] for name in sorted(self._handles))

    def attempts(self, name: str | None = None) -> tuple[Attempt, ...]:
        found = (each for each in self._attempts.values() if name in (None, each.name))
        return tuple(sorted(found, key=lambda each: (each.created_at_ms, each.first_seq, each.sid)))

    def delete_attempt(self, sid: Sid) -> None:
        self.save(done=sid)

    def put_control(self, vid: Vid, body: bytes) -> None:
        self._controls[vid] = body

    def control(self, vid: Vid) -> bytes | None:
        return self._controls.get(vid)

    def put_commits(self, vid: Vid, commits: Iterable[tuple[int, bytes]]) -> None:
        self._commits.setdefault(vid, {}).update(commits)

    def commit_bodies(self, vid: Vid, first_lsn: int, last_lsn: int) -> dict[int, bytes]:
        known = self._commits.get(vid, {})
        return {lsn: known[lsn] for lsn in sorted(known) if first_lsn <= lsn <= last_lsn}

    def newest_lsn(self, vid: Vid) -> int:
        return max(self._commits.get(vid, {0: b""}))

    def drop_commits(self, vid: Vid, below_lsn: int) -> int:
        known = self._commits.get(vid, {})
        gone = [lsn for lsn in known if lsn < below_lsn]
        for lsn in gone:
            del known[lsn]
        return len(gone)

    def has_commits(self, vid: Vid, first_lsn: int, last_lsn: int) -> bool:
        return all(lsn in self._commits.get(vid, {}) for lsn in range(first_lsn, last_lsn + 1))

    def put_object(self, key: Key, body: bytes) -> None:
        self._objects[key] = body

    def object(self, key: Key) -> bytes | None:
        return self._objects.get(key)
