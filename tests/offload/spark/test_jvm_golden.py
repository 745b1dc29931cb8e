"""The driver's side in Java reads the golden messages, writes the golden calls, and gives the golden rows."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from offload.spark.messages import PROTOCOL, decode_message, encode_filter, read_message
from tests.golden.make_spark import (
    COLUMNS,
    CREDENTIALS,
    DIRECTORY,
    FILTERS,
    OFFSET,
    OPTIONS,
    TASKS,
    messages,
    rows,
)
from tests.offload.spark.judge import Judge

#: A planner that hears one message before each of its answers. The driver hears the hello first.
PLANNER = """#!{python}
import sys
from pathlib import Path

heard = open({heard!r}, "wb")
answers = {answers!r}
sys.stdout.buffer.write(Path(answers[0]).read_bytes())
sys.stdout.buffer.flush()
for number in range(len(answers)):
    head = sys.stdin.buffer.read(4)
    heard.write(head + sys.stdin.buffer.read(int.from_bytes(head, "big")))
    heard.flush()
    if number:
        sys.stdout.buffer.write(Path(answers[number]).read_bytes())
        sys.stdout.buffer.flush()
"""

pytestmark = pytest.mark.long  # because all tests of the judge share a JVM of their own


def drive(judge: Judge, directory: Path, *answers: str, **more: object) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Let the driver meet a planner that gives these answers. Return what the driver found, and what it sent."""
    names = [str(DIRECTORY / f"{name}.bin") for name in ("planner_hello", *answers)]
    planner, heard = directory / "planner", directory / "heard"
    planner.write_text(PLANNER.format(python=sys.executable, heard=str(heard), answers=names))
    planner.chmod(0o755)
    found = judge.ask(
        op="drive",
        planner=str(planner),
        directory=str(DIRECTORY.parent),
        options=OPTIONS,
        columns=["seq", "value"],
        filters=[encode_filter(condition) for condition in FILTERS],
        parallelism=8,
        aggregates=messages()["aggregate_call"][0]["aggregates"],
        **more,
    )
    stream = io.BytesIO(heard.read_bytes())
    return found, [decode_message(body) for body in iter(lambda: read_message(stream), None)]


def test_the_driver_reads_the_golden_answers_and_sends_the_golden_calls(judge: Judge, tmp_path: Path):
    found, sent = drive(judge, tmp_path, "pin_answer", "plan_answer", "aggregate_answer")
    columns = ",".join(f"{each['name']}:{each['type']}" for each in COLUMNS)
    assert found["offered"] == f"struct<{columns}>"
    assert found["plan"] == messages()["plan_answer"][0]["plan"]
    assert found["values"] == messages()["aggregate_answer"][0]["values"]
    lines = (DIRECTORY / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert found["rows"] == [json.loads(line) for line in lines]
    hello, *calls = sent
    assert hello["hello"]["protocol"] == PROTOCOL
    assert calls == [messages()[name][0] for name in ("pin_call", "plan_call", "aggregate_call")]


def test_the_driver_reads_and_sends_the_golden_messages_of_streams_groups_and_credentials(judge: Judge, tmp_path: Path):
    by = ["topic", "tag"]
    begin = ("pin_answer", "plan_answer", "aggregate_answer")
    more = ("stream_latest", "stream_plan", "groups", "credentials")
    found, sent = drive(judge, tmp_path, *begin, *(f"{name}_answer" for name in more), by=by)
    assert found["offset"] == OFFSET
    assert found["stream"] == list(rows(TASKS[2]))
    assert found["groups"] == messages()["groups_answer"][0]["rows"]
    assert found["handed"] == [CREDENTIALS[name] for name in ("access_key", "secret_key", "session_token")] + [
        CREDENTIALS["expires_at_ms"]
    ]
    assert found["shown"] == "Credentials[]"
    expected = [messages()[f"{name}_call"][0] for name in more]
    expected[1]["filters"] = []  # Spark hands a stream no filters
    assert sent[4:] == expected
    unknown, _ = drive(judge, tmp_path, *begin, "stream_latest_answer", "stream_plan_answer", "groups_unknown", by=by)
    assert unknown["groups"] is None


@pytest.mark.parametrize(
    ("answers", "values", "error"),
    [
        (("pin_answer", "plan_answer", "aggregate_unknown"), None, None),
        (("pin_answer", "error"), None, ["AnalysisException", "NoSuchTopic: no topic orders"]),
    ],
)
def test_the_driver_reads_the_other_golden_answers(
    judge: Judge, tmp_path: Path, answers: tuple[str, ...], values: object, error: list[str] | None
):
    found, _ = drive(judge, tmp_path, *answers)
    assert (found.get("values"), found.get("error")) == (values, error)
