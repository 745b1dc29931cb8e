"""Send sealed segments to the remote, and keep it tidy: `seglog seal`, `offload`, `compact` and `uploads`.

`pause`, `resume` and `retry` steer the daemon, which seals and offloads by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse
from offload.operations.command import About, Command, Directory, TopicName, dry
from offload.operations.printing import (
    Output,
    WouldTake,
    check_meant,
    counted,
    format_bytes,
    lines,
    parse_span_ms,
    would,
    would_take_text,
)
from offload.operations.queue import delete_acked
from offload.operations.result_json import HIDDEN
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Log, Topic


@dataclass(frozen=True, slots=True)
class Sealed:
    """`segments` counts the sealed segments on this disk."""

    topic: str
    sealed_seq: int
    segments: int


def seal(log: Log, topic: TopicName) -> Sealed:
    """Seal the newest segment. Then all records so far can be offloaded."""
    handle = log.get_topic(topic)
    handle.seal()
    segments = [segment for segment in handle.inner.segments() if segment.sealed]
    return Sealed(topic, handle.inner.sealed_seq, len(segments))


@dataclass(frozen=True, slots=True)
class Offloaded:
    """The commits of one topic's offload. `released_seq` is 0 if no hot copy was deleted."""

    topic: str
    offloaded_seq: int
    lsns: tuple[int, ...]
    frame_bytes: int
    stored_bytes: int
    released_seq: int
    unsealed_records: int
    has_segments: bool = field(metadata=HIDDEN)
    url: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class WouldSend:
    """The bytes of sealed segments that an offload of the topic would send."""

    topic: str
    would_send_bytes: int
    url: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class TopicFailed:
    """The error of one of several topics. It does not stop the others."""

    topic: str = field(metadata=HIDDEN)
    error: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Paused:
    topic: str
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Retried:
    """A topic whose offload the daemon tries at its next look."""

    topic: str
    retry: bool


def offload(
    directory: Directory,
    topic: Annotated[str | None, About("TOPIC or TOPIC@BRANCH.", is_argument=True, names="topic")] = None,
    every: Annotated[bool, About("Every topic of this data directory.", "--all")] = False,
    up_to: Annotated[int | None, About("Only segments that end at this seq or before.")] = None,
    drop_hot: Annotated[
        bool, About("Delete the hot copy now, after reading the remote one back, instead of after the lag.")
    ] = False,
    dry_run: Annotated[bool, About("Only show how much would be sent.")] = False,
) -> Iterator[Offloaded | WouldSend | TopicFailed]:
    """Send sealed segments to the remote. A run makes one commit, and sends the deletes that came after them.

    After a failure, repeat the command: it continues where it stopped. The unsealed tail stays, and `seglog seal` seals
    it.
    """
    if (topic is None) == (not every):
        raise Misuse("name a TOPIC, or give --all")
    archive = directory.archive
    if topic is not None:
        yield _offload(directory, archive, topic, up_to, drop_hot=drop_hot, dry_run=dry_run)
        return
    failed: Exception | None = None
    for name in [name for name in directory.log.topics() if _is_written(directory.log.topic(name))]:
        try:
            yield _offload(directory, archive, name, up_to, drop_hot=drop_hot, dry_run=dry_run)
        except Exception as error:
            failed = error
            yield TopicFailed(name, str(error))
    if failed is not None:
        raise failed  # the last error gives the command its exit code


def pause(archive: Archive, topic: TopicName) -> Paused:
    """Stop the daemon's offload of a topic until `resume`. `seglog offload` still works."""
    archive.upkeep.pause(topic, paused=True)
    return Paused(topic, is_paused=True)


def resume(archive: Archive, topic: TopicName) -> Paused:
    """Let the daemon offload a paused topic again."""
    archive.upkeep.pause(topic, paused=False)
    return Paused(topic, is_paused=False)


def retry(directory: Directory, topic: TopicName) -> Retried:
    """Let the daemon retry a failed offload now. It does not wait for the end of its pause."""
    archive = directory.archive  # without a remote there is no offload to try
    if not archive.replication.is_replica(topic):  # a promotion makes the topic one for a moment
        directory.log.get_topic(topic)
    directory.host.retry(topic)
    return Retried(topic, retry=True)


def _is_written(topic: Topic) -> bool:
    return topic.config.durability != "ephemeral"


def _offload(
    directory: Directory, archive: Archive, name: str, up_to: int | None, *, drop_hot: bool, dry_run: bool
) -> Offloaded | WouldSend:
    waiting_bytes = archive.status.waiting_bytes(name, up_to)
    if dry_run:
        return WouldSend(name, waiting_bytes, archive.url)
    delete_acked(directory.log, archive, name)
    with directory.host.progress(f"offload {name}", waiting_bytes) as advance:
        result = archive.offload(name, up_to=up_to, drop_hot=drop_hot, on_bytes=advance)
    segments = [published.segment for published in result.published if published.segment]
    return Offloaded(
        topic=name,
        offloaded_seq=result.offloaded_seq,
        lsns=tuple(published.lsn for published in result.published),
        frame_bytes=sum(segment.frame_bytes for segment in segments),
        stored_bytes=sum(segment.data_length for segment in segments),
        released_seq=result.released_seq,
        unsealed_records=result.unsealed_records,
        has_segments=bool(segments),
        url=archive.url,
    )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new object in the place of others, and its commit."""

    topic: str
    lsn: int
    first_seq: int
    last_seq: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class NothingRewritten:
    topic: str = field(metadata=HIDDEN)


def compact(
    directory: Directory,
    topic: Annotated[str | None, About("TOPIC or TOPIC@BRANCH.", is_argument=True, names="topic")] = None,
    every: Annotated[bool, About("Every topic of this data directory.", "--all")] = False,
    erase: Annotated[bool, About("Rewrite the objects that hold deleted records instead.")] = False,
    message: Annotated[str, About("With --erase: why. The commit keeps it.", "-m --message")] = "",
    dry_run: Annotated[bool, About("With --erase: show what would go, and change nothing.")] = False,
    yes: Annotated[bool, About("With --erase: do it without a question.")] = False,
) -> Iterator[Rewritten | NothingRewritten | WouldTake]:
    """Merge small objects in the remote, with a commit. Frequent offloads leave them. No past state changes.

    With --erase, rewrite each object that holds deleted records without them. GC deletes the old object when the window
    has passed. `log` shows until when.

    The settings merge_below_bytes and merge_count say which objects are small, and how many of them make a merge.
    """
    if (topic is None) == (not every):
        raise Misuse("name a TOPIC, or give --all")
    if erase:
        topics = "every topic" if topic is None else topic
        check_meant(f"this erases the deleted records of {topics} from the remote", yes=yes, dry_run=dry_run)
    elif dry_run or message:
        raise Misuse("--dry-run and -m go with --erase")
    archive = directory.archive
    for name in directory.log.topics() if topic is None else [topic]:
        if dry_run:
            yield would("compact --erase", name, archive.previews.erasure(name))
            continue
        total_bytes = archive.upkeep.bytes_to_rewrite(name, erase=erase)
        with directory.host.progress(f"compact {name}", total_bytes) as advance:
            published = (
                archive.upkeep.erase(name, message=message, on_bytes=advance)
                if erase
                else archive.upkeep.compact(name, on_bytes=advance)
            )
        for commit in published:
            segment = commit.segment
            assert segment is not None  # noqa: S101 - a merge has one
            yield Rewritten(name, commit.lsn, segment.first_seq, segment.last_seq, segment.data_length)
        if not published:
            yield NothingRewritten(name)


@dataclass(frozen=True, slots=True)
class UploadListed:
    key: str
    upload_id: str
    age_ms: int
    aborted: bool


def uploads(
    directory: Directory,
    abort: Annotated[bool, About("Abort them: their parts are freed.")] = False,
    older_than: Annotated[str, About("Only those that began so long ago, such as 24h.")] = "24h",
) -> Iterator[UploadListed]:
    """List abandoned multipart uploads in the remote. No attempt of this directory continues them. Crashes leave them,
    and they cost money.

    Another data directory may be uploading under the same prefix right now, so only old uploads count.
    """
    age_ms = parse_span_ms("--older-than", older_than)
    upkeep = directory.archive.upkeep
    for upload in upkeep.orphan_uploads(age_ms):
        if abort:
            upkeep.abort(upload)
        yield UploadListed(upload.key, upload.upload_id, upload.age_ms, abort)


def sealed_text(sealed: Sealed) -> str:
    segments = counted(sealed.segments, "sealed segment")
    return f"{sealed.topic} is sealed up to seq {sealed.sealed_seq}: {segments} on this disk"


def failure_note(done: Offloaded | WouldSend | TopicFailed) -> str:
    return f"{done.topic}: {done.error}" if isinstance(done, TopicFailed) else ""


def offloaded_text(done: Offloaded | WouldSend | TopicFailed) -> str:
    if isinstance(done, TopicFailed):
        return ""
    if isinstance(done, WouldSend):
        return f"{done.topic}: {format_bytes(done.would_send_bytes)} of sealed segments would be sent to {done.url}"
    commits = ", ".join(f"lsn {lsn}" for lsn in done.lsns) or "nothing new"
    texts = [f"{done.topic}: offloaded up to seq {done.offloaded_seq} ({commits})"]
    if done.has_segments:
        frames, stored = format_bytes(done.frame_bytes), format_bytes(done.stored_bytes)
        texts.append(f"  {frames} of frames became {stored} in {done.url}")
    if done.released_seq:
        texts.append(f"  read back, then deleted the hot copy up to seq {done.released_seq}")
    if done.unsealed_records:
        texts.append(f"  {counted(done.unsealed_records)} in the unsealed tail: `seglog seal {done.topic}`")
    return "\n".join(texts)


def _print_rewritten(
    output: Output, results: Iterator[Rewritten | NothingRewritten | WouldTake], values: Mapping[str, Any]
) -> None:
    for done in results:
        if isinstance(done, WouldTake):
            output.show(done, would_take_text(done))
        elif isinstance(done, Rewritten):
            size, seqs = format_bytes(done.stored_bytes), f"seq {done.first_seq}-{done.last_seq}"
            output.show(done, f"{done.topic}: {seqs} in one object of {size} (lsn {done.lsn})")
        else:
            output.remark(f"{done.topic}: nothing to {'erase' if values['erase'] else 'merge'}")


def _print_uploads(output: Output, results: Iterator[UploadListed], _: Mapping[str, Any]) -> None:
    is_none = True
    for upload in results:
        is_none = False
        state = "aborted" if upload.aborted else "orphan "
        output.show(upload, f"{state}  {upload.key}  {upload.age_ms / 3_600_000:.1f} h old")
    if is_none:
        output.remark("none")


SEAL = Command("seal", seal, lines(sealed_text), section="operate")
OFFLOAD = Command("offload", offload, lines(offloaded_text, failure_note), reads=dry, section="operate")
COMPACT = Command("compact", compact, _print_rewritten, reads=dry, takes=lambda values: values["erase"])
PAUSE = Command("pause", pause, lines(lambda paused: f"{paused.topic} is paused"))
RESUME = Command("resume", resume, lines(lambda paused: f"{paused.topic} is resumed"))
RETRY = Command("retry", retry, lines(lambda retried: f"{retried.topic} is tried again"))
UPLOADS = Command("uploads", uploads, _print_uploads, reads=lambda values: not values["abort"])
