"""The commands `seglog init`, `recover` and `serve`: a directory made, made from a remote, and held by a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from offload.cli.output import counted, note
from offload.cli.progress import while_waiting
from offload.cli.session import Session
from offload.commands.parameters import About

__all__ = ["init", "recover", "serve"]


def init(
    session: Session,
    remote: Annotated[str | None, About("Where sealed segments go: s3://bucket/prefix or file:///path.")] = None,
) -> None:
    """Make a data directory and its seglog.toml.

    The command sends nothing to the remote. The first offload checks the remote.
    Example: seglog -C data init --remote s3://my-bucket/acme
    """
    from offload.commands import init as use

    made = use.init(session.directory, remote or session.remote, session.log_settings)
    place = f"remote {made.remote}" if made.remote else "without a remote (add one in seglog.toml)"
    session.output.show(made, f"made {made.directory}, {place}")


def recover(
    session: Session,
    url: Annotated[str, About("The remote: s3://bucket/prefix or file:///path.", metavar="URL")],
    directory: Annotated[Path, About("The new data directory.", metavar="DIR")],
    topic: Annotated[str | None, About("Only this topic, with its branches, or TOPIC@BRANCH.")] = None,
    writable: Annotated[bool, About("Take over every topic at once: former writers are fenced.")] = False,
) -> None:
    """Make a data directory from a remote alone: every topic and branch, with its bounds and configuration.

    The command copies no records: reads go to the remote. The first append to a topic, or `takeover`, makes this
    directory its writer. After a failure, repeat the command: it continues. Example: seglog recover s3://my-bucket/acme
    new-data
    """
    from offload.commands import recover as use
    from offload.recovery import NotRecovered

    results = use.recover(directory, url, topic=topic, writable=writable)
    for found in while_waiting(results, f"recover {url}", is_shown=session.shows_progress):
        if isinstance(found, NotRecovered):
            note(f"{found.topic}: {found.error}")
            continue
        last = f", the last one seq {found.last_seq} of {found.last_time}" if found.last_seq else ""
        text = f"{found.topic}: head {found.head_seq} (lsn {found.lsn}), {counted(found.records)}{last}"
        session.output.show(found, text)


def serve(session: Session) -> None:
    """Hold this data directory, take records over HTTP, offload and release in the background, until SIGTERM.

    Other commands on the same directory go through the daemon by themselves. After SIGHUP the daemon
    reads the sections [serve], [offload] and [catalog] of seglog.toml again.
    Example: seglog -C /var/lib/seglog serve
    """
    session.serve(session.directory, session.settings(), remote=session.remote, debug=session.debug)
