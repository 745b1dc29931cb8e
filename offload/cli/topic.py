"""`seglog topic create` and `seglog topic list`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import emit, session_of

__all__ = ["app"]

app = typer.Typer(help="Topics and their configuration.", no_args_is_help=True)


@app.command("create")
def create(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    codec: Annotated[
        str | None,
        typer.Option(help="How it is offloaded: zstd (small) or none (Apache Pulsar's format).", show_default=False),
    ] = None,
    durability: Annotated[str, typer.Option(help="When an append is acked: fsync, disk or memory.")] = "fsync",
) -> None:
    """Make a topic with a configuration of its own. Without this the first append makes it, with the defaults."""
    from catalog import keys
    from offload.settings import codec_named
    from seglog import TopicConfig

    session = session_of(context)
    keys.check_name("topic", topic)  # a branch is made by `seglog branch create`
    if codec is not None:
        codec_named(codec)
    with session.log_and_maybe_archive() as (log, archive):
        attributes = {"codec": codec} if codec else {}
        log.create_topic(
            topic, TopicConfig(durability=durability, keep_history=archive is not None, attributes=attributes)
        )
    emit(session, {"topic": topic, "codec": codec, "durability": durability}, f"made topic {topic}")


@app.command("list")
def list_topics(context: typer.Context) -> None:
    """List the topics of this data directory."""
    session = session_of(context)
    with session.log() as log:
        for name in log.topics():
            topic = log.topic(name)
            emit(
                session,
                {"topic": name, "head_seq": topic.head_seq, "hot_first_seq": topic.hot_floor},
                f"{name:<32} up to seq {topic.head_seq:,}",
            )
