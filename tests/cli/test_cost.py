"""Test `seglog cost`: objects, bytes and money by topic and branch, and the files of prices."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any

import pytest

from catalog.objects.wrapped import WrappedStore
from offload.daemon.metrics import LastDay
from offload.errors import Misuse
from offload.operations.cost import S3_STANDARD, parse_prices
from tests.worlds.command import Run

PRICES = 'currency = "EUR"\nstorage_gb_month = 1073741824\nput_per_1000 = 2\nget_per_1000 = 1\n'


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "orders", stdin=b"one\ntwo\nthree\n")
    run("seal", "orders")
    assert run("offload", "orders").code == 0
    assert run("branch", "create", "orders", "try").code == 0
    return run


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    done = run("--json", "cost", *arguments)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_each_stored_byte_counts_once_at_the_prices_of_the_file(started: Run, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(PRICES)
    found = rows(started, "--prices", "prices.toml")
    stored = [path for path in (tmp_path / "remote").rglob("*") if path.is_file()]
    stored = [path for path in stored if not any(part.startswith(".") for part in path.parts)]
    [total] = [each for each in found if each["kind"] == "cost_total"]
    assert (total["objects"], total["bytes"]) == (len(stored), sum(path.stat().st_size for path in stored))
    assert (total["money"], total["currency"]) == (total["bytes"], "EUR")
    assert (total["gc_objects"], total["gc_bytes"], total["blocked_volumes"]) == (0, 0, 0)
    [topic] = [each for each in found if each["kind"] == "topic_cost"]
    branches = {each["branch"]: each for each in found if each["kind"] == "branch_cost"}
    assert (topic["topic"], set(branches)) == ("orders", {"main", "try"})
    assert topic["bytes"] == sum(each["bytes"] for each in branches.values())
    assert 0 < branches["try"]["shared_bytes"] < branches["main"]["bytes"]
    assert [each["requests"] for each in found if each["kind"] == "request_cost"] == [None]


def test_without_a_file_the_prices_are_named(started: Run) -> None:
    text = started("cost").text
    assert "money in USD: S3 Standard, us-east-1, first 50 TB of 2025-06-01" in text
    assert "not counted: no daemon serves this directory" in text
    assert "orders  " in text
    assert ", shared " in text


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"currency = ", 2, "not TOML"),
        (b"\xff", 2, "UTF-8"),
        (PRICES.encode() + b"tax = 1\n", 2, "unknown key 'tax'"),
        (None, 3, "prices.toml does not exist"),
    ],
)
def test_a_bad_file_of_prices_is_refused(run: Run, tmp_path: Path, body: bytes | None, code: int, words: str) -> None:
    if body is not None:
        (tmp_path / "prices.toml").write_bytes(body)
    done = run("cost", "--prices", "prices.toml")
    assert (done.code, done.out) == (code, b"")
    assert words in done.err


@pytest.mark.parametrize("key", ["currency", "storage_gb_month", "put_per_1000", "get_per_1000"])
@pytest.mark.parametrize("value", [None, "-1", "true", "inf", "nan"])
def test_prices_need_each_key_with_a_sound_value(key: str, value: str | None) -> None:
    body = [line for line in PRICES.splitlines() if not line.startswith(key)]
    with pytest.raises(Misuse, match=key):
        parse_prices("\n".join([*body, *([f"{key} = {value}"] if value else [])]))


def test_the_requests_of_a_daemon_cover_its_last_day() -> None:
    now_s = 0.0
    day = LastDay(lambda: now_s)
    day.count("put")
    now_s = 1800.0
    day.count("get")
    assert (day.seen().covers_s, day.seen().methods) == (1800.0, {"get": 1, "put": 1})
    money = S3_STANDARD.requests(day.seen().methods, day.seen().covers_s)
    assert math.isclose(money, (0.005 + 0.0004) / 1000 * 30 * 48)
    now_s = 3600.0 * 20
    day.count("list")
    now_s = 3600.0 * 25
    assert (day.seen().methods, day.seen().covers_s) == ({"list": 1}, 3600.0 * 5)
    assert S3_STANDARD.requests({"delete": 9}, 1.0) == S3_STANDARD.requests({"put": 1}, 0.0) == 0


def test_each_request_but_a_delete_and_an_abort_has_a_price() -> None:
    """A store counts a listing with sizes as `list`."""
    methods = {name for name, each in vars(WrappedStore).items() if inspect.isfunction(each) and name[0] != "_"}
    of_proxies = {"forward", "await_forward", "end_waits", "followed"}
    free = {
        name
        for name in methods - {"close", "sizes", "past_cache", *of_proxies}
        if not S3_STANDARD.requests({name: 1}, 1.0)
    }
    assert free == {"abort_upload", "delete", "delete_many"}
