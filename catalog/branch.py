"""Names: which volume a topic's branch is, and how a branch comes to be.

A topic's own history is its branch `main`. A branch is made in an order that a crash may end anywhere:

    step                                    what a crash after it leaves
    1 Control, in the new volume            a volume without a name, for GC
    2 Fork, in the parent (if any)          the same; the parent's commits are held for it
    3 Ref, put-if-absent                    the branch

B1  Of any number of racing creators of a name one wins. Those who want an empty `main` adopt the winner's volume, as
    they want the same; all others get `BranchExists`, as what they forked from may differ.
B2  A fork whose ref got no answer is `OutcomeUnknown`, with the volume by which it can be told from another's: a
    repetition would have another volume, and takes no branch for its own.

Source: Graft RFC 0001.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.commit import ForkPoint
from catalog.control import MAIN, Control, Ref
from catalog.errors import BranchExists, NoSuchBranch, NoSuchObject, NoSuchTopic, OutcomeUnknown
from catalog.gid import Vid
from catalog.keys import branch_of, ref_key, refs_prefix, topic_of
from catalog.put_once import put_once
from catalog.small_objects import decode_ref, encode_ref
from catalog.volume import Volumes

__all__ = ["Branch", "Branches"]


@dataclass(frozen=True, slots=True)
class Branch:
    """A named volume. `parent` is None for one that was not forked."""

    topic: str
    branch: str
    vid: Vid
    parent: ForkPoint | None
    created_at_ms: int


class Branches:
    """The names under one prefix. Safe to use from many threads. Every method may raise `InvalidName`."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self._store = volumes.store

    def resolve(self, topic: str, branch: str = MAIN) -> Vid:
        """Raises `NoSuchTopic`, or `NoSuchBranch` if the topic has other branches."""
        key = ref_key(topic, branch)
        try:
            return decode_ref(self._store.get(key), key).vid
        except NoSuchObject:
            if any(self._store.list(refs_prefix(topic), limit=1)):
                raise NoSuchBranch(topic, branch) from None
            raise NoSuchTopic(topic, self._store.url) from None

    def topics(self) -> list[str]:
        """Ascending."""
        return sorted({topic_of(key) for key in self._store.list(refs_prefix())})

    def branches(self, topic: str) -> list[Branch]:
        """Ascending by name. Raises `NoSuchTopic`."""
        names = [branch_of(key) for key in self._store.list(refs_prefix(topic))]
        if not names:
            raise NoSuchTopic(topic, self._store.url)
        return [self._branch(topic, name) for name in names]

    def create(self, topic: str, branch: str = MAIN, parent: ForkPoint | None = None, *, now_ms: int) -> Vid:
        """Make the branch, at `parent` or empty; returns its volume. For an empty `main`, the one that it has already.

        Raises `BranchExists`, `NoSuchObject` if the fork point's commit is not there, and `OutcomeUnknown`.
        """
        try:
            found = self.resolve(topic, branch)
        except (NoSuchTopic, NoSuchBranch):
            return self._make(Control(Vid.new(now_ms), parent, now_ms, topic, branch))
        if branch != MAIN or parent is not None:
            raise BranchExists(topic, branch)
        return found

    def _make(self, control: Control) -> Vid:
        self._volumes.create(control)
        key = ref_key(control.topic, control.branch)
        try:
            body = put_once(self._store, key, encode_ref(Ref(control.vid, control.created_at_ms)))
        except OutcomeUnknown as unknown:
            if control.parent is None:
                raise
            raise OutcomeUnknown(key, unknown.cause, _unknown_fork(control)) from unknown
        vid = decode_ref(body, key).vid
        if vid != control.vid and (control.branch != MAIN or control.parent is not None):
            raise BranchExists(control.topic, control.branch)
        return vid

    def _branch(self, topic: str, branch: str) -> Branch:
        vid = self.resolve(topic, branch)
        control = self._volumes.control(vid)
        return Branch(topic, branch, vid, control.parent, control.created_at_ms)


def _unknown_fork(control: Control) -> str:
    return (
        f"if `seglog branch list {control.topic}` shows {control.branch} with volume {control.vid}, it was made; "
        "if it does not show it, run the same command again"
    )
