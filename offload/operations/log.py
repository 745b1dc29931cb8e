"""The commits of a topic, and the segments that they name: `seglog log`, `show` and `segments`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse
from offload.operations.command import About, Command, TopicName, always, with_branch
from offload.operations.commits import CommitListed, commit_text, listed, segment_text, stat_text
from offload.operations.graph import GraphedCommit, graph, graphed
from offload.operations.printing import Output, fitted, format_bytes, is_brief, lines, rows, time_ms
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog import PastCommit, SegmentView
    from catalog.history import History
    from offload.archive import Archive

_KINDS = ("offload", "delete", "evict", "truncate", "compact", "config", "restore")


def log(
    archive: Archive,
    topic: TopicName,
    branch: Annotated[str | None, About("The branch; the same as TOPIC@BRANCH.", names="branch")] = None,
    limit: Annotated[int | None, About("At most so many commits.", "-n --limit", least=1)] = None,
    since: Annotated[
        str | None, About("Only commits of this time or later, such as 2026-11-21T09:30Z.", names="time")
    ] = None,
    until: Annotated[str | None, About("Only commits of this time or earlier.", names="time")] = None,
    kind: Annotated[str | None, About("Only commits of these kinds, such as delete,truncate.")] = None,
    record: Annotated[int | None, About("Only commits that added, removed or rewrote this seq.", least=1)] = None,
    stat: Annotated[bool, About("Also records, bytes, writer, epoch and message of each.")] = False,  # noqa: ARG001 - the output shows it
    as_graph: Annotated[
        bool, About("All branches of the topic, as a graph with their names and tags.", "--graph")
    ] = False,
) -> Iterator[CommitListed | GraphedCommit]:
    """Show the commits of a topic. The newest is the first. Each LSN is a target for restore, show and read --at.

    A branch shows the commits of its parent as N@VOLUME, because it may get a commit N of its own. On a terminal, -v
    shows volumes, hashes and times in full.
    Examples: seglog log orders --kind delete,truncate --since "2 days ago"; seglog log orders --graph
    """
    kinds = _kinds(kind)
    since_ms, until_ms = time_ms(since), time_ms(until)
    if not as_graph:
        yield from _commits(archive, with_branch(topic, branch), kinds, (since_ms, until_ms), record, limit)
        return
    if any(condition is not None for condition in (branch, kinds, since_ms, until_ms, record)):
        raise Misuse("--graph shows all branches and commits: only -n and --stat go with it")
    yield from islice(graph(archive, topic), limit)


def _commits(
    archive: Archive,
    name: str,
    kinds: set[str] | None,
    times_ms: tuple[int | None, int | None],
    record: int | None,
    limit: int | None,
) -> Iterator[CommitListed]:
    since_ms, until_ms = times_ms
    history = archive.history.commits(name)
    if not history:
        return
    touches = None if record is None else _Touched(history, record)
    erasures = archive.upkeep.erasures(name, history)
    for stored in history:
        commit = stored.commit
        is_wanted = kinds is None or commit.kind.name.lower() in kinds
        is_wanted &= since_ms is None or commit.created_at_ms >= since_ms
        is_wanted &= until_ms is None or commit.created_at_ms <= until_ms
        if not is_wanted or (touches is not None and not touches.by(stored)):
            erasures.date_ms(stored)
            continue
        yield listed(stored, history, erasures)
        if limit is not None:
            limit -= 1
            if not limit:
                return


def show(
    archive: Archive,
    topic: TopicName,
    commit: Annotated[str, About("lsn:N, head, head~N, tag:NAME, seq:N or a time.", metavar="COMMIT", names="target")],
) -> CommitListed:
    """Show one commit: its segments, writer and message.

    Examples: seglog show orders lsn:7; seglog show orders head~1
    """
    past = archive.history.commit(topic, commit)
    history = archive.history.commits(topic)
    erasures = archive.upkeep.erasures(topic, history)
    for stored in history:
        if stored.commit.vid == past.commit.vid and stored.commit.lsn <= past.commit.lsn:
            return listed(past, history, erasures)
        erasures.date_ms(stored)
    return listed(past, history)  # a tag of another branch


class _Touched:
    """Tells which commits of a history touched one seq."""

    def __init__(self, history: History, seq: int) -> None:
        self._seq = seq
        self._first_seqs = {
            ref.sid: ref.first_seq for past in history for ref, last in past.segments() if ref.first_seq <= seq <= last
        }

    def by(self, past: PastCommit) -> bool:
        from catalog import CommitKind

        commit, seq = past.commit, self._seq
        if past.cut_seq is not None and seq > past.cut_seq:
            return False
        if any(ref.sid in self._first_seqs for ref, _ in past.segments()):
            return True
        match commit.kind:
            case CommitKind.TRUNCATE:
                return commit.truncate_from is not None and commit.truncate_from <= seq <= commit.at_seq
            case CommitKind.EVICT:
                return seq < commit.bounds.evict_floor
            case CommitKind.RESTORE:
                return any(_shows(view, seq) for view in commit.restored_views)
            case CommitKind.DELETE:
                return seq < commit.deletions.before_seq or self._is_deleted(past)
        return False

    def _is_deleted(self, past: PastCommit) -> bool:
        from pyroaring import BitMap

        bitmaps = past.commit.deletions.bitmaps
        return any(
            self._seq - first_seq in BitMap.deserialize(bitmaps[sid])
            for sid, first_seq in self._first_seqs.items()
            if sid in bitmaps
        )


def _shows(view: SegmentView, seq: int) -> bool:
    from pyroaring import BitMap

    deleted = BitMap() if view.deleted is None else BitMap.deserialize(view.deleted)
    return view.first <= seq <= view.last and seq - view.ref.first_seq not in deleted


def _kinds(text: str | None) -> set[str] | None:
    if text is None:
        return None
    kinds = {word.strip() for word in text.split(",")}
    for word in sorted(kinds - set(_KINDS)):
        raise Misuse(f"--kind: {word!r} is none of {', '.join(_KINDS)}")
    return kinds


@dataclass(frozen=True, slots=True)
class SegmentShown:
    """A segment of a state: the seqs that the state has of it, and the commit that added it. `volume` has its objects.

    `data_bytes` is the size of its data object. A fork may have only a part of it.
    """

    topic: str
    sid: str
    volume: str
    lsn: int
    first_seq: int
    last_seq: int
    data_bytes: int


def segments(
    archive: Archive,
    topic: TopicName,
    at: Annotated[
        str | None,
        About("As it was then: seq:N, lsn:N, head, head~N, tag:NAME, or a time. Now without it.", names="target"),
    ] = None,
) -> Iterator[SegmentShown]:
    """List the segments of a topic in the remote, by seq. With --at, those of a past state.

    Example: seglog segments orders --at head~1
    """
    for view in archive.history.snapshot(topic, at).segments:
        yield SegmentShown(
            topic, str(view.ref.sid), str(view.vid), view.lsn, view.first, view.last, view.ref.data_length
        )


def _print_commits(output: Output, results: Iterator[CommitListed | GraphedCommit], values: Mapping[str, Any]) -> None:
    volume = None
    for result in results:
        commit = result.commit if isinstance(result, GraphedCommit) else result
        is_graphed = isinstance(result, GraphedCommit)  # the lines say which volume it is
        text = commit_text(replace(commit, target=f"lsn:{commit.lsn}") if is_graphed else commit, output)
        text += f"\n{stat_text(commit)}" if values["stat"] else ""
        if isinstance(result, GraphedCommit):
            taken = max(map(len, graphed(result, "").splitlines()))
            text = graphed(result, fitted(output, text, 4, taken))
        else:
            text = fitted(output, text, 4)
            if volume is not None and commit.volume != volume:
                parent = "its parent; -v shows the whole names" if is_brief(output) else f"volume {commit.volume}"
                output.remark(f"-- forked from {parent}")
        volume = commit.volume
        output.show(result, text)
    if volume is None and not _is_filtered(values):
        output.note(f"{with_branch(values['topic'], values['branch'])}: nothing is offloaded yet")


def _is_filtered(values: Mapping[str, Any]) -> bool:
    return any(values[name] is not None for name in ("since", "until", "kind", "record"))


def shown_text(commit: CommitListed) -> str:
    """Return one commit with all that it says."""
    lines = [commit_text(commit), stat_text(commit), f"    volume {commit.volume}, hash {commit.hash}"]
    lines.append(f"    the topic at {commit.at_time}: head seq {commit.head_seq}, operation at seq {commit.at_seq}")
    lines += [f"    object {segment.sid}: {segment_text(segment)}" for segment in commit.segments]
    return "\n".join(lines)


def _segment_text(segment: SegmentShown) -> str:
    seqs = f"seq {segment.first_seq}-{segment.last_seq}"
    return f"{seqs:<24} lsn {segment.lsn:<8} {segment.sid}  {format_bytes(segment.data_bytes)}"


def _segment_row(segment: SegmentShown) -> tuple[str, ...]:
    numbers = segment.first_seq, segment.last_seq, segment.lsn
    return *map(str, numbers), format_bytes(segment.data_bytes)


_print_segments = rows(("first seq", "last seq", "lsn", "size"), _segment_row, _segment_text)


LOG = Command("log", log, _print_commits, reads=always, role="read", is_long=True, section="time travel")
SHOW = Command("show", show, lines(shown_text), reads=always, role="read", is_long=True)
SEGMENTS = Command("segments", segments, _print_segments, reads=always, role="read")
