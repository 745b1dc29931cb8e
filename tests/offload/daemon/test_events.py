"""Test the events of the daemon: bounded for each listener, and streamed to a console by a real daemon."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import seglog
from offload.daemon.events import Events
from offload.token_rights import Role, token_line
from tests.daemons import served


def test_a_slow_listener_loses_events_and_learns_how_many_and_others_lose_none() -> None:
    async def run() -> None:
        lost: list[int] = []
        events = Events(lambda: 7, lambda: lost.append(1))

        def publish(number: int) -> None:
            events.publish("failed", str(number))

        with events.listening(lambda _: True) as slow, events.listening(lambda each: each.topic == "t") as picky:
            publisher = threading.Thread(target=lambda: list(map(publish, range(300))))
            publisher.start()
            publisher.join()
            events.publish("offloaded", "t", offloaded_seq=3)
            found, missed = await slow.take(10)
            assert ([each.topic for each in found], missed) == ([str(number) for number in range(256)], 45)
            assert len(lost) == 45
            [own], missed = await picky.take(10)
            assert (own.kind, own.at_ms, own.topic, own.details, missed) == (
                "offloaded",
                7,
                "t",
                {"offloaded_seq": 3},
                0,
            )
            events.publish("disk", state="full")
            assert [each.kind for each in (await slow.take(10))[0]] == ["disk"]
            assert await picky.take(0.01) == ([], 0)
        events.publish("disk", state="fine")
        assert (await slow.take(0.01)) == ([], 0), "it listens no more"

    asyncio.run(run())


def next_event(answer: IO[bytes]) -> tuple[str, Any]:
    """Return the next event of a stream. Comments are no events."""
    name = ""
    while line := answer.readline():
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            return name, json.loads(line[6:])
    return "closed", None


def test_a_console_gets_the_events_of_its_topics_until_the_daemon_stops(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    (tmp_path / "tokens").write_text(token_line("console", Role.READ, "app-*", "of-console") + "\n")
    (tmp_path / "tokens").chmod(0o600)
    variables = {"SERVE_TOKEN_FILE": str(tmp_path / "tokens"), "OFFLOAD_OFFLOAD_AFTER_S": "never"}
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), **variables) as daemon:
        for topic in ("web", "app-1"):
            daemon.call_over_socket("topic/create", topic=topic)
        with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)) as connection:
            connection.request("GET", "/daemon/events", None, {"Authorization": "Bearer of-console"})
            answer = connection.getresponse()
            assert answer.status == 200
            assert answer.getheader("content-type", "").startswith("text/event-stream")
            assert answer.readline().startswith(b":"), "the stream is open"
            for topic in ("web", "app-1"):
                daemon.append_over_socket(topic, b"x")
                daemon.call_over_socket("seal", topic=topic)
                daemon.call_over_socket("offload", topic=topic)
            name, data = next_event(answer)
            assert (name, data["topic"], data["offloaded_seq"]) == ("offloaded", "app-1", 1)
            assert data["at"].endswith("Z")
            daemon.process.send_signal(signal.SIGTERM)
            assert next_event(answer) == ("end", {"reason": "stopping"})
            assert daemon.process.wait(60) == 0


def test_a_failed_offload_is_an_event(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), OFFLOAD_OFFLOAD_AFTER_S="never") as daemon:
        daemon.append("t", b"x")
        daemon.call("seal", topic="t")
        (tmp_path / "remote").mkdir(exist_ok=True)
        (tmp_path / "remote").rename(tmp_path / "away")
        (tmp_path / "remote").write_text("no directory")
        with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)) as connection:
            connection.request("GET", "/daemon/events")
            answer = connection.getresponse()
            answer.readline()
            daemon.call("offload", topic="t")
            name, data = next_event(answer)
            assert (name, data["topic"]) == ("failed", "t")
            assert data["error"]
