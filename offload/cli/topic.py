"""The texts of `seglog topic create`, `set`, `show`, `delete` and `list`."""

from __future__ import annotations

from dataclasses import asdict

from offload.cli.preview import taking_lines
from offload.operations.printing import lines, rows
from offload.operations.topic import TopicConfigured, TopicDeleted, TopicDescribed, TopicGone, TopicListed
from offload.operations.units import counted

__all__ = [
    "print_configured",
    "print_gone",
    "print_listed",
    "print_made",
    "print_shown",
]


def configured_text(done: TopicConfigured) -> str:
    values = [f"{key} {value}" for key, value in done.config.items() if value is not None and key != "attributes"]
    return f"{done.topic}: {', '.join(values)}"


def shown_text(shown: TopicDescribed) -> str:
    rows = {"role": "replica" if shown.is_replica else None, **asdict(shown.places), **shown.config}
    return "\n".join(f"{key:<15} {value}" for key, value in rows.items() if value is not None)


def gone_text(gone: TopicDeleted | TopicGone) -> str:
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


def listed_text(topic: TopicListed) -> str:
    return f"{topic.topic:<32} up to seq {topic.head_seq:,}{', replica' if topic.is_replica else ''}"


def _listed_row(topic: TopicListed) -> tuple[str, str, str]:
    return topic.topic, f"{topic.head_seq:,}", "replica" if topic.is_replica else "writer"


print_made = lines(lambda made: f"made topic {made.topic}")
print_configured = lines(configured_text)
print_shown = lines(shown_text)
print_gone = taking_lines(gone_text)
print_listed = rows(("topic", "head seq", "role"), _listed_row, listed_text)
