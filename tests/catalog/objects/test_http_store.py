"""Test a remote over HTTP: it only reads, takes no wrong URL for an empty remote, and waits no longer than told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from catalog.errors import AccessDenied, InvalidObject, InvalidRemote, NoSuchObject, StoreUnreachable
from catalog.format.ids import Vid
from catalog.format.keys import Key
from catalog.objects.http import HttpStore, forward_sum
from catalog.objects.object_store import Forward
from offload.wiring import open_prefix, open_store
from tests.answering import Answer, AnsweringServer, Asked
from tests.waiting import wait_until

VID = Vid.new(1)
KEY = Key("refs/orders/main")
ABSENT = Answer(404, b"{}", {"seglog-error": "NoSuchObject"})


def store_of(server: AnsweringServer, **more: Any) -> HttpStore:
    return HttpStore(server.url, lambda: "secret", **more)


def test_each_write_is_refused_before_any_request() -> None:
    asked: list[Asked] = []
    with AnsweringServer(lambda each: asked.append(each) or Answer(200)) as server:
        store = store_of(server)
        calls: list[Callable[[], object]] = [
            lambda: store.put_new(KEY, b""),
            lambda: store.put(KEY, b"", {}),
            lambda: store.swap(KEY, b"", "etag"),
            lambda: store.delete(KEY),
            lambda: store.delete_many([KEY]),
            lambda: store.create_upload(KEY, {}),
            lambda: store.put_part(KEY, "id", 1, b""),
            lambda: store.complete_upload(KEY, "id", []),
            lambda: store.abort_upload(KEY, "id"),
            lambda: list(store.list_uploads("")),
        ]
        for call in calls:
            with pytest.raises(AccessDenied, match="this remote only reads"):
                call()
    assert asked == []


def test_only_an_answer_that_says_so_means_that_a_key_is_absent() -> None:
    for answer, error in (
        (ABSENT, NoSuchObject),
        (Answer(404, b"<html>", {}), StoreUnreachable),
        (Answer(404, json.dumps({"title": "NoSuchTenant", "detail": "no such tenant"}).encode()), StoreUnreachable),
        (Answer(301, b"", {"Location": "http://elsewhere/"}), StoreUnreachable),
        (Answer(500, b""), StoreUnreachable),
        (Answer(401, b"{}"), AccessDenied),
        (Answer(403, b"{}"), AccessDenied),
    ):
        with AnsweringServer(lambda _, answer=answer: answer) as server:  # type: ignore[misc]
            for read in (lambda store: store.get(KEY), lambda store: store.head(KEY), lambda store: [*store.list("")]):
                with pytest.raises(error):
                    read(store_of(server, attempts=1))


def test_a_request_in_trouble_is_repeated_and_a_cut_answer_is_none(no_pauses: None) -> None:
    answers = [Answer(503), None, Answer(200, b"half", {}, 8), Answer(429), Answer(200, b"whole", {"etag": '"e"'})]
    asked: list[Asked] = []
    with AnsweringServer(lambda each: asked.append(each) or answers.pop(0)) as server:
        found = store_of(server, attempts=5).get_with_etag(KEY)
        assert (found.body, found.etag) == (b"whole", '"e"')
        assert {(each.target, each.headers["Authorization"]) for each in asked} == {
            (f"/objects/{KEY}", "Bearer secret")
        }
        answers[:] = [Answer(503, b'{"detail": "the bucket is away"}')] * 2
        with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1.*503 the bucket is away"):
            store_of(server, attempts=2).get(KEY)


def test_a_range_is_exact_or_an_error() -> None:
    for answer, is_exact in (
        (Answer(206, b"abc", {"content-range": "bytes 1-3/9"}), True),
        (Answer(206, b"abc", {"content-range": "bytes 2-4/9"}), False),
        (Answer(206, b"abc"), False),
        (Answer(200, b"0abc4"), True),
        (Answer(206, b"ab"), False),
        (Answer(416), False),
    ):
        with AnsweringServer(lambda _, answer=answer: answer) as server:  # type: ignore[misc]
            if is_exact:
                assert store_of(server).get_range(KEY, 1, 3) == b"abc"
                continue
            with pytest.raises(InvalidObject):
                store_of(server).get_range(KEY, 1, 3)


def test_the_names_that_a_proxy_follows_are_those_of_its_answer_or_an_error() -> None:
    for body, names in ((b'{"topics": ["t", "t@half"]}', ["t", "t@half"]), (b"<html>", None), (b"[]", None)):
        with AnsweringServer(lambda _, body=body: Answer(200, body)) as server:  # type: ignore[misc]
            if names is not None:
                assert store_of(server).followed() == names
                continue
            with pytest.raises(StoreUnreachable, match="about topics"):
                store_of(server).followed()


def test_a_proxy_that_is_away_is_named_and_a_silent_one_is_left_in_time(no_pauses: None) -> None:
    with AnsweringServer(lambda _: ABSENT) as server:
        url = server.url
    with pytest.raises(StoreUnreachable, match=url):
        HttpStore(url).get(KEY)

    def silent(_: Asked) -> Answer:
        time.sleep(0.6)
        return Answer(200, b"late")

    with AnsweringServer(silent) as server:
        begin = time.monotonic()
        with pytest.raises(StoreUnreachable, match="it has not answered, or too slowly, for"):
            store_of(server, limit_s=0.2).get(KEY)
        assert time.monotonic() - begin < 0.6


def test_a_wait_lasts_longer_than_the_timeout_of_a_get() -> None:
    def slow(_: Asked) -> Answer:
        time.sleep(0.5)
        facts = f"{VID} 1 0"
        return Answer(200, b"", {"seglog-forward": f"{facts} {forward_sum(facts, b'')}"})

    with AnsweringServer(slow) as server:
        for short in ({"timeout_s": 0.1}, {"limit_s": 0.1}):
            with pytest.raises(StoreUnreachable):
                store_of(server, attempts=1, **short).forward("t", 1)
        store = store_of(server, timeout_s=0.1, limit_s=0.1)
        assert store.await_forward("t", VID, 1, 1) == Forward(VID, 1, 0)


def test_a_stop_ends_the_waits_while_another_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(WeakSet[Any]):
        def __iter__(self) -> Iterator[Any]:
            for each in super().__iter__():
                yield each
                is_walked.set()
                time.sleep(0.1)

    def wait() -> None:
        with pytest.raises(StoreUnreachable):
            store.await_forward("t", VID, 1, 20)

    def late() -> None:
        is_walked.wait()
        wait()

    def silent(asked: Asked) -> Answer:
        targets.append(asked.target)
        is_over.wait()
        return ABSENT

    is_walked, is_over, targets = threading.Event(), threading.Event(), list[str]()
    monkeypatch.setattr("catalog.objects.http.WeakSet", Slow)
    with AnsweringServer(silent) as server, ThreadPoolExecutor(3) as pool:
        store = store_of(server)
        waits = [pool.submit(wait), pool.submit(wait), pool.submit(late)]
        try:
            wait_until(lambda: len(targets) == 2)
            store.end_waits()
            for each in waits:
                each.result(5)
        finally:
            is_walked.set()
            is_over.set()
    assert targets == [f"/topics/t/forward?since=1&vid={VID}&wait_s=20"] * 2


def test_a_url_and_a_token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (
        "https://", "https://host:0", "https://host:x", "https://host/a/../b", "http://u:p@host", "ftp://h",
        "https://host:99999", "https://..:80", "https://-h", f"https://{'h' * 64}", "https://[1::2::3]", "https://[]",
    ):  # fmt: skip
        with pytest.raises(InvalidRemote):
            open_store(wrong)
    with pytest.raises(InvalidRemote, match="only reads"):
        open_prefix("https://host:7373/tenants/acme")
    file = tmp_path / "token"
    monkeypatch.setenv("SEGLOG_TOKEN_FILE", str(file))
    asked: list[Asked] = []
    with AnsweringServer(lambda each: asked.append(each) or Answer(200, b"one")) as server:
        store = open_store(f"{server.url}/tenants/acme/")
        assert store.url == f"{server.url}/tenants/acme"
        with pytest.raises(AccessDenied, match="token is not readable"):
            store.get(KEY)
        for wrong in (b"name:read:*:abc\nsecret\n", "tök€n".encode(), b"\n", b"\xff", b"two words"):
            file.write_bytes(wrong)
            with pytest.raises(AccessDenied, match="token is not readable") as refused:
                store.get(KEY)
            assert "secret" not in str(refused.value)
        assert asked == []
        for token in ("first", "second"):  # each request reads the file again
            file.write_text(f"{token}\n")
            assert store.get(KEY) == b"one"
            assert (asked[-1].target, asked[-1].headers["Authorization"]) == (
                f"/tenants/acme/objects/{KEY}", f"Bearer {token}",
            )  # fmt: skip


def test_a_token_goes_over_plain_http_to_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ("http://log.example:7373", "http://10.0.0.7:7373/tenants/acme", "http://[2001:db8::1]:7373")
    for url in plain:
        open_store(url).close()
    monkeypatch.setenv("SEGLOG_TOKEN_FILE", str(tmp_path / "token"))
    for url in plain:
        with pytest.raises(InvalidRemote, match="use https"):
            open_store(url)
    for url in ("http://127.0.0.1:7373", "http://[::1]:7373", "http://localhost:7373", "https://log.example:7373"):
        open_store(url).close()
