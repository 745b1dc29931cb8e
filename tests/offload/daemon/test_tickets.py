"""Test tickets: what they may do, when they end, and that none of them shows anywhere."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.daemon import tickets as tickets_module
from offload.daemon.credential_files import Access
from offload.daemon.http.tenant_router import router
from offload.daemon.request_log import entrance
from offload.daemon.tenants import Tenants
from offload.daemon.tickets import Tickets, takes_tickets
from offload.errors import Busy, Refused
from offload.settings import ServeSettings
from offload.token_rights import EVERYTHING, Rights, Role, Tokens, parse_tokens, token_line
from tests.offload.daemon.live_answers import Listening, LiveAnswer, listening
from tests.seams.delivery import ends_of, known_tickets
from tests.worlds.services import until

READER = ("reader", Role.READ, "orders,web")
BOSS = ("boss", Role.ADMIN, "*")
STREAM = "/events?topic=orders:1"


def run(directory: Path, body: Callable[[Listening], Awaitable[None]], *lines: Any, **more: Any) -> None:
    async def within() -> None:
        async with listening(directory / "place", *lines, **more) as daemon:
            daemon.append("orders", "o1")
            daemon.append("secret", "s1")
            await body(daemon)

    asyncio.run(within())


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def scope(text: str, path: str = "/events") -> dict[str, Any]:
    return {"type": "http", "path": path, "query_string": f"topic=a&ticket={text}".encode(), "headers": []}


def test_a_ticket_has_the_rights_of_the_token_that_asked_and_no_others(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        ticket = await daemon.ticket("reader")
        async with daemon.get(f"{STREAM}&ticket={ticket}") as stream:
            [event] = await stream.take(1)
            assert event.data["value"] == "o1"
        status, problem = await daemon.ask(f"/events?topic=secret&ticket={ticket}")
        assert (status, problem["title"]) == (403, "NotAllowed")
        assert "reader" in problem["detail"]
        metrics = await daemon.ticket("metrics")
        assert (await daemon.ask(f"{STREAM}&ticket={metrics}"))[0] == 403

    run(tmp_path, body, READER, ("metrics", Role.METRICS, "*"))


def test_only_events_and_websockets_take_a_ticket(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        ticket = await daemon.ticket("boss")
        for method, path in (
            ("GET", "/topics/orders/records"), ("GET", "/topics"), ("POST", "/tickets"), ("GET", "/daemon/events"),
            ("GET", "/topics/orders/records/1"), ("POST", "/topics/orders/records"), ("GET", "/metrics"),
            ("GET", "/events/"), ("POST", "/rpc/status"),
        ):  # fmt: skip
            status, problem = await daemon.ask(f"{path}?ticket={ticket}", method=method)
            assert (status, problem["reason"]) == (401, "token"), path
        for path in ("/topics/orders/records", "/topics", "/daemon/events"):
            status, problem = await daemon.ask(f"{path}?ticket={ticket}", "boss")
            assert (status, problem["title"]) == (400, "InvalidOption"), path
            assert "ticket is unknown" in problem["detail"]
            assert ticket not in json.dumps(problem)

    run(tmp_path, body, BOSS)


@pytest.mark.parametrize(
    ("path", "takes"),
    [
        ("/events", True), ("/ws", True), ("/tenants/acme/events", True), ("/tenants/acme/ws", True),
        ("/events/x", False), ("/tickets", False), ("/tenants/a/b/events", False), ("/daemon/events", False),
        ("/tenants//events", False), ("/streams/events", False), ("/streams/ws", False), ("/eventsx", False),
    ],
)  # fmt: skip
def test_the_paths_that_take_a_ticket(path: str, takes: bool) -> None:
    assert takes_tickets({"path": path}) is takes
    tickets = Tickets()
    text = tickets.issue(EVERYTHING, b"")
    assert (tickets.begin(scope(text, path)) is not None) is takes


def test_a_ticket_ends_60_s_after_the_last_connection_that_used_it() -> None:
    clock = Clock()
    tickets = Tickets(clock)
    text = tickets.issue(EVERYTHING, b"")
    clock.s += 59.9
    first, second = tickets.begin(scope(text)), tickets.begin(scope(text))
    assert first is not None
    assert first is second
    clock.s += 10_000
    assert tickets.begin(scope(text)) is first, "a connection uses it"
    for _ in range(2):
        tickets.end(first)
    clock.s += 10_000
    assert len(tickets) == 1
    tickets.end(first)
    clock.s += 59.9
    assert tickets.begin(scope(text)) is first
    tickets.end(first)
    clock.s += 60
    with pytest.raises(Refused, match="unknown or has ended"):
        tickets.begin(scope(text))
    assert len(tickets) == 0


def test_a_ticket_that_was_used_once_ends_too(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        ticket = await daemon.ticket("reader")
        async with daemon.get(f"{STREAM}&ticket={ticket}") as stream:
            await stream.take(1)
            assert [each.uses for each in known_tickets(daemon.access.tickets).values()] == [1]
        assert (await daemon.ask(f"/events?topic=secret&ticket={ticket}"))[0] == 403
        assert [each.uses for each in known_tickets(daemon.access.tickets).values()] == [0]
        assert len(ends_of(daemon.access.tickets)) == 1

    run(tmp_path, body, READER)


def test_tickets_end_in_the_order_of_their_last_use() -> None:
    clock = Clock()
    tickets = Tickets(clock)
    texts = [tickets.issue(EVERYTHING, b"") for _ in range(3)]
    clock.s += 30
    used = tickets.begin(scope(texts[0]))
    assert used is not None
    tickets.end(used)
    clock.s += 30
    assert tickets.begin(scope(texts[0])) is used
    for text in texts[1:]:
        with pytest.raises(Refused):
            tickets.begin(scope(text))


@pytest.mark.parametrize("wrong", ["", "x", "a" * 55, "\u00fc" * 60, "%FF" * 20, "%00"])
def test_a_text_that_is_no_ticket_is_refused_without_being_repeated(wrong: str) -> None:
    tickets = Tickets()
    text = tickets.issue(EVERYTHING, b"")
    first, last = "xy"[text[0] == "x"], "_-"[text[-1] == "_"]
    for given in (wrong, text[:-1], text[:-1] + last, text[:12], first + text[1:], text + "x"):
        with pytest.raises(Refused) as refusal:
            tickets.begin({**scope(""), "query_string": f"ticket={given}".encode()})
        assert (refusal.value.status, refusal.value.reason) == (401, "ticket")
        assert not given or given not in str(refusal.value) or given == "x"
    assert tickets.begin(scope(text)) is not None


def test_there_is_a_limit_of_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    tickets = Tickets(clock)
    monkeypatch.setattr(tickets_module, "MOST_TICKETS", 3)
    for _ in range(3):
        tickets.issue(EVERYTHING, b"")
    with pytest.raises(Busy, match="its limit of tickets"):
        tickets.issue(EVERYTHING, b"")
    of_tenant = replace(EVERYTHING, tenant="acme")
    assert tickets.issue(of_tenant, b""), "the tickets of one tenant keep no other one out"
    clock.s += 60
    for _ in range(3):
        tickets.issue(EVERYTHING, b"")
    tickets.end_revoked(parse_tokens(token_line("reader", Role.READ, "*", "another").encode(), "file"))
    for _ in range(3):
        tickets.issue(EVERYTHING, b"")


def test_a_reload_looks_up_each_token_once_however_many_tickets_it_has() -> None:
    tokens = parse_tokens(token_line("reader", Role.READ, "*", "secret").encode(), "file")
    [(digest, rights)] = tokens.known
    tickets, looks = Tickets(), list[bytes]()
    for _ in range(5):
        tickets.issue(rights, digest)

    class Counting(Tokens):
        def find(self, token_digest: bytes) -> Rights | None:
            looks.append(token_digest)
            return super().find(token_digest)

    tickets.end_revoked(Counting(tokens.known))
    assert (looks, len(tickets)) == ([digest], 5)


def test_the_daemon_keeps_no_ticket_that_it_could_tell() -> None:
    tickets = Tickets()
    text = tickets.issue(EVERYTHING, b"")
    [ticket] = known_tickets(tickets).values()
    assert text[12:] not in repr([known_tickets(tickets), vars(tickets), ticket.proof])
    assert len({tickets.issue(EVERYTHING, b"") for _ in range(100)}) == 100


def test_a_reload_that_takes_a_right_ends_the_tickets_of_the_token_and_their_connections(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        idle, used, kept = [await daemon.ticket(name) for name in ("reader", "reader", "boss")]
        async with (
            daemon.get(f"{STREAM}&ticket={used}") as stream,
            daemon.get(f"{STREAM}&ticket={kept}") as other,
        ):
            await stream.take(1)
            await other.take(1)
            daemon.reload(("reader", Role.READ, "web"), BOSS)
            assert [each.data for each in await stream.end()][1:] == [{"reason": "revoked"}]
            daemon.append("orders", "o2")
            assert (await other.take(1))[0].data["value"] == "o2"
        for ticket in (idle, used):
            status, problem = await daemon.ask(f"{STREAM}&ticket={ticket}")
            assert (status, problem["reason"]) == (401, "ticket")
        daemon.reload(READER, BOSS)
        assert (await daemon.ask(f"{STREAM}&ticket={idle}"))[0] == 401, "it does not come back"
        async with daemon.get(f"{STREAM}&ticket={kept}") as stream:
            await stream.take(1)

    run(tmp_path, body, READER, BOSS)


def test_a_token_with_more_rights_keeps_its_tickets_which_get_no_more() -> None:
    def tokens(topics: str) -> Any:
        return parse_tokens(token_line("reader", Role.READ, topics, "secret").encode(), "file")

    before = tokens("orders")
    [(digest, rights)] = before.known
    tickets = Tickets()
    text = tickets.issue(rights, digest)
    tickets.end_revoked(tokens("orders,web"))
    ticket = tickets.begin(scope(text))
    assert ticket is not None
    assert ticket.rights is rights
    tickets.end_revoked(None)
    assert len(tickets) == 1, "a daemon that asks for no token ends none"
    tickets.end_revoked(parse_tokens(token_line("reader", Role.READ, "*", "another").encode(), "file"))
    assert len(tickets) == 0, "the name of a token is not the token"
    tickets.end(ticket)
    assert len(tickets) == 0


def test_without_a_token_file_a_ticket_works_so_that_the_page_is_the_same(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        status, told = await daemon.ask("/tickets", method="POST")
        assert (status, told["expires_s"], len(told["ticket"])) == (200, 60, 55)
        async with daemon.get(f"{STREAM}&ticket={told['ticket']}") as stream:
            await stream.take(1)
        assert (await daemon.ask(f"{STREAM}&ticket=another"))[0] == 401

    run(tmp_path, body)


def test_a_web_page_needs_its_origin_on_the_list_also_with_a_ticket(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        ticket = await daemon.ticket("reader")
        status, problem = await daemon.ask(f"{STREAM}&ticket={ticket}", origin="https://evil.example")
        assert (status, problem["reason"]) == (403, "origin")
        async with daemon.get(f"{STREAM}&ticket={ticket}", origin="https://page.example") as stream:
            await stream.take(1)
            assert stream.answer_headers["access-control-allow-origin"] == "https://page.example"

    run(tmp_path, body, READER, allowed_origins="https://page.example")


def test_no_ticket_is_in_a_log_line_a_metric_an_error_or_a_referrer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    answers: list[LiveAnswer] = []

    async def body(daemon: Listening) -> None:
        ticket = await daemon.ticket("reader")
        texts.append(ticket)
        for query in (
            f"topic=orders:1&ticket={ticket}",
            f"topic=secret&ticket={ticket}",
            f"topic=absent&ticket={ticket}",
            f"topic=orders:x&ticket={ticket}",
            f"topic=orders&last_event_id=x&ticket={ticket}",
            f"topic=orders&ticket={ticket}&ticket={ticket}",
            f"topic=orders&ticket={ticket}x",
            f"topic=orders&unknown=1&ticket={ticket}",
        ):
            async with daemon.get(f"/events?{query}", token="") as answer:
                await answer.until_status()
                answers.append(answer)
        texts.append(daemon.service.metrics.text(lambda _: True).decode())

    run(tmp_path, body, READER, access_log=True)
    ticket, metrics = texts
    assert {each.status for each in answers} == {200, 400, 401, 403}
    for answer in answers:
        assert answer.answer_headers["referrer-policy"] == "no-referrer", answer.status
        assert ticket[12:] not in answer.raw.decode() + repr(answer.answer_headers)
    logged = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "/events" in logged
    assert ticket[12:] not in logged
    assert ticket[12:] not in metrics
    assert 'reason="ticket"' in metrics


def test_the_answer_with_a_ticket_is_kept_nowhere(tmp_path: Path) -> None:
    async def body(daemon: Listening) -> None:
        async with daemon.get("/tickets", "reader", "POST") as answer:
            await answer.whole()
            assert answer.answer_headers["cache-control"] == "no-store"
            assert answer.answer_headers["referrer-policy"] == "no-referrer"
        assert (await daemon.ask("/tickets", method="POST"))[0] == 401
        assert (await daemon.ask("/tickets", "reader"))[0] == 405
        assert (await daemon.ask("/tickets?lasts_s=9", "reader", "POST"))[0] == 400

    run(tmp_path, body, READER)


def test_a_ticket_is_bound_to_the_tenant_of_its_token(tmp_path: Path) -> None:
    for name in ("acme", "globex"):
        with seglog.open(tmp_path / "root" / name) as log:
            log.topic("orders").append([name.encode()])
    tokens = tmp_path / "tokens"
    lines = [token_line(f"{name}-ci", Role.READ, "*", f"secret-of-{name}-ci", name) for name in ("acme", "globex")]
    tokens.write_text("\n".join([*lines, token_line("boss", Role.ADMIN, "*", "secret-of-boss")]))
    tokens.chmod(0o600)
    (tmp_path / "root").chmod(0o700)
    settings = ServeSettings(token_file=str(tokens))

    async def body() -> None:
        access, tenants = Access(settings), Tenants(tmp_path / "root", settings, {})
        tenants.start()
        app = entrance(router(tenants, lambda: access.tokens, access.open_answers, access.tickets), tenants)
        daemon = Listening(None, app, access, settings, tokens)  # type: ignore[arg-type]
        try:
            await until(lambda: all(each.state == "open" for each in tenants) and len([*tenants]) == 2, "tenants open")
            ticket = await daemon.ticket("acme-ci")
            for path in ("", "/tenants/acme"):
                async with daemon.get(f"{path}{STREAM}&ticket={ticket}") as stream:
                    assert (await stream.take(1))[0].data["value"] == "acme"
            found = [await daemon.ask(f"/tenants/{name}{STREAM}&ticket={ticket}") for name in ("globex", "missng")]
            assert {(status, problem["title"]) for status, problem in found} == {(404, "NoSuchTenant")}
            status, told = await daemon.ask("/tenants/acme/tickets", "boss", "POST")
            assert status == 200
            async with daemon.get(f"/tenants/globex{STREAM}&ticket={told['ticket']}") as stream:
                assert (await stream.take(1))[0].data["value"] == "globex", "its token is bound to no tenant"
            assert (await daemon.ask(f"{STREAM}&ticket={told['ticket']}"))[0] == 404
            assert (await daemon.ask("/tickets", "boss", "POST"))[0] == 404
        finally:
            await tenants.close()

    asyncio.run(body())
