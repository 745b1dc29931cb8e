"""The commands `seglog topic create`, `set`, `show`, `delete` and `list`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offload.cli.served import Served
from offload.cli.session import counted, emit, session_of
from offload.cli.units import parse_bytes, parse_count, parse_duration_ms

if TYPE_CHECKING:
    from offload.services.results import TopicGone

__all__ = ["app"]

app = typer.Typer(help="Topics and their configuration.", no_args_is_help=True)


@app.command("create", cls=Served)
def create(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    codec: Annotated[
        str | None,
        typer.Option(help="How it is offloaded: zstd (small) or none (Apache Pulsar's format).", show_default=False),
    ] = None,
    durability: Annotated[
        str, typer.Option(help="When an append is acked: fsync, disk, memory or ephemeral (never written).")
    ] = "fsync",
) -> None:
    """Make a topic with a configuration of its own. Without this the first append makes it, with the defaults."""
    from catalog.format import keys
    from offload.settings import codec_named
    from seglog import TopicConfig

    session = session_of(context)
    keys.check_name("topic", topic)  # a branch is made by `seglog branch create`
    if codec is not None:
        codec_named(codec)
    with session.log_and_maybe_archive() as (log, archive):
        attributes = {"codec": codec} if codec else {}
        keep_history = archive is not None and durability != "ephemeral"
        log.create_topic(topic, TopicConfig(durability=durability, keep_history=keep_history, attributes=attributes))
    emit(session, {"topic": topic, "codec": codec, "durability": durability}, f"made topic {topic}")


@app.command("set", cls=Served)
def set_config(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    ttl: Annotated[
        str | None,
        typer.Option(help="Show nothing older, such as 12h or 7d, and evict it; none: never.", show_default=False),
    ] = None,
    cap_records: Annotated[
        str | None, typer.Option(help="Keep about so many records on this disk; none: all.", show_default=False)
    ] = None,
    cap_bytes: Annotated[
        str | None, typer.Option(help="Keep about so many bytes, such as 10GB; none: all.", show_default=False)
    ] = None,
    discard: Annotated[
        str | None,
        typer.Option(help="At a cap: old (evict the oldest) or reject (refuse the append).", show_default=False),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            help="When an append is acked: fsync, disk, memory or ephemeral (never written).", show_default=False
        ),
    ] = None,
    offload_after: Annotated[
        str | None,
        typer.Option(help="Offload a sealed segment that old, such as 10m; never; default.", show_default=False),
    ] = None,
    offload_hot_bytes: Annotated[
        str | None,
        typer.Option(help="Or when newer ones hold so much, such as 1GB; never; default.", show_default=False),
    ] = None,
    tail_interval: Annotated[
        str | None, typer.Option(help="Seal and offload the tail that often; never; default.", show_default=False)
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="Keep every past state that long, such as 30d; 0; default.", show_default=False)
    ] = None,
) -> None:
    """Change how a topic keeps its records, and when the daemon offloads it. What is not named stays as it is.

    Whole sealed segments go, so somewhat more than a cap is kept. With a remote nothing goes before it is offloaded and
    read back. The remote hears of a window with the next offload.

    Example: seglog topic set access --ttl 30d --cap-bytes 50GB
    """
    changes: dict[str, Any] = {}
    if ttl is not None:
        changes["ttl_ms"] = parse_duration_ms(ttl)
    if cap_records is not None:
        changes["cap_records"] = parse_count(cap_records)
    if cap_bytes is not None:
        changes["cap_bytes"] = parse_bytes(cap_bytes)
    if discard is not None:
        changes["discard"] = discard
    if durability is not None:
        changes["durability"] = durability
    own = {"offload_after_s": offload_after, "offload_hot_bytes": offload_hot_bytes, "tail_interval_s": tail_interval}
    triggers = {key: _trigger(key, text) for key, text in own.items() if text is not None}
    if window is not None:
        triggers["pitr_window_s"] = _window(window)
    if not changes and not triggers:
        raise typer.BadParameter("say what to change: `seglog topic set --help` tells the options")
    session = session_of(context)
    with session.log_and_maybe_archive() as (log, _):
        handle = log.get_topic(topic)
        attributes = {**handle.config.attributes, **triggers}
        changes["attributes"] = {key: text for key, text in attributes.items() if text is not None}
        log.configure(topic, replace(handle.config, **changes))
        handle.enforce_retention()
        emit(session, {"topic": topic, **handle.config.to_json()}, f"{topic}: {_describe(handle.config.to_json())}")


@app.command("show", cls=Served)
def show(context: typer.Context, topic: Annotated[str, typer.Argument(help="The topic.")]) -> None:
    """Show a topic's configuration, and where it begins and ends."""
    session = session_of(context)
    with session.log(read_only=True) as log:
        handle = log.get_topic(topic)
        config = handle.config.to_json()
        places = {
            "earliest_seq": handle.earliest_seq,
            "head_seq": handle.head_seq,
            "hot_first_seq": handle.hot_floor,
            "evict_floor": handle.evict_floor,
            "epoch": handle.epoch,
            "hot_bytes": handle.bytes_hot,
            "relocated_bytes": handle.bytes_relocated,
        }
        text = "\n".join(f"{key:<15} {value}" for key, value in {**places, **config}.items() if value is not None)
        emit(session, {"topic": topic, **places, **config}, text)


@app.command("delete", cls=Served)
def delete(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="If it has a history in the remote: take it from this directory only.")
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="With --detach: drop what is not offloaded, for good.")
    ] = False,
) -> None:
    """Delete a topic and all its records, for good, if nothing of it is in the remote.

    With a history in the remote it is refused without --detach. That offloads what is left, reads all of it back, and
    deletes the topic here only: `seglog sync TOPIC` follows it again, `seglog takeover TOPIC` writes it again, and a
    branch can be deleted in the remote with `seglog branch delete`. A replica is only followed no more.
    """
    if not yes:
        raise typer.BadParameter(f"this deletes {topic} and all its records here; say --yes to do it")
    if discard and not detach:
        raise typer.BadParameter("--discard goes with --detach")
    session = session_of(context)
    with session.log_and_maybe_archive() as (log, archive):
        gone = None
        if archive is None:
            log.delete_topic(topic)
        else:
            gone = archive.delete_topic(topic, detach=detach, discard=discard)
    if gone is None or gone.outcome == "deleted":
        value = {"topic": topic, "deleted": True, "outcome": "deleted"}
        emit(session, value, f"deleted topic {topic} with all its records: this directory had offloaded none of them")
        return
    value = {"topic": topic, "deleted": False, "outcome": gone.outcome, "lsn": gone.lsn, "dropped": gone.records}
    emit(session, value, _describe_gone(topic, gone))


def _describe_gone(topic: str, gone: TopicGone) -> str:
    begun = f"{topic} is {'gone from this directory' if gone.outcome == 'detached' else 'followed here no more'}"
    if gone.records or gone.deletes:
        begun += f"; {counted(gone.records)} and {counted(gone.deletes, 'delete')} that only it had were dropped"
    if gone.lsn is None:
        return f"{begun}; the remote has nothing of it: its volume was collected"
    again = f"`seglog sync {topic}` follows it again, `seglog takeover {topic}` writes it again"
    return f"{begun}; the remote keeps it up to lsn {gone.lsn}: {again}"


def _trigger(key: str, text: str) -> str | None:
    """Return a trigger as an attribute of the topic. None removes the attribute: the daemon's setting holds again."""
    from offload.settings import NEVER, trigger_overrides

    if text == "default":
        return None
    if text == NEVER:
        return text
    value = parse_bytes(text) if key.endswith("_bytes") else (parse_duration_ms(text) or 0) // 1000
    trigger_overrides({key: str(value)})
    return str(value)


def _window(text: str) -> str | None:
    """Return the window in seconds, as an attribute of the topic. None removes it: the setting holds again."""
    if text in {"default", "0"}:
        return None if text == "default" else text
    ms = parse_duration_ms(text)
    if ms is None:
        raise typer.BadParameter("--window takes a duration such as 12h or 30d, 0, or default")
    return str(ms // 1000)


def _describe(config: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in config.items() if value is not None and key != "attributes")


@app.command("list", cls=Served)
def list_topics(context: typer.Context) -> None:
    """List the topics of this data directory."""
    session = session_of(context)
    with session.log(read_only=True) as log:
        for name in log.topics():
            topic = log.topic(name)
            emit(
                session,
                {"topic": name, "head_seq": topic.head_seq, "hot_first_seq": topic.hot_floor},
                f"{name:<32} up to seq {topic.head_seq:,}",
            )
