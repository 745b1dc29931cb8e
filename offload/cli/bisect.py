"""The command `seglog bisect`."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from offload.cli.execution import reader_of
from offload.cli.session import Session
from offload.errors import Misuse, OffloadError, no_such_file
from offload.operations import bisect as use
from offload.operations.bisect import FirstBad, State, Tried, Verdict
from offload.operations.command import About, Command, TopicName
from offload.operations.commits import CommitListed, commit_text
from offload.operations.points import Resolved
from offload.operations.record_text import RecordBatch, to_line
from seglog import Record

_SKIP = 125
_FAILED = 128


class Verb(enum.StrEnum):
    RUN = "run"


def bisect(
    session: Session,
    topic: TopicName,
    good: Annotated[
        str, About("A point where CMD succeeds: seq:N, lsn:N, head~N, tag:NAME, or a time.", "--good", names="target")
    ],
    verb: Annotated[Verb, About("The word run.", metavar="RUN")],  # noqa: ARG001 - the front door checks it
    command: Annotated[list, About("The command, and all words behind it.", metavar="CMD...")],  # type: ignore[type-arg]
    bad: Annotated[str, About("A later point where CMD fails.", names="target")] = "head",
) -> None:
    """Find the first record that makes a command fail. It may also be the first delete or truncation that does.

    CMD gets a past state on standard input, as `seglog read` prints it. Exit code 0 says that the state is good, 1 to
    127 that it is bad, and 125 that CMD cannot tell. CMD also gets SEGLOG_DIR, SEGLOG_TOPIC, SEGLOG_AT, and
    SEGLOG_LAST_SEQ if the state ends within a commit. Its output goes to standard error. Nothing is copied or restored.
    Example: seglog bisect orders --good head~20 run ./check.sh
    """
    if not command:
        raise Misuse("bisect needs a command: seglog bisect TOPIC --good A --bad B run CMD")
    with reader_of(session) as call:
        past = _Past(topic, call)
        for tried in use.bisect(topic, past, _Judge(session, topic, past, command), good, bad):
            session.output.show(tried, _tried_text(tried) if isinstance(tried, Tried) else _found_text(tried))
            session.output.flush()


class _Past:
    """The history of a topic, through the commands that read it."""

    def __init__(self, topic: str, call: Callable[[str, Mapping[str, Any]], Iterator[Any]]) -> None:
        self._topic = topic
        self._call = call

    def resolve(self, target: str) -> Resolved:
        [point] = self._call("resolve", {"topic": self._topic, "to": target, "neighbours": 0})
        return point  # type: ignore[no-any-return]

    def commits(self) -> Iterator[CommitListed]:
        return self._call("log", {"topic": self._topic})

    def records(self, state: State, first_seq: int | None = None) -> Iterator[RecordBatch]:
        values = {"topic": self._topic, "at": state.at, "start": first_seq, "end": state.last_seq}
        return self._call("read", values)


class _Judge:
    """Runs a command on each state."""

    def __init__(self, session: Session, topic: str, past: _Past, command: Sequence[str]) -> None:
        self._past = past
        self._command = command
        self._variables = {**os.environ, "SEGLOG_DIR": str(session.directory.resolve()), "SEGLOG_TOPIC": topic}
        if session.remote is not None:
            self._variables["SEGLOG_REMOTE"] = session.remote
        if session.daemon_url is not None:
            self._variables["SEGLOG_DAEMON"] = session.daemon_url
        if session.token_file is not None:
            self._variables["SEGLOG_TOKEN_FILE"] = str(session.token_file.resolve())

    def __call__(self, state: State) -> Verdict:
        last_seq = {} if state.last_seq is None else {"SEGLOG_LAST_SEQ": str(state.last_seq)}
        variables = {**self._variables, "SEGLOG_AT": state.at, **last_seq}
        code = _exit_code(self._command, variables, self._past.records(state))
        if not 0 <= code < _FAILED:
            ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            text = f"{self._command[0]} {ended} at {state}"
            raise OffloadError(text, hint="0 says good, 1 to 127 bad, and 125 that it cannot tell")
        return Verdict.GOOD if code == 0 else Verdict.SKIP if code == _SKIP else Verdict.BAD


def _exit_code(command: Sequence[str], variables: Mapping[str, str], batches: Iterator[RecordBatch]) -> int:
    """Run a command with the records as its standard input, and return its exit code."""
    try:
        stdout = sys.stderr.fileno()
    except OSError:  # a test reads standard error
        stdout = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, env=dict(variables))
    except FileNotFoundError:
        raise no_such_file(Path(command[0])) from None
    with process:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        try:
            for batch in batches:
                process.stdin.write(b"".join(to_line(item) for item in batch.items if isinstance(item, Record)))
            process.stdin.close()
        except BrokenPipeError:  # a command may decide without the rest
            with suppress(BrokenPipeError):
                process.stdin.close()
    return process.returncode


def _tried_text(tried: Tried) -> str:
    return f"{State(tried.at, tried.last_seq)}: {tried.verdict}, about {tried.steps_left} more to try"


def _found_text(first: FirstBad) -> str:
    lines = [f"the last good state: {first.last_good}"]
    if first.record is not None:
        lines += [f"the first bad record: {first.record.heading}", f"    {first.record.content}"]
    elif first.skipped:
        lines += [f"the first bad state is one of {', '.join(first.skipped)}, {first.first_bad}"]
    else:
        lines += [f"the first bad state: {first.first_bad}"]
    return "\n".join(lines + ([] if first.commit is None else [f"    {commit_text(first.commit)}"]))


BISECT = Command("bisect", bisect)
