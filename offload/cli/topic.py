"""The commands `seglog topic create`, `set`, `show`, `delete` and `list`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from offload.cli.run import describe, each, one
from offload.cli.run import show as show_result
from offload.cli.session import counted
from offload.commands import topic as use
from offload.commands.topic import TopicDeleted, TopicGone

__all__ = ["app"]

app = typer.Typer(help="Topics and their configuration.", no_args_is_help=True)
Word = Annotated[str, typer.Argument()]
Text = Annotated[str | None, typer.Option(show_default=False)]


@app.command()
@describe(use.create)
def create(
    context: typer.Context,
    topic: Word,
    codec: Text = None,
    durability: Annotated[str, typer.Option()] = "fsync",
) -> None:
    made = one(context, use.create, topic=topic, codec=codec, durability=durability)
    show_result(context, made, f"made topic {topic}")


@app.command("set")
@describe(use.set_config)
def set_config(
    context: typer.Context,
    topic: Word,
    ttl: Text = None,
    cap_records: Text = None,
    cap_bytes: Text = None,
    discard: Text = None,
    durability: Text = None,
    offload_after: Text = None,
    offload_hot_bytes: Text = None,
    tail_interval: Text = None,
    window: Text = None,
) -> None:
    done = one(
        context,
        use.set_config,
        topic=topic,
        ttl=ttl,
        cap_records=cap_records,
        cap_bytes=cap_bytes,
        discard=discard,
        durability=durability,
        offload_after=offload_after,
        offload_hot_bytes=offload_hot_bytes,
        tail_interval=tail_interval,
        window=window,
    )
    show_result(context, done, f"{topic}: {_describe(done.config)}")


@app.command()
@describe(use.show)
def show(context: typer.Context, topic: Word) -> None:
    shown = one(context, use.show, topic=topic)
    rows = {**asdict(shown.places), **shown.config}
    text = "\n".join(f"{key:<15} {value}" for key, value in rows.items() if value is not None)
    show_result(context, shown, text)


@app.command()
@describe(use.delete)
def delete(
    context: typer.Context,
    topic: Word,
    yes: Annotated[bool, typer.Option("--yes")] = False,
    detach: Annotated[bool, typer.Option("--detach")] = False,
    discard: Annotated[bool, typer.Option("--discard")] = False,
) -> None:
    gone = one(context, use.delete, topic=topic, yes=yes, detach=detach, discard=discard)
    show_result(context, gone, _describe_gone(gone))


@app.command("list")
@describe(use.list_topics)
def list_topics(context: typer.Context) -> None:
    for topic in each(context, use.list_topics):
        show_result(context, topic, f"{topic.topic:<32} up to seq {topic.head_seq:,}")


def _describe_gone(gone: TopicDeleted | TopicGone) -> str:
    topic = gone.topic
    if isinstance(gone, TopicDeleted):
        return f"deleted topic {topic} with all its records: this directory had offloaded none of them"
    begun = f"{topic} is {'gone from this directory' if gone.outcome == 'detached' else 'followed here no more'}"
    if gone.dropped or gone.deletes:
        begun += f"; {counted(gone.dropped)} and {counted(gone.deletes, 'delete')} that only it had were dropped"
    if gone.lsn is None:
        return f"{begun}; the remote has nothing of it: its volume was collected"
    again = f"`seglog sync {topic}` follows it again, `seglog takeover {topic}` writes it again"
    return f"{begun}; the remote keeps it up to lsn {gone.lsn}: {again}"


def _describe(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in config.items() if value is not None and key != "attributes")
